"""A lock for what many threads use and one has alone at times: a device, while a graph of work on it is captured."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType


class SharedLock:
    """`with lock.reading()`: beside other readers. `with lock`: alone, and before readers that come later."""

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._readers = self._waiting = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold it together with others that read."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    def __enter__(self) -> None:
        self._changed.acquire()
        self._waiting += 1
        try:
            self._changed.wait_for(lambda: not self._readers)
        except BaseException:
            self._changed.release()
            raise
        finally:
            self._waiting -= 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._changed.notify_all()
        self._changed.release()
