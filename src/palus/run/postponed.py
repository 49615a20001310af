"""Work that nobody waits for: summaries, ratings of the league, files of its past."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Postponed:
    """Put off to where the main thread would only wait for a device; done at once where there is none.

    It is done by whoever needs what it changes, at the latest before anything is saved.
    """

    def __init__(self, waits: bool = False) -> None:
        """waits: whether anything is put off."""
        self._waits, self._work = waits, deque[Callable[[], object]]()

    def __call__(self, work: Callable[[], object]) -> None:
        """Have this done. Raises what it raises, where it is done at once."""
        if self._waits:
            self._work.append(work)
        else:
            work()

    def do(self) -> None:
        """Do what was put off, in its order. Raises what that raises; what comes behind it is still to be done."""
        while self._work:
            self._work.popleft()()
