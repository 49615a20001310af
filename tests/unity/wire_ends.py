"""What tests of both ends of a connection share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def in_thread(call: Callable[[], Any]) -> Callable[[], Any]:
    """Starts it; the result waits for its end, and raises what it raised."""
    told: list[Any] = []

    def run() -> None:
        try:
            told.append((call(), None))
        except BaseException as error:
            told.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> Any:
        thread.join(30)
        found, error = told[0]
        if error is not None:
            raise error
        return found

    return result
