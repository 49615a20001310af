"""The whole interface under schemathesis: whatever is sent to it, the server never fails."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from synthetic_arena import SyntheticArena
from web_server import serving

from palus.hub.accounts import create_account, issue_token
from palus.hub.limits import HubLimits
from palus.store import open_store
from palus.web.app import WebLimits, make_app

BUDGET_S = 12
"""For making requests; the coverage of boundary values comes first and fits in."""

pytest.importorskip("schemathesis", reason="schemathesis sends the requests; install palus[dev]")


def test_no_request_makes_the_server_fail(tmp_path: Path) -> None:
    store = open_store(tmp_path / "arena")
    arena = SyntheticArena(store)
    arena.add_entry("palus/ball-chaser", source="house", file="palus/ball-chaser")
    arena.add_entry("ada/one")
    arena.play("palus/ball-chaser", "ada/one", "win1", "draw", replay=b"no replay")
    arena.rate()
    arena.push_card("ada/one", "# A card")
    with store.write() as connection:
        create_account(connection, "fuzz")
        token = issue_token(connection, "fuzz", "test", ("read", "write"))
    many = 10**9
    app = make_app(
        store,
        hub_limits=HubLimits(requests_per_s=many, request_burst=many, listings_per_s=many, listing_burst=many),
        limits=WebLimits(
            requests_per_s=many,
            request_burst=many,
            matches_per_s=many,
            matches_burst=many,
            comparisons_per_s=many,
            comparisons_burst=many,
        ),
    )
    with serving(app) as address:
        command = [sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"]
        command += ["--checks", "not_a_server_error", "--max-time", str(BUDGET_S), "--generation-deterministic"]
        command += ["--header", f"Authorization: Bearer {token}", "--no-color", "--request-timeout", "30"]
        command += ["--exclude-path", "/api/arena/events"]  # its answer has no end
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    store.close()
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert "No operations" not in done.stdout and " passed" in done.stdout
