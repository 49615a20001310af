"""Games small enough to be solved in seconds; learning tests train on them, newcomers read them first.

`RescueToy` asks for credit after leaving, `DuelToy` for self-play, `PenaltyToy` for two behaviors, `MenuToy` for masks.
Plain numpy; random numbers are a pure function of (seed of the slot, number of the draw), so a slot never depends on
its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from palus.errors import EnvError
from palus.types import (
    F32,
    I32,
    I64,
    MASKS,
    ActionSpec,
    AgentSpec,
    AnyArray,
    BehaviorSpec,
    Bool,
    Discrete,
    GameSpec,
    ObservationSpec,
    Step,
)

CUES = 3
View = dict[str, AnyArray]
"""What the agents of one behavior see: name -> [N, P_b, ...]."""


def draw(seeds: I64, counters: I64, choices: int) -> I64:
    """Uniform integers in [0, choices), one per seed: splitmix64's output function over seed and draw number."""
    with np.errstate(over="ignore"):
        value = _mix(seeds.astype(np.uint64)) + counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (_mix(value) >> np.uint64(33)).astype(np.int64) % choices


def _mix(value: np.typing.NDArray[np.uint64]) -> np.typing.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _one_hot(indices: I64, size: int) -> F32:
    hot: F32 = np.eye(size, dtype=np.float32)[indices]
    return hot


class ArrayGame:
    """What small games share that keep all they remember in arrays, whose names stand in `_arrays`."""

    _arrays: tuple[str, ...] = ("_seeds", "_drawn", "active")

    def __init__(self, spec: GameSpec, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        self.spec, self.num_matches = spec, num_matches
        self.active: Bool = np.ones((num_matches, spec.num_agents), np.bool_)
        self._seeds: I64 = np.zeros(num_matches, np.int64)
        self._drawn: I64 = np.zeros(num_matches, np.int64)

    def reset(self, seeds: I64) -> None:
        """Start N new matches from seeds [N]."""
        for name in self._arrays:
            getattr(self, name)[:] = 0
        self._seeds[:], self.active[:] = seeds, True

    def _view(self, behavior: str) -> View:
        """What the agents of a behavior see."""
        raise NotImplementedError

    def observe(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Write what the active agents see."""
        names = [b.name for b in self.spec.behaviors]
        if behavior not in names:
            raise EnvError(f"{self.spec.env_id} has no behavior {behavior!r}; there is {' and '.join(names)}")
        view, chosen = self._view(behavior), self.active[:, self.spec.agents_of(behavior)] & (rows >= 0)
        for name, array in out.items():
            array[rows[chosen]] = view[name][chosen]

    def observe_final(self, behavior: str, rows: I32, out: Mapping[str, AnyArray]) -> None:
        """Nobody is ever truncated."""

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """There are none. Raises EnvError for any."""
        if parameters:
            raise EnvError(f"{self.spec.env_id} has no environment parameters; found {', '.join(parameters)}")

    def get_state(self) -> dict[str, object]:
        """Copies of all arrays that decide how the matches go on."""
        return {name: getattr(self, name).copy() for name in self._arrays}

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned."""
        for name in self._arrays:
            getattr(self, name)[:] = state[name]

    def close(self) -> None:
        """There is nothing to free."""


class Toy(ArrayGame):
    """What the toys share: matches of `ROUNDS` decisions that all agents end together unless a toy says otherwise.

    A toy brings `_view` and `_pay`, and adds to `_arrays` the names of what it has to remember.
    """

    ROUNDS = 4

    @property
    def _round(self) -> I64:
        return self._drawn % self.ROUNDS  # `_drawn` counts rounds since `reset`

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        """Fill what a decision brings; `match_over` and `terminated` are filled already."""
        raise NotImplementedError

    def step(self, actions: Sequence[F32]) -> Step:
        """Play one decision; actions: per behavior [N, P_b, A]."""
        shape, over = self.active.shape, self._round == self.ROUNDS - 1
        flags = np.repeat(over[:, None], shape[1], axis=1)
        points = np.full((self.num_matches, len(self.spec.sides)), np.nan, np.float32)
        nothing = np.zeros((2, *shape), np.float32)
        step = Step(nothing[0], nothing[1], flags, np.zeros(shape, np.bool_), over, points, {})
        self._pay(actions, step)
        self._drawn += 1
        return step


class RescueToy(Toy):
    """One group of two. The pilot sees a cue, answers it once and leaves; its partner lives on, then the group is paid.

    The group reward 1 comes `ROUNDS` decisions after the start, to the partner alone, if the pilot's answer was the
    cue. The partner's own actions change nothing. A learner that stops the pilot's return where the pilot leaves
    learns nothing; one that values what its group earns later (posthumous credit) solves the game.

    Observation, 6 floats: is pilot, is partner, cue (one-hot, zeros for the partner), share of the rounds played.
    Actions: one branch of 3.
    """

    _arrays = (*Toy._arrays, "_right")

    def __init__(self, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        behavior = BehaviorSpec.of_vectors("RescueToy", (6,), (CUES,))
        agents = tuple(AgentSpec(name, 0, 0, "RescueToy") for name in ("pilot", "partner"))
        super().__init__(GameSpec("RescueToy", (behavior,), agents, max_decisions=self.ROUNDS), num_matches)
        self._right: Bool = np.zeros(num_matches, np.bool_)

    def _cue(self) -> I64:
        return draw(self._seeds, self._drawn // self.ROUNDS, CUES)

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        first = self._round == 0
        self._right[:] = np.where(first, actions[0][:, 0, 0] == self._cue(), self._right)
        step.terminated[:, 0] = first
        step.group_reward[:, 1] = step.match_over & self._right
        self.active[:, 0] = step.match_over

    def _view(self, behavior: str) -> View:
        view = np.zeros((self.num_matches, 2, 6), np.float32)
        view[:, 0, 0] = view[:, 1, 1] = 1
        view[:, 0, 2:5] = _one_hot(self._cue(), CUES)
        view[:, :, 5] = (self._round / self.ROUNDS)[:, None]
        return {"obs_0": view}


class DuelToy(Toy):
    """Two teams of one. Each round both see a cue of their own; who matched more cues after `ROUNDS` rounds wins.

    Group reward at the end: +1 winner, -1 loser, 0 each for a tie. Observation, 4 floats: cue (one-hot), share of the
    rounds played. Actions: one branch of 3.
    """

    _arrays = (*Toy._arrays, "_hits")

    def __init__(self, num_matches: int, *, cooperative: bool = False) -> None:
        """num_matches: N, at least 1. cooperative: both are one group and are paid their share of cues matched."""
        right = 0 if cooperative else 1
        behavior = BehaviorSpec.of_vectors("DuelToy", (CUES + 1,), (CUES,))
        agents = (AgentSpec("left", 0, 0, "DuelToy"), AgentSpec("right", right, right, "DuelToy"))
        super().__init__(GameSpec("DuelToy", (behavior,), agents, max_decisions=self.ROUNDS), num_matches)
        self._cooperative = cooperative
        self._hits: I64 = np.zeros((num_matches, 2), np.int64)

    def _cues(self) -> I64:
        """[N, 2]: the cue of each agent in this round."""
        return np.stack([draw(self._seeds, 2 * self._drawn + side, CUES) for side in (0, 1)], axis=1)

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        self._hits += actions[0][:, :, 0] == self._cues()
        over = step.match_over
        if self._cooperative:
            step.group_reward[:] = (self._hits.sum(1) / (2 * self.ROUNDS) * over)[:, None]
        else:
            lead = np.sign(self._hits[:, 0] - self._hits[:, 1]) * over
            step.group_reward[:, 0], step.group_reward[:, 1] = lead, -lead
            step.points[:, 0], step.points[:, 1] = (1 + lead) / 2, (1 - lead) / 2
        self._hits[over] = 0

    def _view(self, behavior: str) -> View:
        share = np.broadcast_to((self._round / self.ROUNDS)[:, None, None], (self.num_matches, 2, 1))
        return {"obs_0": np.concatenate([_one_hot(self._cues(), CUES), share], 2).astype(np.float32)}


class PenaltyToy(Toy):
    """A striker against a keeper, two behaviors that see and do different things. Each round both get a cue of their
    own and are paid 1 for answering it; who answered more of them after `ROUNDS` rounds wins.

    Striker: `obs_0` [4], cue of three (one-hot) and share of the rounds played; answers with the cue, one branch of 3.
    Keeper: `obs_0` [2], cue of two (one-hot), and `obs_1` [1], the share; answers with the cue on a branch of 2 and
    with the other on a second branch of 2. Both tell `hits`, the share of cues that they answered.
    """

    CHOICES = (CUES, 2)
    _arrays = (*Toy._arrays, "_hits")

    def __init__(self, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        behaviors = (
            BehaviorSpec.of_vectors("Striker", (CUES + 1,), (CUES,)),
            BehaviorSpec.of_vectors("Keeper", (2, 1), (2, 2)),
        )
        agents = (AgentSpec("striker", 0, 0, "Striker"), AgentSpec("keeper", 1, 1, "Keeper"))
        super().__init__(GameSpec("PenaltyToy", behaviors, agents, max_decisions=self.ROUNDS), num_matches)
        self._hits: I64 = np.zeros((num_matches, 2), np.int64)

    def _cue(self, side: int) -> I64:
        return draw(self._seeds, 2 * self._drawn + side, self.CHOICES[side])

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        striker, keeper = (played[:, 0].astype(np.int64) for played in actions)
        step.reward[:, 0] = striker[:, 0] == self._cue(0)
        step.reward[:, 1] = (keeper[:, 0] == self._cue(1)) & (keeper[:, 1] == 1 - self._cue(1))
        self._hits += step.reward.astype(np.int64)
        over = step.match_over
        step.points[:, 0] = (1 + np.sign(self._hits[:, 0] - self._hits[:, 1])) / 2
        step.points[:, 1] = 1 - step.points[:, 0]
        told: Any = step.stats
        for n in np.flatnonzero(over).tolist():
            told[n] = {side: {"hits": self._hits[n, side] / self.ROUNDS} for side in (0, 1)}
        self._hits[over] = 0

    def _view(self, behavior: str) -> View:
        side = 0 if behavior == "Striker" else 1
        cue = _one_hot(self._cue(side), self.CHOICES[side])
        share = (self._round / self.ROUNDS)[:, None].astype(np.float32)
        parts = [np.concatenate([cue, share], axis=1)] if side == 0 else [cue, share]
        return {f"obs_{i}": part[:, None] for i, part in enumerate(parts)}


class MenuToy(Toy):
    """One guest. Each round one of `DISHES` dishes, a random one, is off the menu; dish k pays k / (DISHES - 1).

    Only the mask tells which: the observation, 1 float, is the share of the rounds played. Actions: one branch of
    `DISHES`. Ordering what is off raises EnvError. A policy that obeys masks learns to prefer the dearest and gets
    11/12 per decision; none can get more.
    """

    DISHES = 4

    def __init__(self, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        menu = ActionSpec((Discrete(self.DISHES),), masked=True)
        behavior = BehaviorSpec("MenuToy", (ObservationSpec("obs_0", (1,)),), menu)
        agents = (AgentSpec("guest", 0, 0, "MenuToy"),)
        super().__init__(GameSpec("MenuToy", (behavior,), agents, max_decisions=self.ROUNDS), num_matches)

    def _off(self) -> I64:
        return draw(self._seeds, self._drawn, self.DISHES)

    def _pay(self, actions: Sequence[F32], step: Step) -> None:
        ordered = actions[0][:, 0, 0]
        wrong = np.flatnonzero(ordered == self._off())
        if len(wrong):
            raise EnvError(f"MenuToy: match {wrong[0]} ordered dish {int(ordered[wrong[0]])}, which its mask forbids")
        step.reward[:, 0] = ordered / (self.DISHES - 1)

    def _view(self, behavior: str) -> View:
        allowed = _one_hot(self._off(), self.DISHES) == 0
        return {"obs_0": (self._round / self.ROUNDS)[:, None, None].astype(np.float32), MASKS: allowed[:, None]}
