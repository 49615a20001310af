"""The games, many at once (`protocol.MultiAgentEnv`) or one (`game.Game`), and the one way to make them by name."""

from __future__ import annotations

import difflib
import inspect
import re
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, cast

from pydantic import ValidationError, validate_call

from palus.envs.arena_game import ArenaGame
from palus.envs.doom.scenarios import ENVIRONMENTS
from palus.envs.game import Game
from palus.envs.matches import Matches, OneMatch
from palus.envs.protocol import MultiAgentEnv
from palus.errors import EnvError, PalusError
from palus.trust import NOBODY, Trust, load
from palus.types import BASE_ENV, GameSpec


@dataclass(frozen=True)
class BuiltIn:
    """A game that comes with palus. factory: `module:name` of what makes it, whose options may come from anywhere:
    they are checked against the annotations of its keywords. arena: of the `ArenaGame` that declares how it is ranked,
    where an arena can rank it."""

    factory: str
    arena: str = ""


BUILT_IN = {
    "SoccerTwos": BuiltIn("palus.envs.soccer.env:Soccer", "palus.envs.soccer.arena:GAME"),
    "StrikersVsGoalie": BuiltIn("palus.envs.soccer.env:Soccer", "palus.envs.soccer.arena:STRIKERS"),
    "RescueToy": BuiltIn("palus.envs.toy:RescueToy"),
    "DuelToy": BuiltIn("palus.envs.toy:DuelToy"),
    "PenaltyToy": BuiltIn("palus.envs.toy:PenaltyToy"),
    "MenuToy": BuiltIn("palus.envs.toy:MenuToy"),
    "RockPaperScissors": BuiltIn("palus.envs.matrix:rock_paper_scissors"),
    "RandomMatrix": BuiltIn("palus.envs.matrix:random_matrix"),
    "Pursuit": BuiltIn("palus.envs.grid.pursuit:Pursuit"),
    "Foraging": BuiltIn("palus.envs.grid.foraging:Foraging"),
    **dict.fromkeys(ENVIRONMENTS, BuiltIn("palus.envs.doom.game:make")),
    "doom_duel": BuiltIn("palus.envs.doom.game:make", "palus.envs.doom.arena:GAME"),
}
"""The games by their short names; the first of an arena's is the one meant where none is named."""

ADAPTERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "palus.envs.gymnasium:make": lambda options: str(options.get("id")).rpartition(":")[0] or "gymnasium",
    "palus.envs.pettingzoo:make": lambda options: str(options.get("module")),
    BASE_ENV: lambda options: str(options.get("factory")).partition(":")[0],
}
"""palus's own factories of games that others wrote -> the module that runs then, by the options."""

_OURS = Trust(frozenset({"palus"}))
_MISCALLED = re.compile(r"\(\) (got|missing|takes) ")
"""In what Python says of a function that does not have the arguments that it is called with."""


@dataclass(frozen=True)
class GameSource:
    """A game by name, with its options; it makes as many as are asked for, in any process.

    env_id: a key of `BUILT_IN`, or `module:factory` (a class or a function) of a module that `trust` names. A Gymnasium
    or PettingZoo environment is made by the adapters' factories; what has to be trusted is the module that they import.
    Raises EnvError for no game, TrustError for code that is not trusted, before anything is imported; its members, when
    the game cannot be imported or refuses the options.
    """

    env_id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    trust: Trust = NOBODY

    def __post_init__(self) -> None:
        check_game_trust(self.env_id, self.options, self.trust)

    @cached_property
    def spec(self) -> GameSpec:
        """The game's constant facts; an instance is made to tell them."""
        game = self.batch(1) if self.prefers_batch else self.single()
        try:
            return game.spec
        finally:
            game.close()

    @property
    def prefers_batch(self) -> bool:
        """Whether the factory makes many matches that step in one call: then `num_matches` is its first argument."""
        return "num_matches" in _parameters(self._factory())

    def batch(
        self, num_matches: int, threads: int = 1, *, record: bool = False, spinning: bool = False
    ) -> MultiAgentEnv:
        """So many matches behind one `MultiAgentEnv`. threads, record (what there is to see), spinning (threads that
        wait at work, for cores with nothing else to do): for games that can."""
        if not self.prefers_batch:
            return cast(MultiAgentEnv, Matches(self.single, num_matches, record=record))
        wanted = {"threads": threads} if threads > 1 else {}
        wanted |= {name: True for name, given in (("record", record), ("spinning", spinning)) if given}
        options = {name: value for name, value in wanted.items() if name in _parameters(self._factory())}
        return cast(MultiAgentEnv, self._make((num_matches,), {**options, **self.options}))

    def single(self) -> Game:
        """One instance of the game."""
        if self.prefers_batch:
            return cast(Game, OneMatch(self.batch(1)))
        return cast(Game, self._make((), self.options))

    def close(self) -> None:
        """Nothing is held."""

    def _factory(self) -> Any:
        listed = BUILT_IN.get(self.env_id)
        path = listed.factory if listed else self.env_id
        ours = listed is not None or self.env_id in ADAPTERS
        try:
            return load(path, _OURS if ours else self.trust, f"game {self.env_id}")
        except (ImportError, AttributeError, ValueError) as error:
            remedy = "install palus[doom]" if ours else "check module, attribute and PYTHONPATH"
            raise EnvError(f"game {self.env_id!r} cannot be imported ({error}); {remedy}") from error

    def _make(self, given: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        factory = self._factory()
        if self.env_id in BUILT_IN:
            named = (self.env_id,) if "env_id" in _parameters(factory) else ()  # a factory of several games
            return _make_ours(factory, self.env_id, (*named, *given), options)
        try:
            return factory(*given, **options)
        except (PalusError, MemoryError):
            raise
        except Exception as error:  # whatever a user's game raises, as a worker tells it
            if isinstance(error, TypeError) and _MISCALLED.search(str(error)):
                raise EnvError(f"game {self.env_id} refuses the options {sorted(options)}: {error}") from error
            text = traceback.format_exc().strip()
            raise EnvError(f"the game cannot be made or started; it raised:\n{text}") from error


def _make_ours(factory: Callable[..., Any], env_id: str, given: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """What the factory, a function or a class, makes of `given` and of options, which are its keywords.

    Raises EnvError with every option that the factory does not have or that is of another kind than annotated.
    """
    try:
        if not isinstance(factory, type):
            return validate_call(factory)(*given, **options)
        made: Any = object.__new__(factory)
        validate_call(vars(factory)["__init__"])(made, *given, **options)
        return made
    except ValidationError as error:
        parameters = inspect.signature(factory).parameters.values()
        known = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        faults = "; ".join(_fault(detail, known) for detail in error.errors())
        raise EnvError(f"game {env_id} refuses its options: {faults}") from error


def _fault(detail: Mapping[str, Any], known: list[str]) -> str:
    name = ".".join(str(part) for part in detail["loc"])
    if detail["type"] != "unexpected_keyword_argument":
        return f"{name}: {detail['msg']}, found {detail['input']!r}"
    near = difflib.get_close_matches(name, known, n=1)
    there = f"there are {', '.join(known)}" if known else "there are none"
    return f"{name}: no such option; " + (f"did you mean {near[0]}?" if near else there)


def _parameters(factory: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(factory).parameters
    except (TypeError, ValueError):  # something that cannot be called says so when it is
        return {}


def check_game_trust(env_id: str, options: Mapping[str, Any], trust: Trust) -> None:
    """Raises what making it would before anything is imported: EnvError for no game, TrustError for foreign code."""
    if env_id in BUILT_IN:
        return
    module, colon, _ = env_id.partition(":")
    if not colon:
        near = difflib.get_close_matches(env_id, BUILT_IN, n=1)
        hint = f"did you mean {near[0]}?" if near else f"give one of {', '.join(sorted(BUILT_IN))}, or module:factory"
        raise EnvError(f"unknown game {env_id!r}; {hint}")
    if env_id in ADAPTERS:
        module = ADAPTERS[env_id](options)
    trust.check(module, f"palus.env {env_id} with the options {dict(options)}")


@cache
def arena_games() -> Mapping[str, ArenaGame]:
    """The games that an arena can rank, by name."""
    return {name: load(game.arena, _OURS, f"game {name}") for name, game in BUILT_IN.items() if game.arena}


def make(env_id: str, num_matches: int, trust: Trust = NOBODY, /, **options: Any) -> MultiAgentEnv:
    """`GameSource.batch` in one call."""
    return GameSource(env_id, options, trust).batch(num_matches)


def make_game(env_id: str, trust: Trust = NOBODY, /, **options: Any) -> Game:
    """`GameSource.single` in one call."""
    return GameSource(env_id, options, trust).single()
