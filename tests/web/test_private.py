"""What is private stays so on every route there is: neither names nor contents, nor that something is there."""

from __future__ import annotations

import hashlib
import itertools
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient
from starlette.routing import WebSocketRoute
from synthetic_arena import ENV, SyntheticArena

from palus.arena.ladder.discovery import Sweep
from palus.arena.ladder.entries import take_in
from palus.arena.ladder.settings import ArenaSettings
from palus.hub.accounts import create_account, find_account, issue_token
from palus.hub.commits import Message, Put, add_commit
from palus.hub.limits import HubLimits
from palus.hub.repos import create_repo, find_repo
from palus.hub.server import lfs
from palus.store import Store, open_store
from palus.web.app import WebLimits, make_app
from palus.web.exports import TABLES
from palus.web.worker_api import make_worker_router

WORDS = ("veiled-kite", "unseen-plan", "HUSHHUSH", "whispered")
"""The private repository's name, a file's, what its card says, the title of a commit."""
ENDLESS = "/api/arena/events"


@dataclass
class Place:
    """An arena with a public model that played and a private repository, which was refused while it was public."""

    store: Store
    client: TestClient
    routes: list[str]
    bob: str
    head: str
    blobs: list[str]

    def ask(self, path: str, token: str | None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return self.client.get(path, headers=headers)

    def paths(self, route: str, name: str) -> Iterator[str]:
        """Addresses of a route about ada's repository of that name."""
        values = {
            "env": [ENV],
            "match_id": [hashlib.sha256(b"match 1").hexdigest()[:16]],
            "file": list(TABLES),
            "sha256": self.blobs,
            "job_id": ["1"],
            "revision": ["main", self.head, self.head[:8], "refs/heads/main"],
            "path": ["README.md", "unseen-plan.txt", "", f"../{name}/README.md"],
        }
        values |= {word: ["ada"] for word in ("owner", "owner_a", "owner_b")}
        values |= {"name": [name], "name_a": [name], "name_b": ["one"]}
        words = re.findall(r"{(\w+)(?::\w+)?}", route)
        for chosen in itertools.product(*(values[word] for word in words)):
            path = route
            for word, value in zip(words, chosen, strict=True):
                path = re.sub(rf"{{{word}(:\w+)?}}", value, path, count=1)
            yield path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    store = open_store(tmp_path / "arena")
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    arena.add_entry("ada/veiled-kite", state="refused", code="HUSHHUSH", sentence="HUSHHUSH", remedy="HUSHHUSH")
    with store.write() as connection:
        take_in(connection, Sweep("hub", ENV, (), frozenset({"ada/one", "bob/two"})), {}, now_ms=1)
    arena.play("ada/one", "bob/two", "win1", "win2", replay=b"no replay")
    arena.rate()
    arena.push_card("ada/one", "# public")
    card = b"---\ntags: [HUSHHUSH, ML-Agents-SoccerTwos, reinforcement-learning]\n---\nHUSHHUSH"
    blobs = {"README.md": store.blobs.put(card)}
    arena.push_card("ada/veiled-kite", card.decode(), private=True)
    with store.write() as connection:
        repo = find_repo(connection, "model", "ada/veiled-kite")
        assert repo is not None
        arena_blob = blobs["README.md"].sha256
        changes = [Put("unseen-plan.txt", arena_blob), Put(f"{ENV}.onnx", arena_blob)]
        head = add_commit(connection, store.blobs, repo, changes, Message("whispered"), "ada", HubLimits())
        ada = find_account(connection, "ada")
        assert ada is not None
        create_repo(connection, "dataset", ada, "veiled-kite", True, HubLimits())
        if find_account(connection, "bob") is None:
            create_account(connection, "bob")
        bob = issue_token(connection, "bob", "test", ("read", "write", "runner"))
    many = 10**6
    app = make_app(
        store,
        limits=WebLimits(fresh_s=0.0, keep_s=0.0, requests_per_s=many, request_burst=many),
        hub_limits=HubLimits(requests_per_s=many, request_burst=many, address_burst=many),
        extra_routers=[make_worker_router(store, ArenaSettings())],
    )
    with TestClient(app, base_url="http://localhost") as client:
        yield Place(store, client, list(get_routes(app)), bob, head, [arena_blob])
    store.close()


def get_routes(app: object) -> Iterator[str]:
    """The address of every route that answers a GET."""
    for route in getattr(app, "routes", ()):
        if isinstance(route, APIRoute) or (hasattr(route, "methods") and hasattr(route, "path")):
            if "GET" in (route.methods or ()):
                yield route.path
        elif not isinstance(route, WebSocketRoute):
            yield from get_routes(getattr(route, "original_router", route))


@pytest.mark.parametrize("caller", ["anonymous", "bob"])
def test_no_route_tells_a_private_repository_from_none(place: Place, caller: str) -> None:
    token = place.bob if caller == "bob" else None
    tried = 0
    assert {"/api/models/{owner}/{name}/commits/{revision}", "/api/models/{owner}/{name}/refs", "/"} <= set(
        place.routes
    )
    for route in sorted(set(place.routes) - {ENDLESS}):
        for hidden, absent in zip(place.paths(route, "veiled-kite"), place.paths(route, "absent"), strict=True):
            answers = place.ask(hidden, token), place.ask(absent, token)
            tried += 1
            if hidden != absent:
                assert answers[0].status_code == answers[1].status_code, hidden
                assert told(answers[0], "veiled-kite") == told(answers[1], "absent"), hidden
            else:
                assert not [word for word in WORDS if word.encode() in answers[0].content], hidden
    assert tried > 100 and place.ask("/api/arena/status", token).status_code == 200
    for search in (
        "/api/models",
        "/api/datasets",
        "/api/models?full=true&author=ada&search=veil",
        "/api/models?filter=HUSHHUSH",
    ):
        assert "veiled-kite" not in place.ask(search, token).text


def told(answer: httpx.Response, name: str) -> tuple[dict[str, str], str]:
    """An answer without what the question said."""
    headers = {key: value.replace(name, "...") for key, value in answer.headers.items() if key != "content-length"}
    return headers, answer.text.replace(name, "...")


def test_the_room_and_the_exported_site_do_not_tell_either(place: Place, tmp_path: Path) -> None:
    said = []
    for name in ("veiled-kite", "absent"):
        with place.client.websocket_connect("ws://localhost/api/arena/room/live") as socket:
            socket.send_json({"blue": f"ada/{name}", "purple": "palus/random"})
            said.append(socket.receive_text().replace(name, "..."))
    assert said[0] == said[1] and '"unknown"' in said[0]
    out = tmp_path / "site"
    command = [sys.executable, "-m", "palus", "site", "export", str(out), "--data", str(place.store.folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    files = [path for path in out.rglob("*") if path.is_file() and path.suffix not in (".js", ".css")]
    assert len(files) > 5
    for path in files:
        assert not [word for word in ("ada/veiled-kite", *WORDS[1:]) if word.encode() in path.read_bytes()], path


def test_its_owner_reads_all_of_it(place: Place) -> None:
    with place.store.write() as connection:
        ada = issue_token(connection, "ada", "test", ("read",))
    commits = place.ask("/api/models/ada/veiled-kite/commits/main", ada).json()
    assert "whispered" in [commit["title"] for commit in commits]
    assert place.ask("/api/models/ada/veiled-kite/refs", ada).json()["branches"][0]["targetCommit"] == place.head
    assert place.ask("/ada/veiled-kite/resolve/main/README.md", ada).text.endswith("HUSHHUSH")


def test_an_address_for_an_upload_expires(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with place.store.write() as connection:
        ada = issue_token(connection, "ada", "test", ("read", "write"))
    data = b"large"
    batch = {"operation": "upload", "objects": [{"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}]}

    def put() -> httpx.Response:
        headers = {"Authorization": f"Bearer {ada}"}
        answer = place.client.post("/ada/one.git/info/lfs/objects/batch", json=batch, headers=headers)
        return place.client.put(answer.json()["objects"][0]["actions"]["upload"]["href"], content=data)

    monkeypatch.setattr(lfs, "VALID_S", -1)
    late = put()
    assert late.status_code == 403 and "no longer valid" in late.json()["error"]
    monkeypatch.setattr(lfs, "VALID_S", 60)
    assert put().status_code == 200


def test_wrong_tokens_are_metered_wherever_they_are_shown_and_right_ones_still_let_in(place: Place) -> None:
    paths = ("/api/whoami-v2", "/api/worker/models/" + "0" * 64)
    codes = [place.ask(paths[number % 2], f"palus_{number}").status_code for number in range(40)]
    assert set(codes[:30]) == {401} and codes[-2:] == [429, 429]
    assert [place.ask(path, place.bob).status_code for path in paths] == [200, 404]
