"""The unit of rated play: one mirrored pair between two contenders, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from palus.arena.result import MatchResult, Mode


@dataclass(frozen=True)
class Contender:
    """Who plays one side, with the bytes to play with.

    repo: "owner/name", its name in results.   revision, file: where the model came from; empty for house players.
    sha256: of the model file, the rated entity.   model: the file's bytes, never parsed in this process.
    house: name of a built-in player ("random", "ball-chaser", "goalie-striker"), when it is one; exactly one of
    `model` and `house` is given.
    """

    repo: str
    owner: str
    revision: str
    file: str
    sha256: str
    model: bytes | None = None
    house: str | None = None

    def __post_init__(self) -> None:
        if (self.model is None) == (self.house is None):
            raise ValueError(f"{self.repo}: a contender has either a model or a house player")


@dataclass(frozen=True)
class Unit:
    """One mirrored pair: contenders[0] is blue in the first game, purple in the second.

    seed: of the pair, in [0, 2^63); `MatchResult.seed` is the match seed derived from it, the same for both games.
    rated, season: not used to play, carried along for the log.
    """

    env: str
    seed: int
    contenders: tuple[Contender, Contender]
    mode: Mode = "stochastic"
    rated: bool = True
    season: int = 1


@dataclass(frozen=True)
class UnitOutcome:
    """What `play_unit` returns; index 0 is the game in which contenders[0] is blue.

    replays: `.match` files.   actions: action logs, see `palus.arena.runner.actions`.   isolation: the strongest
    means that held the models in, for instance "namespaces+seccomp+limits"; "none" when both players are built in.
    failures: one sentence per contender whose process failed, "" for the others.
    """

    results: tuple[MatchResult, MatchResult]
    replays: tuple[bytes, bytes]
    actions: tuple[bytes, bytes]
    isolation: str
    failures: tuple[str, str] = ("", "")
