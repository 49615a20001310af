"""A Unity game as a source of games: what it is like is found by starting it and looking."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from palus.config.run_file import EDITOR, RunFile
from palus.envs.game import draw_actions
from palus.errors import EnvError
from palus.types import MASKS, AgentSpec, GameSpec
from palus.unity.environment import UnityEnv, behavior_of

SEARCH = 200
"""Messages within which every behavior of the run file has to appear."""


class UnitySource:
    """The games of a run file, as many as `env_settings.num_envs`. Close it, or they stay."""

    def __init__(self, run: RunFile) -> None:
        """The executables' own logs go to the run's folder."""
        settings, seed = run.checkpoint_settings, run.env_settings.seed
        self._run, self._seed = run, seed if seed >= 0 else secrets.randbelow(10_000)
        self._logs = Path(settings.results_dir) / settings.run_id / "run_logs"
        self._games: list[UnityEnv] = []

    def start(self, worker: int) -> UnityEnv:
        """One more game. Raises EnvError when it cannot be started, ProtocolError for what it says."""
        run = self._run
        return UnityEnv(
            run.env_settings, run.engine_settings, worker, seed=self._seed, log_folder=self._logs, show=run.debug
        )

    @property
    def games(self) -> Sequence[UnityEnv]:
        """All of them, started at the latest now."""
        while len(self._games) < self._run.env_settings.num_envs:
            self._games.append(self.start(len(self._games)))
        return self._games

    @cached_property
    def spec(self) -> GameSpec:
        """The game's behaviors, and for each behavior id an agent that stands for all of it.

        Plays at random until every behavior of the run file has appeared. Raises EnvError when one does not.
        """
        self._games = self._games or [self.start(0)]
        game, generator = self._games[0], np.random.default_rng(self._seed)
        wanted, behaviors = set(self._run.behaviors), game.discovery.behaviors
        game.reset({}, self._seed)
        for _ in range(SEARCH):
            news = game.receive()
            found = {behavior_of(name)[0] for name in behaviors}
            if found and wanted <= found:
                break
            game.send({
                name: draw_actions(behaviors[name].actions, len(steps), steps.observations.get(MASKS), generator)
                for name, steps in news.decisions.items()
            })  # fmt: skip
        else:
            missing = ", ".join(sorted(wanted - found)) or "any behavior"
            raise EnvError(
                f"env_path {self._run.env_settings.env_path}: {missing} did not appear within {SEARCH} messages; "
                f"found {', '.join(sorted(found)) or 'none'}. Name these in the run file"
            )
        undeclared = found - wanted
        if undeclared and self._run.default_settings is None:
            raise EnvError(
                f"env_path {self._run.env_settings.env_path} has {', '.join(sorted(undeclared))} too; add it to "
                "behaviors, or give default_settings"
            )
        agents = []
        for name in sorted(behaviors):
            behavior, team = behavior_of(name)
            agents.append(AgentSpec(name, team, team, behavior))
        kinds = {behavior_of(name)[0]: spec for name, spec in sorted(behaviors.items())}
        name = Path(self._run.env_settings.env_path or EDITOR).stem
        return GameSpec(name, tuple(kinds.values()), tuple(agents))

    def close(self) -> None:
        """End all games."""
        for game in self._games:
            game.close()
