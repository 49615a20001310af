"""The command line `palus`. Commands are thin: parse, call one library function, print. One module per command."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from palus import __version__
from palus.cli import account, league, site, sweep
from palus.cli.arena import arena
from palus.cli.backup import backup, restore
from palus.cli.compare import compare
from palus.cli.demo import demo
from palus.cli.enjoy import enjoy
from palus.cli.fidelity import fidelity
from palus.cli.login import login
from palus.cli.match import match
from palus.cli.migrate import migrate
from palus.cli.mlagents_learn import near_command
from palus.cli.output import EXIT_INTERRUPTED, EXIT_USER_ERROR, stderr, told_memory
from palus.cli.probe import probe
from palus.cli.pull import pull
from palus.cli.push import push
from palus.cli.rank import rank
from palus.cli.record import record
from palus.cli.train import train
from palus.cli.unity_serve import unity_serve
from palus.cli.verify import audit, recompute, verify
from palus.cli.watch import watch
from palus.cli.worker import worker
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


def _walk(command: Any) -> Iterator[Any]:
    """A command and all below it."""
    yield command
    for below in getattr(command, "commands", {}).values():
        yield from _walk(below)


class _Group(TyperGroup):
    """Turns our errors into one red line and an exit code; typer asks for a subclass here."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for command in _walk(self):
            command.help, command.epilog = literal(command.help), literal(command.epilog)
            for parameter in command.params:
                if isinstance(parameter, TyperOption | TyperArgument):
                    parameter.help = literal(parameter.help)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; exit 2 on a `PalusError` and where the memory is too small, 130 on Ctrl-C."""
        try:
            return super().invoke(ctx)
        except (PalusError, MemoryError) as error:
            told = told_memory(error) if isinstance(error, MemoryError) else str(error)
            stderr.print(f"[bold red]error:[/] {escape(told)}")
            sys.exit(EXIT_USER_ERROR)
        except KeyboardInterrupt:
            stderr.print("Interrupted.")
            sys.exit(EXIT_INTERRUPTED)


class _Train(TyperCommand):
    """Tells who gives a flag of `mlagents-learn` which command has it."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Raises ConfigError."""
        own = {option for parameter in self.params for option in parameter.opts}
        for flag in (word.partition("=")[0] for word in args):
            hint = None if flag in own else near_command(flag)
            if hint is not None:
                raise ConfigError([hint])
        return super().parse_args(ctx, args)


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


_TEAMS = (demo, train, enjoy, match, record, compare, rank, probe, watch, push, pull, login, migrate, unity_serve)
_ARENAS = (arena, worker, verify, audit, recompute, backup, restore, fidelity)
for _command in (*_TEAMS, *_ARENAS):
    app.command(
        cls=_Train if _command is train else TyperCommand,
        epilog=getattr(sys.modules[_command.__module__], "EPILOG", None),
    )(_command)

app.add_typer(account.app, name="account")
app.add_typer(site.app, name="site")
app.add_typer(sweep.app, name="sweep")
app.add_typer(league.app, name="league")
