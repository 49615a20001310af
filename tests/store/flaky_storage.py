"""A storage behind a URL that a test takes away: fsspec's memory, whose every call fails meanwhile.

from flaky_storage import flaky  # noqa: F401

def test_it(flaky: Flaky) -> None:
    depot = Depot(flaky.place)
    with flaky.gone():
        ...
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest

PATIENCE_S = 10.0


class Flaky:
    """place: its URL."""

    def __init__(self, place: str) -> None:
        self.place, self.away, self.waiting = place, False, 0
        self._back = threading.Event()
        self._back.set()

    @contextmanager
    def gone(self) -> Iterator[None]:
        """It refuses connections within the block."""
        self.away = True
        try:
            yield
        finally:
            self.away = False

    @contextmanager
    def silent(self) -> Iterator[None]:
        """It answers nothing within the block, or for PATIENCE_S; `waiting` calls hang in it."""
        self._back.clear()
        try:
            yield
        finally:
            self._back.set()

    def answer(self) -> None:
        """Raises ConnectionError."""
        if self.away:
            raise ConnectionError("connection refused")
        if not self._back.is_set():
            self.waiting += 1
            self._back.wait(PATIENCE_S)
            self.waiting -= 1
            raise ConnectionError("no answer")


@pytest.fixture
def flaky(tmp_path: Path) -> Flaky:
    """A storage of the test's own."""
    fsspec = pytest.importorskip("fsspec", reason="URLs are opened by fsspec, of palus[cluster]")
    from fsspec.implementations.memory import MemoryFileSystem

    own = Flaky(f"flaky://{tmp_path.name}")

    class Files(MemoryFileSystem):
        protocol = "flaky"
        cachable = False
        store: ClassVar[dict[str, Any]] = {}
        pseudo_dirs: ClassVar[list[str]] = [""]

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return str(super()._strip_protocol(path.replace("flaky://", "memory://")))

    def failing(name: str) -> Any:
        def call(self: Files, *args: Any, **more: Any) -> Any:
            own.answer()
            return getattr(super(Files, self), name)(*args, **more)

        return call

    for name in ("find", "pipe_file", "cat_file", "exists", "isfile", "get_file", "put_file", "rm_file"):
        setattr(Files, name, failing(name))
    fsspec.register_implementation("flaky", Files, clobber=True)
    return own
