"""What the sampler and its workers tell each other: who is to play what, orders, answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from palus.envs.game import Game, make_game
from palus.trust import NOBODY, Trust


@dataclass(frozen=True)
class GameMaker:
    """How to make a game anew, in any process."""

    env_id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = NOBODY

    def __call__(self) -> Game:
        """One more instance; errors of `make_game`."""
        return make_game(self.env_id, self.trust, **self.options)


@dataclass(frozen=True)
class Posting:
    """What a worker has to know. splits: indices of the games of each split. life: how often it was replaced before.

    warm_up: the most random decisions before a game counts. core: the processor to stay on, None for any.
    """

    worker: int
    make: GameMaker
    splits: tuple[range, ...]
    seed: int
    warm_up: int
    core: int | None
    life: int = 0


class Restart(NamedTuple):
    """Order: start all games of a split anew, their first observations to `aside`."""

    split: int
    counter: int


class Step(NamedTuple):
    """Order: play decision t of a page with the actions in shared memory."""

    split: int
    page: int
    t: int


class Close(NamedTuple):
    """Order: close all games and leave."""


class Ended(NamedTuple):
    """An agent's episode that ended. whole: it was played by policies from its beginning."""

    row: int
    decisions: int
    reward: float
    stats: Mapping[str, float]
    whole: bool


class Answer(NamedTuple):
    """An order was carried out. over: the games of the split that ended and have started anew."""

    split: int
    ended: list[Ended]
    over: list[int]


class Alive(NamedTuple):
    """Sent while games are being made, one by one: it takes long, but it goes on."""


class Failure(NamedTuple):
    """Sent before the worker ends by an exception. kind: its class; at_start: no game had played yet."""

    kind: str
    text: str
    at_start: bool
