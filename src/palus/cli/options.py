"""Options that several commands take, and what `--trust MODULE` means: a person lets files name code of that module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer.core import TyperGroup

from palus.envs import BUILT_IN, check_game_trust
from palus.errors import TrustError
from palus.trust import Trust
from palus.types import DEFAULT_GAME

if TYPE_CHECKING:
    from palus.config import RunFile

DataOption: TypeAlias = Annotated[Path, typer.Option("--data", help="The arena's folder.")]
DatabaseOption: TypeAlias = Annotated[
    str | None, typer.Option("--database", help="The arena's database, if it is not in its folder (SQLAlchemy URL).")
]
MOST_MINUTES = 1_000_000
"""Two years: nothing that is longer was meant, and no infinity."""
MOST_STEPS = 1e15
DEFAULT_DATA = Path("arena")
_RANKED = [name for name, game in BUILT_IN.items() if game.arena]
GAMES_LISTED = f"{', '.join(_RANKED[:-1])} or {_RANKED[-1]}"


def complete_game(incomplete: str) -> list[str]:
    """The games that an arena plays, for the shell."""
    return [name for name in _RANKED if name.startswith(incomplete)]


GameOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--game",
        metavar="GAME",
        autocompletion=complete_game,
        help=f"What they play: {GAMES_LISTED}; default: what a run among them was trained for, else {DEFAULT_GAME}. "
        "Doom takes palus[doom].",
    ),
]
ModeOption: TypeAlias = Annotated[
    Literal["stochastic", "greedy"],
    typer.Option("--mode", help="Draw actions from the policies' probabilities, or take the most probable."),
]
LogOption: TypeAlias = Annotated[
    Path | None, typer.Option("--log", help="Append one JSON line per match to this file.")
]
EpisodeSeedOption: TypeAlias = Annotated[
    int, typer.Option("--seed", min=0, max=2**63 - 1, help="The same seed gives the same episodes.")
]
TrustOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        help="A module outside palus whose games, encoders and trainers the run's files may name; its code runs. "
        "Repeatable.",
        metavar="MODULE",
    ),
]


class FileFirst(TyperGroup):
    """`palus sweep FILE` is `palus sweep run FILE`; typer asks for a subclass here."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """A file called like a command is given as ./status."""
        if args and args[0] not in self.commands and args[0] not in ("--help", "--install-completion"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@contextmanager
def told_where(place: str | Path) -> Iterator[None]:
    """Say in a refusal which file or folder it is about."""
    try:
        yield
    except TrustError as error:
        raise TrustError(f"{place}: {error}") from error


def check_trust(run: RunFile, trust: Trust) -> None:
    """Raises TrustError when the run file names code outside palus that is not trusted; nothing is imported."""
    if run.palus.env is not None and ":" in run.palus.env:
        check_game_trust(run.palus.env, run.palus.env_options, trust)
    behaviors = {f"behaviors.{name}": behavior for name, behavior in run.behaviors.items()}
    if run.default_settings is not None:
        behaviors["default_settings"] = run.default_settings
    for name, own in run.palus.trainers.items():
        trust.check(own.partition(":")[0], f"palus.trainers.{name} {own}")
    for key, behavior in behaviors.items():
        encoder = behavior.network_settings.vis_encode_type
        if ":" in encoder:
            trust.check(encoder.partition(":")[0], f"{key}.network_settings.vis_encode_type {encoder}")
