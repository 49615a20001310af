"""A trained agent back in the game that talks (`palus.unity.news`): an executable of Unity, or an environment written
for its Python interface.

One game, whose agents play by their behaviors' policies, whatever their team; a behavior without a policy plays at
random. Episodes count as they end, so of agents whose episodes differ in length the quick ones count more often.
"""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from palus.config import RunFile, load_run
from palus.errors import CheckpointError, EnvError
from palus.export.policy_file import find_policies
from palus.nn.network import Network
from palus.rollout.rollout import Episode
from palus.run.agents import CONFIGURATION, AgentPlayer, Kind, Playable, counted_of, open_agent
from palus.run.evaluate import Evaluation, Recorder
from palus.run.sf_checkpoint import is_sf_experiment
from palus.run.talking import exchanges
from palus.trust import Trust
from palus.types import BehaviorSpec, GameSpec
from palus.unity.discovery import SEARCH, TalkingSource
from palus.unity.news import TalkingGame, behavior_of, game_of

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
        place = {"results_dir": logs, "run_id": "enjoy"}
        run = run.changed(checkpoint_settings=place, env_settings={"seed": seed, "num_envs": 1})
        with closing(TalkingSource(run, trust)) as source:
            return _play(source.games[0], spec, players, seed, episodes, max_frames, progress)


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
            f"{folder}: trained in the Unity executable {path}; say that it may be started: "
            f"palus enjoy {shlex.quote(str(folder))} --env {shlex.quote(path)}"
        )
    if path is None and env is not None:
        raise EnvError(f"--env {env}: {folder} was trained in {run.palus.env_options.get('factory')}; leave it out")
    own = run.changed(env_settings={"env_path": env, "env_args": None, "base_port": 0})
    files = find_policies(folder, kind)
    policies = {
        name: Network.acting(file.spec, file.settings, file.arrays, trust=trust) for name, file in files.items()
    }
    env_id = Path(env).stem if env is not None else str(run.palus.env_options.get("factory")).rpartition(":")[2]
    spec = game_of(env_id, {name: file.spec for name, file in files.items()})
    steps = min(file.steps for file in files.values())
    play = partial(evaluate_talking, own, spec, trust)
    return Playable(env_id, spec, policies, steps, counted_of(run), kind, play)


def _play(
    game: TalkingGame,
    spec: GameSpec,
    players: Mapping[str, AgentPlayer],
    seed: int,
    episodes: int,
    max_frames: int | None,
    progress: Callable[[Episode], None] | None,
) -> Evaluation:
    """Until so many episodes are over, or so many decisions taken."""

    def decides(name: str, seen: BehaviorSpec) -> AgentPlayer | None:
        behavior = behavior_of(name)[0]
        if behavior not in players:
            return None
        known = spec.behavior(behavior)
        if (known.observations, known.actions) != (seen.observations, seen.actions):
            raise CheckpointError(
                f"{behavior} was trained on other observations or actions than {spec.env_id} has; give the executable "
                "that it was trained in"
            )
        return players[behavior]

    places = {agent.name: place for place, agent in enumerate(spec.agents)}
    clock, idle, frames, over = time.perf_counter(), 0, 0, list[Episode]()
    for ended, _, asking in exchanges(game, seed, decides):
        for own in ended[: episodes - len(over)]:
            end = Episode(0, places[behavior_of(own.name)[0]], 0, False, own.decisions, own.reward, 0.0)
            over.append(end)
            if progress is not None:
                progress(end)
        if len(over) == episodes or (max_frames is not None and frames >= max_frames):
            break
        asked = sum(n for name, n in asking.items() if behavior_of(name)[0] in players)
        frames, idle = frames + asked, 0 if asked else idle + 1
        if idle > SEARCH:
            there = " and ".join(sorted({behavior_of(name)[0] for name in game.behaviors}))
            raise EnvError(
                f"{spec.env_id}: {SEARCH} messages, and nobody of {' or '.join(players)} asked for a decision; it has "
                f"{there or 'no behavior'}. Give the executable that the run was trained in"
            )
    return Evaluation(tuple(over), frames, time.perf_counter() - clock)
