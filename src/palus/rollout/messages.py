"""What the collector and its workers tell each other: which games to play, orders, answers.

None as an order: close all games and leave. None as an answer: still alive, while games are being made, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from palus.envs.game import Game


@dataclass(frozen=True)
class Assignment:
    """What a worker has to know. splits: indices of the games of each split. life: how often it was replaced before.

    make: makes one more instance of the game, in any process. warm_up: the most random decisions before a game counts.
    core: the processor to stay on, None for any. parameters: numbers of the game to change before it starts.
    """

    worker: int
    make: Callable[[], Game]
    splits: tuple[range, ...]
    seed: int
    warm_up: int
    core: int | None
    life: int = 0
    parameters: Mapping[str, float] = field(default_factory=dict)


class Restart(NamedTuple):
    """Order: start all games of a split anew, their first observations to `aside`."""

    split: int
    counter: int


class StepOrder(NamedTuple):
    """Order: play decision t of a page with the actions in shared memory."""

    split: int
    page: int
    t: int


class SetParameters(NamedTuple):
    """Change numbers of all games; it is not answered."""

    parameters: Mapping[str, float]


class Over(NamedTuple):
    """A game that ended and has started anew. whole: policies have played it from its beginning."""

    game: int
    points: tuple[float, ...]
    whole: bool


class Answer(NamedTuple):
    """An order was carried out. stats: game -> agent -> name -> number. partial: games whose episodes were begun by
    random decisions."""

    split: int
    over: list[Over]
    stats: Mapping[int, Mapping[int, Mapping[str, float]]]
    partial: list[int]


class Failure(NamedTuple):
    """Sent before the worker ends by an exception. kind: its class; at_start: no game had played yet."""

    kind: str
    text: str
    at_start: bool
