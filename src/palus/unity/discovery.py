"""The games of a run that talk: what they are like is found by starting one and looking."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from palus.config.run_file import RunFile
from palus.envs.game import draw_actions
from palus.errors import ConfigError, EnvError
from palus.trust import Trust
from palus.types import MASKS, GameSpec
from palus.unity import base_env
from palus.unity.analytics import Analytics
from palus.unity.news import TalkingGame, behavior_of, game_of

SEARCH = 200
"""Messages within which a behavior of the run file is looked for; later ones are met when they appear."""


def executables(run: RunFile, seed: int, tell: Callable[[str], object] = str) -> Callable[[int], TalkingGame]:
    """What starts the game of a worker: the run's executable, whose own log goes to the run's folder, or the Editor.
    tell: as `UnityEnv` takes it.

    Raises ConfigError where what speaks to Unity is not installed.
    """
    try:
        from palus.unity.environment import UnityEnv
    except ImportError as error:
        raise ConfigError(f"env_settings.env_path: {error}; pip install 'palus[unity]'") from error
    logs = Path(run.checkpoint_settings.results_dir) / run.checkpoint_settings.run_id / "run_logs"
    analytics = Analytics(run)  # told by one of the games
    return lambda worker: UnityEnv(
        run.env_settings, run.engine_settings, worker, seed=seed, log_folder=logs, show=run.debug,
        analytics=None if worker else analytics, tell=tell,
    )  # fmt: skip


class TalkingSource:
    """The games of a run file, as many as `env_settings.num_envs`. Close it, or they stay.

    run: with a seed. start: one more game, by its number. Raises EnvError when it cannot be started, ProtocolError for
    what it says.
    """

    def __init__(self, run: RunFile, trust: Trust, tell: Callable[[str], object] = str) -> None:
        """tell: as `UnityEnv` takes it. Raises ConfigError, EnvError and TrustError where there is nothing to start."""
        self._run, path, options = run, run.env_settings.env_path, run.palus.env_options
        self._seed = run.env_settings.seed
        self._name = Path(path).stem if path is not None else str(options.get("factory")).rpartition(":")[2]
        self.start: Callable[[int], TalkingGame] = (
            executables(run, self._seed, tell) if path is not None else base_env.make(options, trust, self._seed)
        )
        self._games: list[TalkingGame] = []

    @property
    def games(self) -> Sequence[TalkingGame]:
        """All of them, started at the latest now."""
        while len(self._games) < self._run.env_settings.num_envs:
            self._games.append(self.start(len(self._games)))
        return self._games

    @cached_property
    def spec(self) -> GameSpec:
        """The game's behaviors, and for each behavior id an agent that stands for all of it.

        Plays at random until every behavior of the run file has appeared, for some time: those that have not may do so
        later. Raises EnvError for a behavior that the run file has no settings for, and where there is none.
        """
        self._games = self._games or [self.start(0)]
        game, generator = self._games[0], np.random.default_rng(self._seed)
        wanted, behaviors = set(self._run.behaviors), game.behaviors
        settings = [*self._run.behaviors.values(), *filter(None, [self._run.default_settings])]
        rivals = any(own.self_play is not None for own in settings)  # then there is another side to look for
        game.reset({}, self._seed)
        for _ in range(SEARCH):
            news = game.receive()
            found = {behavior_of(name)[0] for name in behaviors}
            sides = {behavior_of(name)[1] for name in behaviors}
            if found and wanted <= found and (len(sides) > 1 or not rivals):
                break
            game.send({
                name: draw_actions(behaviors[name].actions, len(steps), steps.observations.get(MASKS), generator)
                for name, steps in news.decisions.items()
            })  # fmt: skip
        undeclared = found - wanted
        if not found or (undeclared and self._run.default_settings is None):
            missing = wanted - found
            late = f"; {', '.join(sorted(missing))} did not appear within {SEARCH} messages" if missing else ""
            path = self._run.env_settings.env_path
            place = f"palus.env_options.factory {self._name}" if path is None else f"env_path {path}"
            raise EnvError(
                f"{place} has {', '.join(sorted(found)) or 'no behavior'}{late}. Name in behaviors what it has, "
                "or give default_settings"
            )
        return game_of(self._name, dict(sorted(behaviors.items())))

    def close(self) -> None:
        """End all games."""
        for game in self._games:
            game.close()
