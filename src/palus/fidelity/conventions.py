"""What breaks when one convention of SoccerTwos is wrong: a check that every convention of the simulation is right.

A policy trained in Unity is shown observations, or its choices are carried out, under one altered convention. If the
simulation is faithful, the unaltered game is the one it plays best, and each alteration costs what it cost where the
conventions were measured.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from palus.arena.models.players import ModelPlayer, Player
from palus.arena.models.policies import Observations
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import MatchResult, points_of_a
from palus.types import F32, I64, Bool

RAYS_FORWARD, RAYS_REVERSE, SLOTS, FRAMES = 11, 3, 8, 3
OWN_GOAL, ATTACKED_GOAL, MATE, OPPONENT = 1, 2, 4, 5

Record = tuple[int, int, int]
"""Wins, losses, draws."""


@dataclass(frozen=True)
class Convention:
    """One altered convention.

    observation: [336], what the altered game shows at each place. choices: [9], whose probability each choice gets.
    purple_only: blue is left as it is. published: (as blue, as purple) of the official policy against random, 64 games
    each, in the reduced simulator that the conventions were measured with.
    """

    name: str
    observation: I64
    choices: I64
    published: tuple[Record, Record]
    purple_only: bool = False


@dataclass(frozen=True)
class ConventionResult:
    """Record of a policy against random under one convention, as blue and as purple."""

    name: str
    blue: Record
    purple: Record
    published_blue: Record
    published_purple: Record


class AlteredPolicy:
    """A policy that lives under another convention than it was trained for."""

    def __init__(self, policy: ModelPlayer, convention: Convention) -> None:
        self.name = f"{policy.name} ({convention.name})"
        self.sha256, self.state_size = policy.sha256, policy.state_size
        self._policy = policy
        self._convention = convention

    def answer(self, observations: Observations, states: F32, masks: Bool | None = None) -> tuple[F32, F32]:
        """As `Player.answer`."""
        joined = np.concatenate(list(observations.values()), axis=1)[:, self._convention.observation]
        parts = np.split(joined, np.cumsum([seen.shape[1] for seen in observations.values()])[:-1], axis=1)
        altered = {name: np.ascontiguousarray(part) for name, part in zip(observations, parts, strict=True)}
        answer, states = self._policy.answer(altered, states, masks)
        return np.ascontiguousarray(answer[:, self._convention.choices]), states


def check_conventions(
    policy: ModelPlayer, opponent: Player, pairs: int, seed: int, progress: Callable[[int], None] | None = None
) -> list[ConventionResult]:
    """Play `pairs` mirrored pairs under each convention of `CONVENTIONS`."""
    rows: list[ConventionResult] = []
    for convention in CONVENTIONS:
        results = play_pairs(AlteredPolicy(policy, convention), opponent, pairs, seed, progress=progress)
        blue = _record([r for r in results if r.leg == 1])
        purple = _record([r for r in results if r.leg == 2])
        if convention.purple_only:
            blue = rows[0].blue  # "none", which comes first
        rows.append(ConventionResult(convention.name, blue, purple, *convention.published))
    return rows


def _record(results: Sequence[MatchResult]) -> Record:
    points = points_of_a(results)
    return points.count(1.0), points.count(0.0), points.count(0.5)


def _observation(
    ray: Callable[[int, int], int] = lambda index, rays: index,
    slot: dict[int, int] | None = None,
    frame: Callable[[int], int] = lambda index: index,
) -> I64:
    """Where each of the 336 numbers is taken from. ray: (index, rays of the sensor) -> index."""
    order: list[int] = []
    for rays in (RAYS_FORWARD, RAYS_REVERSE):
        start = len(order)
        for f, r, s in itertools.product(range(FRAMES), range(rays), range(SLOTS)):
            order.append(start + (frame(f) * rays + ray(r, rays)) * SLOTS + (slot or {}).get(s, s))
    return np.array(order)


def _swap(*pairs: tuple[int, int]) -> dict[int, int]:
    return {a: b for pair in pairs for a, b in (pair, pair[::-1])}


def _choices(*branches: int) -> I64:
    """Choices 1 and 2 of these branches exchanged."""
    swapped = _swap(*((3 * branch + 1, 3 * branch + 2) for branch in branches))
    return np.array([swapped.get(i, i) for i in range(9)])


def _mirrored(index: int, rays: int) -> int:
    """The ray at the opposite angle: rays alternate right, left after the middle one."""
    return 0 if index == 0 else (index + 1 if index % 2 else index - 1)


def _sorted(index: int, rays: int) -> int:
    """The ray that comes at this place when rays go from the rightmost to the leftmost."""
    side = index - rays // 2
    return 2 * side if side > 0 else -2 * side - 1 if side < 0 else 0


SAME = _observation()
FORWARD_AXIS, RIGHT_AXIS, ROTATE = 0, 1, 2
CONVENTIONS = (
    Convention("none", SAME, _choices(), ((64, 0, 0), (64, 0, 0))),
    Convention(
        "newest frame first", _observation(frame=lambda f: FRAMES - 1 - f), _choices(), ((49, 14, 1), (45, 18, 1))
    ),
    Convention("left ray before right ray", _observation(_mirrored), _choices(), ((6, 15, 43), (11, 9, 44))),
    Convention("rays sorted by angle", _observation(_sorted), _choices(), ((21, 32, 11), (25, 30, 9))),
    Convention("rotate 1 and 2 swapped", SAME, _choices(ROTATE), ((37, 26, 1), (33, 31, 0))),
    Convention("right axis 1 and 2 swapped", SAME, _choices(RIGHT_AXIS), ((45, 14, 5), (49, 11, 4))),
    Convention("forward axis 1 and 2 swapped", SAME, _choices(FORWARD_AXIS), ((4, 9, 51), (4, 14, 46))),
    Convention(
        "mirror image of the game", _observation(_mirrored), _choices(RIGHT_AXIS, ROTATE), ((62, 2, 0), (62, 2, 0))
    ),
    Convention(
        "purple uses blue's tag order",
        _observation(slot=_swap((OWN_GOAL, ATTACKED_GOAL), (MATE, OPPONENT))),
        _choices(),
        ((64, 0, 0), (42, 22, 0)),
        purple_only=True,
    ),
    Convention(
        "own and attacked goal swapped",
        _observation(slot=_swap((OWN_GOAL, ATTACKED_GOAL))),
        _choices(),
        ((49, 15, 0), (48, 16, 0)),
    ),
    Convention(
        "mate and opponent swapped", _observation(slot=_swap((MATE, OPPONENT))), _choices(), ((64, 0, 0), (62, 2, 0))
    ),
)
