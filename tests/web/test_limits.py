"""What one client may send, and how often, on every route; and that the documented limits are those of the code."""

from __future__ import annotations

import hashlib
import importlib
import re
from dataclasses import fields
from pathlib import Path

import httpx
import pytest
from asking import PATIENCE_S, ada_with_a_repository, answer, arena, ask, head_of, say
from sqlalchemy import event

from palus.hub.limits import Buckets, HubLimits, client_of, show_bytes
from palus.store import Store
from palus.web.app import WebLimits
from palus.web.connections import ConnectionLimits
from palus.web.live import RoomLimits

DOCS = Path(__file__).parents[2] / "docs" / "arena.md"


def test_a_body_is_refused_by_its_announced_size_on_every_route(store: Store) -> None:
    """Nothing of the body is sent here: an answer that came proves that nobody waited for it."""
    with arena(store) as address:
        paths = ask(address, "/openapi.json").json()["paths"]
        taking = [(m.upper(), p) for p, methods in paths.items() for m, of in methods.items() if "requestBody" in of]
        assert ("POST", "/api/worker/hello") in taking and ("PUT", "/api/lfs/{oid}") in taking and len(taking) >= 12
        for method, path in [*taking, ("GET", "/"), ("DELETE", "/no/such/place")]:
            limit = HubLimits().lfs_bytes if "/lfs/{oid}" in path else 2 << 30 if "/commit/" in path else 16 << 20
            head = head_of(method, path.replace("{", "").replace("}", ""), f"Content-Length: {limit + 1}")
            assert answer(say(address, head))[0] == 413, (method, path)


def test_a_body_of_unknown_size_is_refused_as_soon_as_it_is_too_large(store: Store) -> None:
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    with arena(store) as address:
        for path, chunks in (("/api/worker/hello", 3), ("/api/validate-yaml", 33)):
            head = head_of("POST", path, "Content-Type: application/json", "Transfer-Encoding: chunked")
            status, fault = answer(say(address, head + chunk * chunks))
            assert (status, fault["code"]) == (413, "too_large")
            assert "is larger than" in fault["error"]


def test_a_body_that_trickles_in_is_given_up(store: Store) -> None:
    limits = HubLimits(body_grace_s=0.3, body_bytes_per_s=1 << 30)
    head = head_of("POST", "/api/validate-yaml", "Content-Type: application/json", "Content-Length: 1000")
    with arena(store, hub_limits=limits) as address:
        assert answer(say(address, head + b'{"content"'))[0] == 408
        assert ask(address).status_code == 200


def test_a_large_upload_still_streams(store: Store) -> None:
    token = ada_with_a_repository(store)
    data = bytes(range(256)) * (24 << 10)  # 6 MiB, above every limit but that of files
    oid = hashlib.sha256(data).hexdigest()
    batch = {"operation": "upload", "objects": [{"oid": oid, "size": len(data)}]}
    with (
        arena(store, hub_limits=HubLimits(body_grace_s=PATIENCE_S)) as (host, port),
        httpx.Client(base_url=f"http://{host}:{port}", timeout=PATIENCE_S, trust_env=False) as http,
    ):
        http.headers["Authorization"] = f"Bearer {token}"
        made = http.post("/ada/one.git/info/lfs/objects/batch", json=batch).json()["objects"][0]
        pieces = (data[start : start + 100_000] for start in range(0, len(data), 100_000))
        assert httpx.put(made["actions"]["upload"]["href"], content=pieces, timeout=PATIENCE_S).status_code == 200
        assert store.blobs.read(oid) == data


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/models?search=%00", 400),
        ("/api/models?author=a%00", 400),
        ("/api/models?filter=a,%00", 400),
        ("/api/models/e%00/a", 404),
        ("/api/arena/models/ada/%00", 404),
        ("/ada/one/resolve/main/%00", 404),
        ("/ada/o%00ne", 404),
    ],
)
def test_a_nul_in_an_address_reaches_no_database(store: Store, path: str, status: int) -> None:
    ada_with_a_repository(store)
    asked: list[str] = []
    with arena(store) as address:
        ask(address)
        event.listen(store.engine, "before_cursor_execute", lambda *what: asked.append(what[2]))
        refused = ask(address, path)
        assert not asked
        assert refused.status_code == status and "NUL (%00)" in refused.json()["error"]
        assert "NUL" not in ask(address, path.replace("%00", "%2500")).text, "a percent sign is none"


def test_buckets_take_little_memory_whoever_asks() -> None:
    buckets = Buckets(per_s=0.001, burst=1)
    for number in range(2 * Buckets.MAX_KEYS):
        buckets.take(str(number), now_s=0.0)
    assert len(buckets._levels) == Buckets.MAX_KEYS
    assert buckets.take(str(2 * Buckets.MAX_KEYS - 1), now_s=0.0) > 0, "the last ones are remembered"


@pytest.mark.parametrize(
    ("host", "client"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("testclient", "testclient"),
    ],
)
def test_a_network_counts_as_one_client(host: str, client: str) -> None:
    assert client_of({"client": (host, 1)}) == client


def test_matches_and_their_replays_are_metered_on_their_own(store: Store) -> None:
    with arena(store, limits=WebLimits(matches_per_s=0.001, matches_burst=2)) as address:
        paths = [f"/api/arena/matches/ab{more}" for more in ("", "/page.html", "/replay")]
        assert [ask(address, path).status_code for path in paths] == [404, 404, 429]
        assert ask(address).status_code == 200


def test_comparisons_are_metered_on_their_own(store: Store) -> None:
    with arena(store, limits=WebLimits(comparisons_per_s=0.001, comparisons_burst=2)) as address:
        paths = [f"/api/arena/compare/SoccerTwos/ada/one/bob/m{number}" for number in range(3)]
        assert [ask(address, path).status_code for path in paths] == [404, 404, 429]
        assert ask(address).status_code == 200


CLASSES = {of.__name__: of for of in (ConnectionLimits, HubLimits, WebLimits, RoomLimits)}
NOT_LIMITS = {"fresh_s", "poll_s", "keep_s", "celebration_s", "duration_ticks"}


def test_the_table_of_limits_is_that_of_the_code() -> None:
    rows = re.findall(r"^\| (.+?) \| (.+?) \| `([\w.]+)` \|$", DOCS.read_text(), re.MULTILINE)
    wanted = {f"{name}.{field.name}" for name, of in CLASSES.items() for field in fields(of)}
    assert {name for _, _, name in rows if name.split(".")[0] in CLASSES} == {
        name for name in wanted if name.split(".")[1] not in NOT_LIMITS
    }
    assert {name: value for _, value, name in rows} == {name: shown(name) for _, _, name in rows}


def shown(name: str) -> str:
    """A limit as people read it."""
    where, _, field = name.rpartition(".")
    value = getattr(CLASSES[where]() if where in CLASSES else importlib.import_module(where), field)
    unit = field.lower()
    if "bytes" in unit:
        return show_bytes(value)
    return f"{value:,.10g} s" if unit.endswith("_s") and not unit.endswith("per_s") else f"{value:,.10g}"
