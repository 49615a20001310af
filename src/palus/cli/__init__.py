"""The command line `palus`. Commands are thin: parse, call one library function, print. One module per command, which
is imported when its command is asked for: the schema of run files alone costs more than all else of a short command."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command

from palus import __version__
from palus.cli.output import (
    EXIT_INTERRUPTED,
    EXIT_USER_ERROR,
    FULL,
    stderr,
    told_lack,
    told_memory,
    told_missing,
    was_interrupted,
)
from palus.errors import ConfigError, PalusError

EPILOG = """
From nothing to a watched match:

  # train a team by self-play
  palus train soccertwos --run-id mine

  # let it play; a folder, an .onnx file or a house bot
  palus match results/mine ball-chaser

  # record, then watch
  palus match results/mine random --pairs 1 --replay goal.match
  palus watch goal.match

  # a leaderboard of a run, or of any folder of models
  palus rank results/mine

  # publish it: on huggingface.co, an arena, or in a folder
  palus push results/mine ada/striker

`palus demo` does all of this in minutes. `palus COMMAND --help` has examples for each command.
"""


def literal(text: str | None) -> str | None:
    """The text as Markdown that shows it as it is, `*`, `<NAME>`, `&`, `#` included; what stands in backticks is code.

    An indented line ends where it ends in the text, so that commands and what is said of them can be copied.
    """
    text = text and re.sub(r"(`[^`]*`)|([\\*<&#])", lambda m: m[1] or f"\\{m[2]}", text)
    return text and re.sub(r"^(  .*)$", r"\1  ", text, flags=re.MULTILINE)


COMMANDS = {
    "demo": "demo",
    "train": "train",
    "enjoy": "enjoy",
    "match": "match",
    "record": "record",
    "compare": "compare",
    "rank": "rank",
    "probe": "probe",
    "watch": "watch",
    "push": "push",
    "pull": "pull",
    "login": "login",
    "migrate": "migrate",
    "unity-serve": "unity_serve",
    "arena": "arena",
    "worker": "worker",
    "verify": "verify",
    "audit": "verify",
    "recompute": "verify",
    "backup": "backup",
    "restore": "backup",
    "fidelity": "fidelity",
    "account": "account",
    "site": "site",
    "sweep": "sweep",
    "league": "league",
}
"""Every command and the module that has it, in the order of `palus --help`."""


class _Commands(Mapping[str, Any]):
    """What COMMANDS names, each imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        return _make_command(name)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Train(TyperCommand):
    """Tells who gives a flag of `mlagents-learn` which command has it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ConfigError."""
        from palus.cli.mlagents_learn import near_command

        own = {option for parameter in self.params for option in parameter.opts}
        for flag in (word.partition("=")[0] for word in args):
            hint = None if flag in own else near_command(flag)
            if hint is not None:
                raise ConfigError([hint])
        return super().parse_args(ctx, args)


@cache
def _make_command(name: str) -> Any:
    """The command of that name. Several commands below one word are the module's `app`, one is a function.

    Raises KeyError where COMMANDS has no such name.
    """
    module = import_module(f"palus.cli.{COMMANDS[name]}")
    parent = typer.Typer(rich_markup_mode="markdown", pretty_exceptions_enable=False)
    parent.callback()(lambda: None)  # keeps the name a word of its own: typer runs an only command without it
    if hasattr(module, "app"):
        parent.add_typer(module.app, name=name)
    else:
        cls = _Train if name == "train" else TyperCommand
        command = parent.command(name, cls=cls, epilog=getattr(module, "EPILOG", None))
        command(getattr(module, name.replace("-", "_")))
    made: Any = get_command(parent)
    _show_literally(made.commands[name])
    return made.commands[name]


def _show_literally(command: Any) -> None:
    """All help of a command and those below it."""
    command.help, command.epilog = literal(command.help), literal(command.epilog)
    for parameter in command.params:
        if isinstance(parameter, TyperOption | TyperArgument):
            parameter.help = literal(parameter.help)
    for below in getattr(command, "commands", {}).values():
        _show_literally(below)


class _Group(TyperGroup):
    """Turns our errors into one red line and an exit code; typer asks for a subclass here."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _show_literally(self)
        self.commands = _Commands()  # type: ignore[assignment]  # typer only looks them up

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit 2 on a `PalusError`, without an extra that it takes and where memory is too small, 130
        on Ctrl-C."""
        try:
            return super().invoke(ctx)
        except (PalusError, MemoryError) as error:
            told = told_memory(error) if isinstance(error, MemoryError) else str(error)
            _fail(told)
        except ModuleNotFoundError as error:
            missing = told_missing(error)
            if missing is None:
                raise
            _fail(missing)
        except (KeyboardInterrupt, ImportError) as error:
            if not was_interrupted(error):
                raise
            stderr.print("Interrupted.")
            sys.exit(EXIT_INTERRUPTED)

    def main(self, *args: Any, **options: Any) -> Any:
        """Parse the command line and run it; exit 2 where the system has no more of what every command takes: space,
        also of the output of `--help`, open files, a folder for what is temporary."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            told = told_lack(error)
            if told is None:
                raise
            if error.errno in FULL:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what waits to be printed would fail again at the end
            _fail(told)


def _fail(told: str) -> NoReturn:
    stderr.print(f"[bold red]error:[/] {escape(told)}")
    sys.exit(EXIT_USER_ERROR)


app = typer.Typer(
    cls=_Group,
    help="Train game agents by self-play on a laptop, export them, rank them, watch them.",
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"palus {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass
