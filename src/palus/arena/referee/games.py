"""The games that an arena can rank, and what differs between them. Everything else is the same for all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec

from palus.arena.models.players import HOUSE_PLAYERS
from palus.arena.models.rules import ARENA_RULES, PICTURE_RULES, Limits, Rules
from palus.arena.referee.recording import FIXED_STEP_S
from palus.errors import ArenaError

_LIMITS = Limits()


@dataclass(frozen=True)
class ArenaGame:
    """One game.

    tags: by which a repository without a model file of the game asks for matches.   house: built-in players.
    roles: behaviors that a player brings a model for; by default one, called like the game.
    tick_s: seconds of game time that a tick of a match's length lasts.
    rules, max_p99_ms: for model files; processor milliseconds of the slowest percent of answers to 4 observations.
    limits: of the process that holds a model.
    max_ticks, max_score: of a match; more is no match of this game.
    filmed: its matches do not repeat, so a replay is a video and there is no log of actions to play again.
    packages: that have to be installed where it is played; install: what brings them.
    """

    env: str
    tags: tuple[str, ...]
    house: tuple[str, ...] = ("random",)
    tick_s: float = FIXED_STEP_S
    rules: Rules = ARENA_RULES
    max_p99_ms: float = 2.0
    limits: Limits = _LIMITS
    max_ticks: int = 5000
    max_score: int = 1
    filmed: bool = False
    packages: tuple[str, ...] = ()
    install: str = ""
    roles: tuple[str, ...] = ()

    @property
    def behaviors(self) -> tuple[str, ...]:
        """Each of which a model plays; a player brings one for each."""
        return self.roles or (self.env,)

    @property
    def files(self) -> dict[str, str]:
        """Behavior of each model file, by its path in a repository."""
        return {f"{behavior}.onnx": behavior for behavior in self.behaviors}

    def check_house(self, name: str) -> None:
        """Raises ArenaError when that is no built-in player of the game: others may be names of files."""
        if name not in self.house:
            raise ArenaError(f"{name!r:.80} is no built-in player of {self.env}; there are {', '.join(self.house)}")

    @property
    def can_be_played_here(self) -> bool:
        """Whether this machine has what it takes."""
        return all(find_spec(package) for package in self.packages)


SOCCER_TWOS = ArenaGame(
    env="SoccerTwos",
    tags=("reinforcement-learning", "ml-agents", "ML-Agents-SoccerTwos"),
    house=HOUSE_PLAYERS,
)

DOOM_DUEL = ArenaGame(
    env="doom_duel",
    tags=("reinforcement-learning", "palus", "doom_duel"),
    tick_s=1 / 35,
    rules=PICTURE_RULES,
    max_p99_ms=40.0,
    limits=replace(_LIMITS, cpu_s=120),
    max_ticks=35 * 60 * 15,
    max_score=1000,
    filmed=True,
    packages=("vizdoom", "av"),
    install="palus[doom,video]",
)

GAMES = {game.env: game for game in (SOCCER_TWOS, DOOM_DUEL)}


def game_of(env: str) -> ArenaGame:
    """How a game is shown and counted: a log may hold matches of games that this palus does not know."""
    return GAMES.get(env) or ArenaGame(env, ("reinforcement-learning", "ml-agents", f"ML-Agents-{env}"))


def playable_game(env: str) -> ArenaGame:
    """The game to play, or to play again, for a name that may come from anywhere: sockets, jobs, logs, run files.

    Raises ArenaError when no arena plays it.
    """
    if env not in GAMES:
        raise ArenaError(f"{env!r:.80} is no game of an arena; there are {', '.join(GAMES)}")
    return GAMES[env]


def games_played_here() -> list[str]:
    """Names of those for which everything is installed on this machine."""
    return [game.env for game in GAMES.values() if game.can_be_played_here]
