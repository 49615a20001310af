"""What only the game can say about a valid run file: whether it has the behavior, takes the options, has the sides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

from palus import envs
from palus.arena.models.players import load_player
from palus.config import AppoBehavior, RunFile
from palus.config.faults import near_name
from palus.envs.game import GAMES, make_game
from palus.envs.protocol import MultiAgentEnv
from palus.errors import ConfigError, EnvError, ModelError, TrustError
from palus.rollout.plan import plan_workers
from palus.trust import NOBODY, Trust
from palus.types import GameSpec

Made = TypeVar("Made")


def misfits(run: RunFile, trust: Trust = NOBODY) -> list[str]:
    """Why a run that `palus.config.unsupported` has nothing against would die at its start, one sentence each.

    Makes one instance of the game, as the start does. Loads no torch. Raises TrustError when it is not trusted.
    """
    env_id, options = run.env_id, run.palus.env_options
    if env_id is None or not run.behaviors:
        return []
    apart = [f"behaviors.{name}.trainer_type {b.trainer_type}" for name, b in run.behaviors.items()]
    if not run.is_sampled and env_id in GAMES:
        return [f"{at}: {env_id} steps one game at a time; use appo" for at in apart]
    if run.is_sampled and env_id in envs.BUILT_IN:
        return [f"{at}: {env_id} steps many matches in one call; use poca or ppo" for at in apart]
    try:
        if run.is_sampled:
            game, faults = _made(partial(make_game, env_id, trust), options)
            game.close()
            return [*faults, *_of_game(run, env_id, game.spec), *_of_sampling(run, game.spec)]
        env, faults = _made(partial(envs.make, env_id, 1, trust), options)
        return [*faults, *_of_game(run, env_id, env.spec), *_of_matches(run, env)]
    except EnvError as error:
        return [f"palus.env: {error}"]


def _made(make: Callable[..., Made], options: Mapping[str, Any]) -> tuple[Made, list[str]]:
    """The game and what it has against its options: without them it can still be asked about the rest."""
    try:
        return make(**options), []
    except EnvError as error:
        try:
            return make(), [f"palus.env_options: {error}"]
        except (EnvError, TrustError):
            raise error from None


def _of_game(run: RunFile, env_id: str, spec: GameSpec) -> Iterator[str]:
    """What any game can say: who plays in it, and how many sides it has."""
    known = [behavior.name for behavior in spec.behaviors]
    for name, behavior in run.behaviors.items():
        if name not in known and "" not in known:
            near = near_name(name, known)
            hint = (
                f"did you mean {near}?" if near else f"rename it to {' or '.join(known)}, or set palus.env to its game"
            )
            yield f"behaviors.{name}: {env_id} has no behavior of that name; {hint}"
        if behavior.self_play is not None and len(spec.sides) < 2:
            yield f"behaviors.{name}.self_play: {env_id} has one side only; remove self_play, or train in another game"
    missing = [name for name in known if name and name not in run.behaviors]
    if len(known) > 1 and missing and run.default_settings is None:
        yield f"behaviors: {env_id} has {' and '.join(known)}; add {' and '.join(missing)}, or default_settings"


def _of_matches(run: RunFile, env: MultiAgentEnv) -> Iterator[str]:
    try:
        env.set_parameters(run.parameters_at(0.0))
    except EnvError as error:
        yield f"environment_parameters: {error}"
    if run.env_id == "SoccerTwos" and run.palus.baseline_interval:
        for baseline in run.palus.baselines:
            try:
                load_player(baseline, env.spec)
            except ModelError as error:
                yield f"palus.baselines: {error}"


def _of_sampling(run: RunFile, spec: GameSpec) -> Iterator[str]:
    for name, behavior in run.behaviors.items():
        if not isinstance(behavior, AppoBehavior):
            continue
        at, hyper = f"behaviors.{name}", behavior.hyperparameters
        if hyper.exploration_loss == "symmetric_kl" and not all(b.actions.is_discrete for b in spec.behaviors):
            key = f"{at}.hyperparameters.exploration_loss symmetric_kl"
            yield f"{key}: {run.env_id} has continuous actions; use entropy"
        try:
            plan_workers(run.palus.sampling, hyper.buffer_size // behavior.time_horizon, spec.num_agents)
        except ConfigError as error:
            yield f"{at}: {error}"
