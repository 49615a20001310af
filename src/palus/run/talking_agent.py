"""A trained agent back in the game that talks (`palus.unity.news`): an executable of Unity, or an environment written
for its Python interface.

One game, whose agents play by their behaviors' policies, whatever their team; a behavior without a policy plays at
random. Episodes count as they end, so of agents whose episodes differ in length the quick ones count more often.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from palus.config import RunFile, load_run
from palus.envs.game import draw_actions
from palus.errors import CheckpointError, EnvError
from palus.export.policy_file import find_policies
from palus.nn.network import Network
from palus.rollout.rollout import Episode
from palus.run.agents import CONFIGURATION, AgentPlayer, Kind, Playable, open_agent
from palus.run.evaluate import Evaluation, Recorder
from palus.run.sf_checkpoint import is_sf_experiment
from palus.trust import Trust
from palus.types import F32, MASKS, GameSpec
from palus.unity.discovery import SEARCH, TalkingSource
from palus.unity.news import News, Steps, TalkingGame, behavior_of, game_of

NO_PICTURES = "this game shows itself in a window of its own, or not at all; without --video it is only measured"


def evaluate_talking(
    run: RunFile,
    spec: GameSpec,
    trust: Trust,
    players: Mapping[str, AgentPlayer],
    *,
    episodes: int,
    seed: int = 0,
    games: int = 1,
    max_frames: int | None = None,
    recorder: Recorder | None = None,
    progress: Callable[[Episode], None] | None = None,
) -> Evaluation:
    """As `palus.run.evaluate.evaluate`, in one game. run: as it is played here; spec: its behaviors, one agent for all
    of each. max_frames: decisions of agents.

    Raises EnvError when it cannot be started or asks for nobody's decision, what it raises itself, and CheckpointError
    where it is not the one that the policies know.
    """
    if recorder is not None:
        raise EnvError(NO_PICTURES)
    with tempfile.TemporaryDirectory() as logs:
        place = run.checkpoint_settings.model_copy(update={"results_dir": logs, "run_id": "enjoy"})
        env = run.env_settings.model_copy(update={"seed": seed, "num_envs": 1})
        run = run.model_copy(update={"checkpoint_settings": place, "env_settings": env})
        with closing(TalkingSource(run, trust)) as source:
            return _Play(source.games[0], spec, players, seed).until(episodes, max_frames, progress)


def open_player(folder: Path, kind: Kind, trust: Trust, env: str | None) -> Playable:
    """`palus.run.agents.open_agent`, and runs whose game talks. env: their executable, where the game is one."""
    configuration = folder / CONFIGURATION
    run = load_run(configuration) if configuration.is_file() and not is_sf_experiment(folder) else None
    if run is not None and run.talks:
        return open_talking(run, folder, kind, trust, env)
    if env is not None:
        raise CheckpointError(f"--env {env}: {folder} was not trained in a Unity executable; leave it out")
    return open_agent(folder, kind, trust)


def open_talking(run: RunFile, folder: Path, kind: Kind, trust: Trust, env: str | None) -> Playable:
    """The agent in the folder of a run whose game talks. env: the executable, as the command line names it.

    Nobody's file starts a program here: neither its path nor its arguments are taken from the run. Raises EnvError
    where none is named, CheckpointError where there is no agent.
    """
    path = run.env_settings.env_path
    if path is not None and env is None:
        raise EnvError(
            f"{folder}: trained in the Unity executable {path}; say that it may be started: palus enjoy {folder} "
            f"--env {path}"
        )
    if path is None and env is not None:
        raise EnvError(f"--env {env}: {folder} was trained in {run.palus.env_options.get('factory')}; leave it out")
    own = run.env_settings.model_copy(update={"env_path": env, "env_args": None, "base_port": 0})
    files = find_policies(folder, kind)
    policies = {
        name: Network.acting(file.spec, file.settings, file.arrays, trust=trust) for name, file in files.items()
    }
    env_id = Path(env).stem if env is not None else str(run.palus.env_options.get("factory")).rpartition(":")[2]
    spec = game_of(env_id, {name: file.spec for name, file in files.items()})
    steps = min(file.steps for file in files.values())
    play = partial(evaluate_talking, run.model_copy(update={"env_settings": own}), spec, trust)
    return Playable(env_id, spec, policies, steps, kind, play)


@dataclass
class _Waiting:
    """An agent in its episode. number: of the episode; state: its memory."""

    number: int
    state: F32
    length: int = 0
    reward: float = 0.0


class _Play:
    """One game as it is played."""

    def __init__(self, game: TalkingGame, spec: GameSpec, players: Mapping[str, AgentPlayer], seed: int) -> None:
        self.game, self.spec, self.players, self.seed = game, spec, players, seed
        self.waiting: dict[tuple[str, int], _Waiting] = {}
        self.begun, self.frames, self.episodes = 0, 0, list[Episode]()
        self.places = {agent.name: place for place, agent in enumerate(spec.agents)}
        self.random = np.random.default_rng(seed)

    def until(self, episodes: int, max_frames: int | None, progress: Callable[[Episode], None] | None) -> Evaluation:
        """Play until so many episodes are over, or so many decisions taken."""
        clock, idle = time.perf_counter(), 0
        self.game.reset({}, self.seed)
        while len(self.episodes) < episodes and (max_frames is None or self.frames < max_frames):
            news, before = self.game.receive(), self.frames
            for end in self._ended(news):
                if len(self.episodes) < episodes:
                    self.episodes.append(end)
                    if progress is not None:
                        progress(end)
            self.game.send({name: self._decide(name, steps) for name, steps in news.decisions.items()})
            idle = idle + 1 if self.frames == before else 0
            if idle > SEARCH:
                there = " and ".join(sorted({behavior_of(name)[0] for name in self.game.behaviors}))
                raise EnvError(
                    f"{self.spec.env_id}: {SEARCH} messages, and nobody of {' or '.join(self.players)} asked for a "
                    f"decision; it has {there or 'no behavior'}. Give the executable that the run was trained in"
                )
        return Evaluation(tuple(self.episodes), self.frames, time.perf_counter() - clock)

    def _ended(self, news: News) -> list[Episode]:
        """Pay everybody; returns whose episodes are over."""
        over = []
        for told, ends in ((news.ends, True), (news.decisions, False)):
            for name, steps in told.items():
                paid = steps.reward + steps.group_reward
                for agent, reward in zip(steps.agent.tolist(), paid.tolist(), strict=True):
                    own = self.waiting.get((name, agent))
                    if own is None:
                        continue
                    own.reward += reward
                    if ends:
                        del self.waiting[name, agent]
                        place = self.places[behavior_of(name)[0]]
                        over.append(Episode(0, place, 0, False, own.length, own.reward, 0.0))
        return over

    def _decide(self, name: str, steps: Steps) -> F32:
        """[n, A] for those of a behavior id that ask."""
        behavior, seen = behavior_of(name)[0], self.game.behaviors[name]
        if behavior not in self.players:
            return draw_actions(seen.actions, len(steps), steps.observations.get(MASKS), self.random)
        known = self.spec.behavior(behavior)
        if (known.observations, known.actions) != (seen.observations, seen.actions):
            raise CheckpointError(
                f"{behavior} was trained on other observations or actions than {self.spec.env_id} has; give the "
                "executable that it was trained in"
            )
        player = self.players[behavior]
        deciding = []
        for agent in steps.agent.tolist():
            if (name, agent) not in self.waiting:
                self.waiting[name, agent] = _Waiting(self.begun, np.zeros(player.state_size, np.float32))
                self.begun += 1
            deciding.append(self.waiting[name, agent])
        numbers, lengths = (np.array([getattr(own, key) for own in deciding]) for key in ("number", "length"))
        states = np.stack([own.state for own in deciding])
        actions, after = player(steps.observations, states, numbers, lengths)
        for own, state in zip(deciding, after, strict=True):
            own.length, own.state = own.length + 1, state.copy()
        self.frames += len(deciding)
        return actions
