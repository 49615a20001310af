"""Two games small enough to be solved in seconds; learning tests train on them, newcomers read them first.

`RescueToy` asks for credit after leaving, `DuelToy` for self-play. Plain numpy; random numbers are a pure function of
(seed of the slot, number of the draw), so a slot never depends on its neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from palus.errors import EnvError
from palus.types import F32, I32, I64, AgentSpec, BehaviorSpec, Bool, GameSpec, Step

CUES = 3


def draw(seeds: I64, counters: I64, choices: int) -> I64:
    """Uniform integers in [0, choices), one per seed: splitmix64's output function over seed and draw number."""
    with np.errstate(over="ignore"):
        value = _mix(seeds.astype(np.uint64)) + counters.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        return (_mix(value) >> np.uint64(33)).astype(np.int64) % choices


def _mix(value: np.typing.NDArray[np.uint64]) -> np.typing.NDArray[np.uint64]:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


def _write_rows(values: F32, rows: I32, wanted: Bool, out: F32) -> None:
    """out[rows[n, p]] = values[n, p] wherever it is wanted and has a row."""
    chosen = wanted & (rows >= 0)
    out[rows[chosen]] = values[chosen]


def _no_step(num_matches: int, num_agents: int, sides: int) -> Step:
    shape = (num_matches, num_agents)
    return Step(
        np.zeros(shape, np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.bool_),
        np.zeros(shape, np.bool_),
        np.zeros(num_matches, np.bool_),
        np.full((num_matches, sides), np.nan, np.float32),
    )


class RescueToy:
    """One group of two. The pilot sees a cue, answers it once and leaves; its partner lives on, then the group is paid.

    The group reward 1 comes `ROUNDS` decisions after the start, to the partner alone, if the pilot's answer was the
    cue. The partner's own actions change nothing. A learner that stops the pilot's return where the pilot leaves
    learns nothing; one that values what its group earns later (posthumous credit) solves the game.

    Observation, 6 floats: is pilot, is partner, cue (one-hot, zeros for the partner), share of the rounds played.
    Actions: one branch of 3.
    """

    ROUNDS = 4

    def __init__(self, num_matches: int) -> None:
        """num_matches: N, at least 1."""
        self.spec = GameSpec(
            "RescueToy",
            (BehaviorSpec.of_vectors("RescueToy", (6,), (CUES,)),),
            (AgentSpec("pilot", 0, 0, "RescueToy"), AgentSpec("partner", 0, 0, "RescueToy")),
            max_decisions=self.ROUNDS,
        )
        self.num_matches = num_matches
        self.active: Bool = np.ones((num_matches, 2), np.bool_)
        self._seeds: I64 = np.zeros(num_matches, np.int64)
        self._match: I64 = np.zeros(num_matches, np.int64)
        self._round: I64 = np.zeros(num_matches, np.int64)
        self._right: Bool = np.zeros(num_matches, np.bool_)
        self._last = np.zeros((num_matches, 2, 6), np.float32)
        self._ended: Bool = np.zeros((num_matches, 2), np.bool_)

    def reset(self, seeds: I64) -> None:
        """Start N new matches from seeds [N]."""
        self._seeds[:] = seeds
        for array in (self._match, self._round, self._right, self._ended):
            array[:] = 0
        self.active[:] = True

    def observe(self, behavior: str, rows: I32, out: F32) -> None:
        """Write the 6 floats of every agent that is still in its match."""
        _check_behavior(self.spec, behavior)
        _write_rows(self._view(), rows, self.active, out)

    def observe_final(self, behavior: str, rows: I32, out: F32) -> None:
        """Write the last view of the agents that ended in the latest step."""
        _check_behavior(self.spec, behavior)
        _write_rows(self._last, rows, self._ended, out)

    def step(self, actions: Sequence[I32]) -> Step:
        """Play one decision; actions: one array [N, 2, 1]."""
        result = _no_step(self.num_matches, 2, 1)
        first = self._round == 0
        self._right = np.where(first, actions[0][:, 0, 0] == self._cue(), self._right)
        self._round += 1
        result.match_over[:] = self._round == self.ROUNDS
        result.terminated[:, 0] = first
        result.terminated[:, 1] = result.match_over
        result.group_reward[:, 1] = result.match_over & self._right
        self._ended = result.terminated.copy()
        self._last = self._view()
        self._match += result.match_over
        self._round[result.match_over] = 0
        self.active[:, 0] = self._round == 0
        return result

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """There are none. Raises EnvError for any."""
        if parameters:
            raise EnvError(f"{self.spec.env_id} has no environment parameters; found {', '.join(parameters)}")

    def get_state(self) -> dict[str, object]:
        """Copies of the five arrays."""
        return {"seeds": self._seeds.copy(), "match": self._match.copy(), "round": self._round.copy(),
                "right": self._right.copy(), "active": self.active.copy()}  # fmt: skip

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned."""
        self._seeds[:], self._match[:], self._round[:] = state["seeds"], state["match"], state["round"]  # type: ignore[call-overload]
        self._right[:], self.active[:] = state["right"], state["active"]

    def _cue(self) -> I64:
        return draw(self._seeds, self._match, CUES)

    def _view(self) -> F32:
        view = np.zeros((self.num_matches, 2, 6), np.float32)
        view[:, 0, 0] = view[:, 1, 1] = 1
        view[np.arange(self.num_matches), 0, 2 + self._cue()] = 1
        view[:, :, 5] = (self._round / self.ROUNDS)[:, None]
        return view


class DuelToy:
    """Two teams of one. Each round both see a cue of their own; who matched more cues after `ROUNDS` rounds wins.

    Group reward at the end: +1 winner, -1 loser, 0 each for a tie. Observation, 4 floats: cue (one-hot), share of the
    rounds played. Actions: one branch of 3.
    """

    ROUNDS = 4

    def __init__(self, num_matches: int, *, cooperative: bool = False) -> None:
        """num_matches: N, at least 1. cooperative: both are one group and are paid their share of cues matched."""
        right = 0 if cooperative else 1
        self.spec = GameSpec(
            "DuelToy",
            (BehaviorSpec.of_vectors("DuelToy", (CUES + 1,), (CUES,)),),
            (AgentSpec("left", 0, 0, "DuelToy"), AgentSpec("right", right, right, "DuelToy")),
            max_decisions=self.ROUNDS,
        )
        self.num_matches, self._cooperative = num_matches, cooperative
        self.active: Bool = np.ones((num_matches, 2), np.bool_)
        self._seeds: I64 = np.zeros(num_matches, np.int64)
        self._drawn: I64 = np.zeros(num_matches, np.int64)
        self._round: I64 = np.zeros(num_matches, np.int64)
        self._hits: I64 = np.zeros((num_matches, 2), np.int64)
        self._last = np.zeros((num_matches, 2, CUES + 1), np.float32)
        self._over: Bool = np.zeros(num_matches, np.bool_)

    def reset(self, seeds: I64) -> None:
        """Start N new matches from seeds [N]."""
        self._seeds[:] = seeds
        for array in (self._drawn, self._round, self._hits, self._over):
            array[:] = 0

    def observe(self, behavior: str, rows: I32, out: F32) -> None:
        """Write the 4 floats of both agents."""
        _check_behavior(self.spec, behavior)
        _write_rows(self._view(), rows, self.active, out)

    def observe_final(self, behavior: str, rows: I32, out: F32) -> None:
        """Write the last view of matches that ended in the latest step."""
        _check_behavior(self.spec, behavior)
        _write_rows(self._last, rows, np.repeat(self._over[:, None], 2, axis=1), out)

    def step(self, actions: Sequence[I32]) -> Step:
        """Play one decision; actions: one array [N, 2, 1]."""
        result = _no_step(self.num_matches, 2, len(self.spec.sides))
        self._hits += actions[0][:, :, 0] == self._cues()
        self._drawn += 1
        self._round += 1
        result.match_over[:] = self._over = self._round == self.ROUNDS
        result.terminated[:] = self._over[:, None]
        if self._cooperative:
            result.group_reward[:] = (self._hits.sum(1) / (2 * self.ROUNDS) * self._over)[:, None]
        else:
            lead = np.sign(self._hits[:, 0] - self._hits[:, 1]) * self._over
            result.group_reward[:, 0], result.group_reward[:, 1] = lead, -lead
            result.points[:, 0], result.points[:, 1] = (1 + lead) / 2, (1 - lead) / 2
        self._last = self._view()
        self._round[self._over] = 0
        self._hits[self._over] = 0
        return result

    def set_parameters(self, parameters: Mapping[str, float]) -> None:
        """There are none. Raises EnvError for any."""
        if parameters:
            raise EnvError(f"{self.spec.env_id} has no environment parameters; found {', '.join(parameters)}")

    def get_state(self) -> dict[str, object]:
        """Copies of the four arrays."""
        return {"seeds": self._seeds.copy(), "drawn": self._drawn.copy(), "round": self._round.copy(),
                "hits": self._hits.copy()}  # fmt: skip

    def set_state(self, state: dict[str, object]) -> None:
        """Restore what `get_state` returned."""
        self._seeds[:], self._drawn[:] = state["seeds"], state["drawn"]  # type: ignore[call-overload]
        self._round[:], self._hits[:] = state["round"], state["hits"]  # type: ignore[call-overload]

    def _cues(self) -> I64:
        """[N, 2]: the cue of each agent in this round."""
        return np.stack([draw(self._seeds, 2 * self._drawn + side, CUES) for side in (0, 1)], axis=1)

    def _view(self) -> F32:
        view = np.zeros((self.num_matches, 2, CUES + 1), np.float32)
        np.put_along_axis(view, self._cues()[:, :, None], 1, axis=2)
        view[:, :, CUES] = (self._round / self.ROUNDS)[:, None]
        return view


def _check_behavior(spec: GameSpec, behavior: str) -> None:
    if behavior != spec.behaviors[0].name:
        raise EnvError(f"{spec.env_id} has no behavior {behavior!r}; its only one is {spec.behaviors[0].name!r}")
