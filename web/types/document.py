"""Prints the OpenAPI document of what the pages read; `make web` generates their TypeScript types from it.

OpenAPI knows neither sockets nor event streams: the shapes that travel there are put among the others.
"""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fastapi import FastAPI
from pydantic.json_schema import models_json_schema

from palus.store import open_store
from palus.web.api.answers import Answers
from palus.web.api.router import make_api_router
from palus.web.api.view import Views
from palus.web.events import Event
from palus.web.live import RoomLimits
from palus.web.room import Ready, Refused, Rooms, Start, make_room_router
from palus.web.watch.app import Runs, make_watch_router


def document() -> dict[str, Any]:
    """The document without paths: pages name those themselves, and want the shapes."""
    app = FastAPI(title="palus arena")
    with TemporaryDirectory() as folder:
        store = open_store(Path(folder))
        answers = Answers(Views(store))
        app.include_router(make_api_router(answers))
        app.include_router(make_room_router(answers, Rooms(RoomLimits())))
        app.include_router(make_watch_router(Runs([])))
        store.close()
    made = app.openapi()
    streamed = [(shape, "serialization") for shape in (Event, Ready, Refused, Start)]
    _, others = models_json_schema(streamed, ref_template="#/components/schemas/{model}")
    schemas = made["components"]["schemas"] | others["$defs"]
    for schema in schemas.values():
        for field in schema.get("properties", {}).values():
            field.pop("title", None)  # the name once more, in capitals
    return made | {"paths": {}, "components": {"schemas": dict(sorted(schemas.items()))}}


if __name__ == "__main__":
    print(json.dumps(document()))
