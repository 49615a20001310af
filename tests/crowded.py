"""How many are in a function at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Crowded:
    """In the place of a function, and slower than it. most: how many were in it at once."""

    def __init__(self, function: Callable[..., Any], pause_s: float) -> None:
        self._function, self._pause_s, self._lock = function, pause_s, threading.Lock()
        self._inside = self.most = 0

    def __call__(self, *what: Any, **more: Any) -> Any:
        with self._lock:
            self._inside += 1
            self.most = max(self.most, self._inside)
        time.sleep(self._pause_s)
        with self._lock:
            self._inside -= 1
        return self._function(*what, **more)
