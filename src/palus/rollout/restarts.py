"""How often a game that was lost may be replaced by another one: `env_settings`' limits."""

from __future__ import annotations

import time
from collections import deque

from palus.config.run_file import EDITOR, EnvSettings
from palus.errors import LostGameError, WorkerError


class Restarts:
    """Counts lost games. count: of all so far."""

    def __init__(self, settings: EnvSettings) -> None:
        self._settings, self._recent = settings, deque[float]()
        self.count = 0

    def take(self, game: int, error: LostGameError) -> None:
        """A game was lost. Raises WorkerError where no other one may take its place."""
        told, now = self._settings, time.monotonic()
        self.count += 1
        self._recent.append(now)
        while now - self._recent[0] > told.restarts_rate_limit_period_s:
            self._recent.popleft()
        for limit, count, key in (
            (told.max_lifetime_restarts, self.count, "max_lifetime_restarts"),
            (told.restarts_rate_limit_n, len(self._recent), "restarts_rate_limit_n"),
        ):
            if 0 <= limit < count:
                reason = f"env_settings.{key} is {limit}; continue with --resume"
                raise WorkerError(f"game {game}: {error}. It is not started again: {reason}")
        if told.env_path == EDITOR:
            raise WorkerError(f"game {game}: {error}. Press Play in the Editor and continue with --resume")
