"""`check_game`: does a game keep the contract of `palus.envs.game`? Run it on your own games.

It plays random decisions; it judges the contract, not whether a game is interesting.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from palus.envs.check import check_env, fail
from palus.envs.game import Arrays, Game, by_behavior, joined, observation_arrays, whole
from palus.envs.protocol import MultiAgentEnv
from palus.types import F32, I32, I64, AnyArray, Bool, Step


def check_game(game: Game, *, decisions: int = 60, seed: int = 7, repeatable: bool = True) -> None:
    """Raise EnvError, naming the fault, unless `game` keeps the contract. Closes the game.

    decisions: random ones to play; let them cover a few episodes. repeatable: the same seed and actions must bring the
    same bits; False for engines that cannot promise it.
    """
    try:
        env = cast(MultiAgentEnv, _Bare(game))  # nobody saves it or changes its numbers
        check_env(env, decisions=decisions, seed=seed, repeatable=repeatable)
    finally:
        game.close()
        game.close()


class _Bare:
    """One game as an environment of one match that mends nothing on the way: what it leaves unwritten stays so.

    The next episode begins when somebody asks who is active.
    """

    num_matches = 1

    def __init__(self, game: Game) -> None:
        spec = self.spec = whole(game.spec)
        self._game, self._over = game, False
        expected = np.tile([value for _, value in spec.shaping], (spec.num_agents, 1))
        found = getattr(game, "shaping", None)
        kept = isinstance(found, np.ndarray) and found.dtype == np.float64 and np.array_equal(found, expected)
        if spec.shaping and not kept:
            raise fail(
                spec,
                f"the specification names {len(spec.shaping)} numbers of shaping; expected an attribute `shaping`, "
                f"float64 {expected.shape}, that holds them for each agent",
            )

    @property
    def active(self) -> Bool:
        if self._over:
            self.reset(self._seeds + 1)
        return self._game.active[None]

    def reset(self, seeds: I64) -> None:
        self._seeds, self._over = seeds, False
        self._game.reset(int(seeds[0]))

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        self._read(self._game.observe, behavior, rows[0], out)

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        cut = self._truncated[list(self.spec.agents_of(behavior))]
        if cut.any():
            self._read(self._game.observe_final, behavior, np.where(cut, rows[0], np.int32(-1)), out)

    def _read(self, observe: Callable[[Arrays], None], behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        arrays = observation_arrays(self.spec)
        own = by_behavior(self.spec, arrays)[behavior]
        for name, array in out.items():
            own[name][:] = array[rows]
        observe(arrays)
        for name, array in out.items():
            array[rows[rows >= 0]] = own[name][rows >= 0]

    def step(self, actions: Sequence[F32]) -> Step:
        spec = self.spec
        given = {b.name: own[0].copy() for b, own in zip(spec.behaviors, actions, strict=True)}
        step = self._game.step(joined(spec, given))
        if not all(np.array_equal(given[b.name], own[0]) for b, own in zip(spec.behaviors, actions, strict=True)):
            raise fail(spec, "step changed the actions it was given; copy them first")
        if len(step.points) not in ((0, len(spec.sides)) if step.over else (0,)):
            raise fail(
                spec,
                f"points {step.points}; expected, only when the game is over, one number for each of "
                f"{len(spec.sides)} sides",
            )
        strange = [agent for agent in step.stats if not 0 <= agent < spec.num_agents]
        if strange:
            raise fail(spec, f"stats of agent {strange[0]}; there are {spec.num_agents} agents")
        self._over, self._truncated = bool(step.over), step.truncated
        shared = np.zeros(spec.num_agents, np.float32) if step.group_reward is None else step.group_reward
        points = np.array([step.points or [np.nan] * len(spec.sides)], np.float32)
        ends = step.terminated[None], step.truncated[None], np.array([self._over])
        return Step(step.reward[None], shared[None], *ends, points, {0: step.stats})

    def get_state(self) -> None:
        """A game that steps alone need not be able to save itself."""
