"""Threads for calls that may never come back: a program that ends does not wait for them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def after(time_s: float, call: Callable[[], object]) -> Iterator[None]:
    """Call it from another thread if what stands in the context takes longer: what ends that."""
    timer = threading.Timer(time_s, call)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class DaemonThreads:
    """As many threads as calls run at once. Whoever waits for a call does so with a limit, and may give it up: its
    thread is lost then, and the next call finds another. Unlike a ThreadPoolExecutor's they are nobody's to join."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls = SimpleQueue[Callable[[], None] | None]()
        self._idle = threading.Semaphore(0)

    def submit(self, call: Callable[..., T], *arguments: object) -> Future[T]:
        """Begin a call in a thread of its own."""
        answer = Future[T]()

        def answering() -> None:
            try:
                result = call(*arguments)
            except BaseException as error:
                self._idle.release()
                answer.set_exception(error)
            else:
                self._idle.release()
                answer.set_result(result)

        self._calls.put(answering)
        if not self._idle.acquire(blocking=False):
            threading.Thread(target=self._serve, name=self._name, daemon=True).start()
        return answer

    def close(self) -> None:
        """Let go the threads that wait for a call."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            call()
        self._calls.put(None)  # for the next
