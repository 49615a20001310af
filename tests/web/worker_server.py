"""An arena for workers on a free loopback port: its store, its scheduler, and tokens of every kind."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from web_server import serving

from palus.arena.jobs.remote import HttpSource
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.hub.accounts import create_account, issue_token
from palus.hub.limits import HubLimits
from palus.hub.server.router import include_hub
from palus.store import Store, open_store
from palus.web.security import install_faults
from palus.web.worker_api import make_worker_router

SETTINGS = ArenaSettings(target_half_width=0.0)


@dataclass(frozen=True)
class Served:
    """An arena on loopback. tokens: by scope."""

    store: Store
    scheduler: Scheduler
    url: str
    tokens: dict[str, str]
    sources: list[HttpSource] = field(default_factory=list)

    def source(self, scope: str = "runner", worker: str = "pc", **about: object) -> HttpSource:
        self.sources.append(HttpSource(self.url, self.tokens[scope], worker, {"platform": "test", **about}))
        return self.sources[-1]

    def post(self, path: str, body: Any, token: str = "") -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token or self.tokens['runner']}", "Content-Type": "application/json"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(f"{self.url}/api/worker/{path}", data, headers)) as got:
                return got.status, json.loads(got.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    store = open_store(tmp_path / "arena")
    with store.write() as connection:
        create_account(connection, "lab")
        tokens = {scope: issue_token(connection, "lab", scope, (scope,)) for scope in ("runner", "trusted", "write")}
    model = tmp_path / "pool" / "ann" / "mine" / "SoccerTwos.onnx"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"not a model, but somebody's")
    pool = FolderPool(tmp_path / "pool", store.blobs)
    sweeps = [PeriodicSweep(sweep_house, 1e9), PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 1e9)]
    scheduler = Scheduler(store, SETTINGS, sweeps, seed=1)
    scheduler.tick()
    app = FastAPI()
    install_faults(app, tmp_path)
    app.include_router(make_worker_router(store, SETTINGS))
    include_hub(app, store, HubLimits())
    with serving(app) as address:
        served = Served(store, scheduler, address, tokens)
        yield served
        for source in served.sources:
            source.close()
    store.close()
