"""What a game brings to be ranked by an arena, declared in the game's own folder and listed in `palus.envs`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

import numpy as np

from palus.envs.recording import MatchLayout, RecordedEvent, Recording
from palus.errors import ArenaError
from palus.types import DEFAULT_GAME, I32, I64, AnyArray

BotAct = Callable[[Any, int, I64], I32]
"""(env, team, matches [M]) -> [M, agents of the team, branches] choices for these matches."""


@dataclass(frozen=True)
class PlayStatistic:
    """A number of how a side plays, whose mean over matches its page shows.

    key: of it in `ArenaGame.play_statistics`.   name, under: what stands above and below it.   unit: behind it; "%" of
    a share.   digits: behind the point.
    """

    key: str
    name: str
    under: str
    unit: str = ""
    digits: int = 0


@dataclass(frozen=True)
class ArenaGame:
    """One game of two sides. A game of its own rules for watching overrides the methods.

    env: its name.   tags: by which a repository without a model file of the game asks for matches.
    roles: behaviors that a player brings a model for; by default one, called like the game.
    sides: what blue and what purple is, empty where both are the same.
    options: of the game's factory, the rules of an arena's match; a rule that an arena may set is one of them.
    bots: names of its scripted players, which read the state of the game.
    baselines: repositories that courses name as the opponents to measure oneself against.
    yardsticks: names of its built-in players that a training run measures itself against unless told otherwise.
    preset: run file by which a best response to its models is trained (`palus probe`).
    tick_s: seconds of game time that a tick of a match's length lasts.
    pictures: whether players see pictures; their models may be larger then, and remember.
    max_p99_ms: processor milliseconds of the slowest percent of a model's answers to 4 observations.
    cpu_s: processor seconds that a model may take for a mirrored pair.
    score_word, score_note: what a score counts, as pages say it, and what else there is to say of it.
    score_stat: of an agent's episode, what a score counts where that is more than who won.
    max_ticks, max_score: of a match, its score added up; more is no match of this game.
    layout: of its recorded matches, where they repeat and can be drawn.
    statistics: what pages show of `play_statistics`.
    decided_by: how a match ends that somebody won: "time_limit", or an event of `layout`, which its end is then.
    holder: the side that has won where that event did not come in time; None: then it is a draw.
    side_by_side: matches that one process steps at the same time.
    filmed: its matches do not repeat, so a replay is a video and there is no log of actions to play again.
    packages: that have to be installed where it is played, as they are imported; install: what brings them.
    """

    env: str
    tags: tuple[str, ...]
    roles: tuple[str, ...] = ()
    sides: tuple[str, str] = ("", "")
    options: Mapping[str, Any] = field(default_factory=dict)
    bots: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    yardsticks: tuple[str, ...] = ()
    preset: str = ""
    tick_s: float = 0.02
    pictures: bool = False
    max_p99_ms: float = 2.0
    cpu_s: int = 20
    score_word: str = "Points"
    score_note: str = ""
    score_stat: str = ""
    max_ticks: int = 5000
    max_score: int = 1
    layout: MatchLayout | None = None
    statistics: tuple[PlayStatistic, ...] = ()
    decided_by: str = "time_limit"
    holder: int | None = None
    side_by_side: int = 512
    filmed: bool = False
    packages: tuple[str, ...] = ()
    install: str = ""

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Each of which a model plays; a player brings one for each."""
        return self.roles or (self.env,)

    @property
    def files(self) -> dict[str, str]:
        """Behavior of each model file, by its path in a repository."""
        return {f"{behavior}.onnx": behavior for behavior in self.behaviors}

    @property
    def option(self) -> str:
        """What commands take to mean this game, with a leading blank; nothing for the one that is meant anyway."""
        return "" if self.env == DEFAULT_GAME else f" --game {self.env}"

    def trial(self, player: str) -> list[str]:
        """Commands that let a player meet a house bot and, where its matches are drawn, show that."""
        match = f"palus match {player} {self.house[-1]}{self.option} --pairs 20"
        return [f"{match} --replay match.match", "palus watch match.match"] if self.is_drawn else [match]

    @property
    def house(self) -> tuple[str, ...]:
        """Names of all built-in players."""
        return ("random", *self.bots)

    def check_house(self, name: str) -> None:
        """Raises ArenaError when that is no built-in player of the game: others may be names of files."""
        if name not in self.house:
            raise ArenaError(f"{name!r:.80} is no built-in player of {self.env}; there are {', '.join(self.house)}")

    def bot(self, name: str) -> BotAct:
        """What one of `bots` does."""
        raise NotImplementedError(f"{self.env} declares the bot {name} and does not bring it")

    @property
    def can_be_played_here(self) -> bool:
        """Whether this machine has what it takes."""
        return all(find_spec(package) for package in self.packages)

    @property
    def is_drawn(self) -> bool:
        """Whether pages draw its matches: replays, and those that are played in the demo room."""
        return self.layout is not None and self.layout.scenery is not None

    @property
    def is_sudden_death(self) -> bool:
        """Whether the first score ends a match, so that it came when the match ended."""
        return self.max_score == 1 and self.decided_by != "time_limit"

    def length_s(self, params: Mapping[str, Any]) -> float:
        """Seconds of game time that a match lasts at most. params: what an arena sets beside `options`."""
        return self.max_ticks * self.tick_s

    def score(self, points: Sequence[float], stats: Mapping[int, Mapping[str, float]]) -> tuple[int, int]:
        """What stands beside the verdict of a match. points, stats: of its last decision, as the game gave them."""
        if self.score_stat:
            return round(stats[0][self.score_stat]), round(stats[1][self.score_stat])
        return int(points[0] > points[1]), int(points[1] > points[0])

    def endings(self, score: Sequence[int]) -> set[str]:
        """By what a match may have ended with such a score: `decided_by`, "time_limit" or both."""
        winner = None if score[0] == score[1] else int(score[1] > score[0])
        by_time = {"time_limit"} if winner == self.holder else set[str]()
        return by_time if winner is None else {self.decided_by, *by_time}

    def ticks(self, env: Any) -> I64:
        """[N] ticks that the latest decision of a batch lasted."""
        return np.full(env.num_matches, env.spec.frameskip, np.int64)

    def kill(self, env: Any) -> None:
        """End the engines of a batch at once, from any thread: a call that waits for them then raises EnvError."""

    # What there is to see of a match. Here: pictures, for games that are filmed.

    def still(self, env: Any, n: int) -> AnyArray:
        """[C] the present moment of match n of a batch, made with `record`, as a frame; filmed: a picture."""
        self._check_filmed()
        picture: AnyArray = env.games[n].render()
        return picture

    def frames(self, env: Any, n: int) -> AnyArray:
        """[ticks, C] the moments after every tick of the latest decision, before any restart; filmed: its pictures."""
        self._check_filmed()
        return np.stack(env.pictures[n])

    def _check_filmed(self) -> None:
        if not self.filmed:
            raise NotImplementedError(f"{self.env} declares no frames, so its matches cannot be recorded")

    def events(self, env: Any, n: int, before: int) -> list[RecordedEvent]:
        """What happened in the latest decision, but for how the match ended. before: ticks of the match before it."""
        return []

    def beauty(self, recording: Recording) -> float:
        """How much a match deserves to be shown for how it was won; 0: not at all."""
        return 0.0

    def play_statistics(self, recording: Recording) -> dict[str, Any] | None:
        """What a recording says about how both sides played, lists of two, blue first; None for nothing.

        ball_heat, if it is there: shares of the time, rows of a pitch from the far touchline to the near one.
        """
        return None
