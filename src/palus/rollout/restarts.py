"""How often a game that was lost may be replaced by another one: `env_settings`' limits."""

from __future__ import annotations

import time
from collections import defaultdict, deque

from palus.config.run_file import EDITOR, EnvSettings
from palus.errors import ClosedGameError, LostGameError, StoppedEarly, WorkerError


class Restarts:
    """Counts lost games; the limits are for each, as in ML-Agents."""

    def __init__(self, settings: EnvSettings) -> None:
        self._settings = settings
        self._counts, self._recent = defaultdict[int, int](int), defaultdict[int, deque[float]](deque)

    @property
    def count(self) -> int:
        """Of all so far."""
        return sum(self._counts.values())

    def take(self, game: int, error: LostGameError) -> None:
        """A game was lost. Raises WorkerError where no other one may take its place, and StoppedEarly where it is the
        Editor's, and was stopped there."""
        told, now, recent = self._settings, time.monotonic(), self._recent[game]
        if told.env_path == EDITOR and isinstance(error, ClosedGameError):
            raise StoppedEarly
        self._counts[game] += 1
        recent.append(now)
        while now - recent[0] > told.restarts_rate_limit_period_s:
            recent.popleft()
        for limit, count, key in (
            (told.max_lifetime_restarts, self._counts[game], "max_lifetime_restarts"),
            (told.restarts_rate_limit_n, len(recent), "restarts_rate_limit_n"),
        ):
            if 0 <= limit < count:
                reason = f"env_settings.{key} is {limit}; continue with --resume"
                raise WorkerError(f"game {game}: {error}. It is not started again: {reason}")
        if told.env_path == EDITOR:
            raise WorkerError(f"game {game}: {error}. Press Play in the Editor and continue with --resume")
