"""What tests of pages share, a browser and replays opened in it; and of answers, a small arena and one for workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import pytest
from browsing import Tab, browsing, tabs
from fastapi.testclient import TestClient
from small_arena import arena, client  # noqa: F401
from viewing import OpenPage
from worker_server import served  # noqa: F401

from palus.arena.referee.replay import encode_replay
from palus.envs.recording import Recording
from ready_tables import ready_tables, store, tables  # noqa: F401


@pytest.fixture(scope="session", autouse=True)
def local_clients() -> Iterator[None]:
    """Starlette's client calls every server `testserver`, a name that no arena answers to."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TestClient, "__init__", partialmethod(TestClient.__init__, base_url="http://localhost"))
        yield


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def visit(browser: Any) -> Iterator[Callable[[str], Tab]]:
    with tabs(browser) as open_tab:
        yield open_tab


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Any]:
    """Opens replays from disk; in the end the browser must have had nothing to complain about."""
    opened: list[OpenPage] = []

    def open_one(*recordings: Recording, link: str = "", title: str = "test", three_d: bool = False) -> OpenPage:
        data = encode_replay(recordings, title=title)
        opened.append(OpenPage(browser, tmp_path, data, link, title, three_d=three_d))
        opened[-1].wait_for("true")
        opened[-1].settle()
        return opened[-1]

    yield open_one
    for one in opened:
        one.page.close()
        assert one.complaints == []
