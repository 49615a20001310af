"""From a run file to the collector that plays it: where games are stepped, how many, how long a rollout is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from palus.config import RunFile
from palus.config.trainer import AppoBehavior, SacBehavior
from palus.envs import GameSource
from palus.envs.arena_game import BotAct
from palus.envs.protocol import room_for
from palus.errors import ConfigError
from palus.nn.distributions import Draw, likeliest, sample_side_by_side
from palus.nn.place import CPU, Placement
from palus.rollout.acting import Policy
from palus.rollout.collector import InProcessCollector
from palus.rollout.exchanging import ExchangeCollector, Meet
from palus.rollout.learner_stretches import Demand
from palus.rollout.plan import OUT_OF_SIGHT, Share, in_workers, plan_matches, rollout_steps, worker_games
from palus.rollout.rollout import Cast, Collector
from palus.rollout.workers import WorkerCollector
from palus.spinning import spinners, take_threads
from palus.trust import Trust
from palus.types import GameSpec
from palus.unity.discovery import TalkingSource


def make_source(run: RunFile, trust: Trust, tell: Callable[[str], object] = str) -> GameSource | TalkingSource:
    """Where a run's games come from. tell: as `UnityEnv` takes it.

    Raises EnvError, TrustError, and ConfigError where something is not installed.
    """
    if run.talks:
        return TalkingSource(run, trust, tell)
    assert run.env_id is not None, "checked by palus.config.unsupported"
    return GameSource(run.env_id, run.palus.env_options, trust)


def draws_of(run: RunFile, spec: GameSpec) -> dict[str, Draw]:
    """Behavior in the game -> how actions are drawn, where they are not sampled."""
    certain = {name for name, behavior in run.behaviors.items() if behavior.network_settings.deterministic}
    return {b.name: likeliest for b in spec.behaviors if b.name in certain or (certain and not b.name)}


def demands_of(
    run: RunFile, learners: Mapping[int, tuple[str, Policy]], rows_per_match: Mapping[int, int]
) -> dict[int, Demand]:
    """What learners ask of rollouts of talking games, by policy id. Arguments as of `make_collector`."""
    found = {}
    for policy, (name, _) in learners.items():
        behavior = run.behaviors[name]
        rows = behavior.rollout_rows(rows_per_match[policy] * run.env_settings.num_envs)
        whole = isinstance(behavior, SacBehavior) and behavior.network_settings.memory is not None
        horizon = min(behavior.time_horizon, behavior.sequence_length) if whole else behavior.time_horizon
        found[policy] = Demand(rows, horizon, behavior.learns_from_groups, whole)
    return found


def plays_beside(run: RunFile, source: GameSource | TalkingSource) -> bool:
    """Whether the next rollout is played while the learners learn from the one before (`palus.sampling.asynchronous`):
    by itself where worker processes step the games, and every learner weighs what older weights did."""
    sampling = run.palus.sampling
    if not isinstance(source, GameSource) or not in_workers(sampling, source):
        return False
    if sampling.asynchronous == "auto":
        return sampling.workers != 0 and all(isinstance(b, AppoBehavior) for b in run.behaviors.values())
    return sampling.asynchronous


def make_collector(
    run: RunFile,
    source: GameSource | TalkingSource,
    spec: GameSpec,
    learners: Mapping[int, tuple[str, Policy]],
    rows_per_match: Mapping[int, int],
    cast: Cast,
    seed: int,
    threads: int,
    load: Callable[[int], Policy],
    members: Mapping[int, tuple[str, Policy]],
    scripts: Mapping[int, BotAct],
    meet: Meet,
    share: Share = Share(),  # noqa: B008  # frozen
    place: Placement = CPU,
    compact: bool = False,
) -> Collector:
    """The collector that `palus.sampling.collector` asks for, with rollouts as long as the first learner wants.

    spec: of the game, as far as it is known. learners: policy id -> behavior in the game, policy. rows_per_match: the
    most agents of a match that learn for each. load: the policy of a frozen id; members: those that are there from the
    start. scripts: by policy id, players that read the game. meet: as `ExchangeCollector` takes it. share: which of
    the run's matches are played here; a talking game's are played by one rank alone. place: where all policies act;
    compact: they take rays in compact form.
    Raises ConfigError where games cannot be divided over workers, or are out of a script's sight there, EnvError.
    """
    sampling, rows = run.palus.sampling, next(iter(rows_per_match.values()))
    draws = draws_of(run, spec)
    if not isinstance(source, GameSource):
        assert share.size == 1, "checked by palus.run.alike"
        if scripts:
            raise ConfigError(OUT_OF_SIGHT)
        return ExchangeCollector(
            source.games, source.start, spec, run.env_settings, demands_of(run, learners, rows_per_match),
            seed=seed, learners=learners, cast=cast, load=load, members=members, draws=draws, meet=meet,
        )  # fmt: skip
    if not in_workers(sampling, source):
        matches, steps = plan_matches(run, rows)
        spins = 0 if place.compiled else spinners(threads)
        if spins:  # a game may take fewer
            take_threads(spins)
            draws = {behavior.name: sample_side_by_side for behavior in spec.behaviors} | draws
        env = source.batch(share.of(matches, "palus.num_matches"), threads, spinning=spins > 0)
        room = partial(room_for, rays=compact, zeros=place.zeros)
        return InProcessCollector(
            env, learners, cast, steps, seed, rows_per_match, load, threads, members, scripts, draws, share, room, place
        )
    if scripts:
        raise ConfigError(OUT_OF_SIGHT)
    games = worker_games(run, rows)
    horizon = min(next(iter(run.behaviors.values())).time_horizon, rollout_steps(run, games * rows))
    rows = share.of(games, "buffer_size / time_horizon") * spec.num_agents
    return WorkerCollector(
        source.single, spec, sampling,
        rows=rows, horizon=horizon, seed=seed,
        learners=learners, cast=cast, load=load, members=members, draws=draws, share=share,
        threads=threads if place.compiled else 1,  # a device takes one batch after the other
        beside=plays_beside(run, source), place=place,
    )  # fmt: skip
