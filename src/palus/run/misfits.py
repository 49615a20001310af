"""What only the game can say about a valid run file: whether it has the behavior, takes the options, has the sides."""

from __future__ import annotations

from collections.abc import Iterator

from palus import envs
from palus.arena.players import load_player
from palus.config import AppoBehavior, Behavior, RunFile
from palus.config.faults import near_name
from palus.envs.game import GAMES, make_game
from palus.errors import ConfigError, EnvError, ModelError
from palus.rollout.affinity import plan_staff
from palus.trust import NOBODY, Trust


def misfits(run: RunFile, trust: Trust = NOBODY) -> list[str]:
    """Why a run that `palus.config.unsupported` has nothing against would die at its start, one sentence each.

    Makes one instance of the game, as the start does. Loads no torch. Raises TrustError when it is not trusted.
    """
    env_id = run.env_id
    if env_id is None or len(run.behaviors) != 1:
        return []
    name, behavior = next(iter(run.behaviors.items()))
    if isinstance(behavior, AppoBehavior):
        return list(_of_game(run, env_id, name, behavior, trust))
    return list(_of_matches(run, env_id, name, behavior, trust))


def _of_matches(run: RunFile, env_id: str, name: str, behavior: Behavior, trust: Trust) -> Iterator[str]:
    """Games that step thousands of matches in one call: ppo, poca."""
    if env_id in GAMES:
        yield f"behaviors.{name}.trainer_type {behavior.trainer_type}: {env_id} steps one game at a time; use appo"
        return
    try:
        env = envs.make(env_id, 1, trust)
    except EnvError as error:
        yield f"palus.env: {error}"
        return
    known = [spec.name for spec in env.spec.behaviors]
    if name not in known:
        near = near_name(name, known)
        hint = f"did you mean {near}?" if near else f"rename it to {' or '.join(known)}, or set palus.env to its game"
        yield f"behaviors.{name}: {env_id} has no behavior of that name; {hint}"
    if behavior.self_play is not None and len({agent.team for agent in env.spec.agents}) < 2:
        yield f"behaviors.{name}.self_play: {env_id} has one team; remove self_play"
    try:
        env.set_parameters(run.parameters_at(0.0))
    except EnvError as error:
        yield f"environment_parameters: {error}"
    if env_id == "SoccerTwos" and run.palus.baseline_interval:
        for baseline in run.palus.baselines:
            try:
                load_player(baseline, env.spec)
            except ModelError as error:
                yield f"palus.baselines: {error}"


def _of_game(run: RunFile, env_id: str, name: str, behavior: AppoBehavior, trust: Trust) -> Iterator[str]:
    """Games that step one at a time in worker processes: appo."""
    at, hyper = f"behaviors.{name}", behavior.hyperparameters
    if env_id in envs.BUILT_IN:
        yield f"{at}.trainer_type appo: {env_id} steps many matches in one call; use poca or ppo"
        return
    try:
        game = make_game(env_id, trust, **run.palus.env_options)
    except EnvError as error:
        yield f"palus.env: {error}"
        return
    spec = game.spec
    game.close()
    if behavior.self_play is not None and len(set(spec.teams or range(spec.num_agents))) < 2:
        yield f"{at}.self_play: {env_id} has one side only; remove self_play, or train in another game"
    if hyper.exploration_loss == "symmetric_kl" and not spec.actions.is_discrete:
        yield f"{at}.hyperparameters.exploration_loss symmetric_kl: {env_id} has continuous actions; use entropy"
    try:
        plan_staff(run.palus.sampling, hyper.buffer_size // behavior.time_horizon, spec.num_agents)
    except ConfigError as error:
        yield f"{at}: {error}"
