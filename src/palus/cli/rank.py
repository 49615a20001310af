"""`palus rank`: a round robin of a whole folder and its leaderboard."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Protocol, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from palus.cli.output import end_early, matches_progress, percent, print_json, stdout

if TYPE_CHECKING:
    from palus.arena.study.tournament import Leaderboard


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Entrant = TypeVar("Entrant", bound=_Named)

EPILOG = """
Ratings are Bradley-Terry strengths around 1200, fitted to all matches together; 400 points mean 10:1 odds. The range of
ranks is what the matches leave open: players whose ranges overlap may well be equally strong.

Examples:

  palus rank models/                                   every .onnx, bundle and snapshot in it, and the house bots

  palus rank results/mine                              a run: its policy and its last checkpoints

  palus rank results/mine/SoccerTwos/snapshots --pairs 20     did self-play get better?

  palus rank models/ --with results/mine --without goalie-striker

  palus rank agents/ --game doom_duel --pairs 5                Doom, one against one

  palus rank models/ --json --log matches.jsonl
"""


def rank(
    folder: Annotated[Path, typer.Argument(help="Folder with .onnx files, bundles or snapshots.")],
    pairs: Annotated[int, typer.Option(min=1, help="Mirrored pairs per pairing of players.")] = 50,
    also: Annotated[list[str] | None, typer.Option("--with", help="One more player; may be repeated.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="Leave out a player of this name.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed and players give the same leaderboard.")] = 0,
    game: Annotated[
        Literal["SoccerTwos", "doom_duel"], typer.Option(help="What they play; Doom takes palus[doom].")
    ] = "SoccerTwos",
    output: Annotated[Path | None, typer.Option(help="Also write the leaderboard as Markdown here.")] = None,
    log: Annotated[Path | None, typer.Option(help="Append one JSON line per match to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the leaderboard as JSON.")] = False,
) -> None:
    """Let everybody in a folder play everybody and print the leaderboard, with intervals.

    The random policy and, in SoccerTwos, the two house bots take part unless left out. A file that cannot be played is
    named and skipped.

    Ctrl-C once makes the leaderboard of what was played so far and leaves with 130; twice ends at once.
    """
    from palus.cli.players import append_log
    from palus.run.session import interruptible

    rank_game = _rank_duels if game == "doom_duel" else _rank_teams
    with interruptible() as stopped:
        board, rejected, planned = rank_game(folder, also or [], without or [], pairs, seed, stopped)
        interrupted = stopped()
    if interrupted and not board.results:
        end_early(0, planned, "matches")
    if log is not None:
        append_log(log, board.results)
    if output is not None:
        _write_markdown(output, board)
    if as_json:
        report = {"standings": board.standings, "blue_advantage": board.blue_advantage, "skipped": rejected}
        print_json({**report, "pairs": pairs, "seed": seed, "interrupted": interrupted})
    else:
        stdout.print(leaderboard_table(board))
        for names, tied in board.loose:
            stdout.print(
                f"[yellow]Careful:[/] only {tied} pairs tie {escape(', '.join(names))} to the others; ratings cannot "
                "be compared across that gap. Let them play more pairs.",
                soft_wrap=True,
            )
        low, high = (board.blue_advantage[0] + sign * board.blue_advantage[1] for sign in (-1, 1))
        stdout.print(
            f"{len(board.results)} matches. Playing blue is worth {low:+.0f} to {high:+.0f} points (0 = a fair field)."
        )
    if interrupted:
        end_early(len(board.results), planned, "matches", "Pairings that did not begin are missing.")


def _rank_teams(
    folder: Path, also: list[str], without: list[str], pairs: int, seed: int, stopped: Callable[[], bool]
) -> tuple[Leaderboard, list[str], int]:
    """The leaderboard of SoccerTwos, why files of the folder do not take part, and how many matches were planned."""
    from palus.arena.models.players import find_players
    from palus.arena.referee.games import DEFAULT_GAME, GAMES
    from palus.arena.study.tournament import rank_players
    from palus.cli.players import load, soccer_twos

    found, rejected = find_players(folder, soccer_twos())
    entrants = _entrants([*load(*GAMES[DEFAULT_GAME].house, *also), *found], rejected, folder, without)
    planned = pairs * len(entrants) * (len(entrants) - 1)
    with matches_progress("", planned) as tick:

        def progress(title: str, finished: int) -> None:
            tick(finished, title)

        board = rank_players(entrants, pairs, seed, progress=progress, stopped=stopped)
    return board, rejected, planned


def _rank_duels(
    folder: Path, also: list[str], without: list[str], pairs: int, seed: int, stopped: Callable[[], bool]
) -> tuple[Leaderboard, list[str], int]:
    """The leaderboard of Doom's duel."""
    from palus.arena.models.players import find_players, load_player
    from palus.arena.referee.games import source_of
    from palus.arena.referee.match import play_pairs
    from palus.arena.study.tournament import round_robin
    from palus.cli.players import refresh_onnx

    for run in [*(p for p in folder.glob("*") if p.is_dir()), *map(Path, also)]:
        refresh_onnx(run)
    spec = source_of("doom_duel").spec
    found, rejected = find_players(folder, spec)
    named = [load_player(word, spec) for word in ("random", *also)]
    entrants = _entrants([*named, *found], rejected, folder, without)
    planned = pairs * len(entrants) * (len(entrants) - 1)
    with matches_progress("", planned) as tick:

        def progress(title: str, finished: int) -> None:
            tick(finished, title)

        board = round_robin(entrants, pairs, seed, partial(play_pairs, env_id="doom_duel"), progress, stopped)
    return board, rejected, planned


def _entrants(players: list[Entrant], rejected: list[str], folder: Path, without: list[str]) -> list[Entrant]:
    """Who takes part, each name once; who does not is told on stderr."""
    from palus.errors import ModelError

    for reason in rejected:
        Console(stderr=True).print(f"[yellow]skipped:[/] {escape(reason)}", highlight=False, soft_wrap=True)
    entrants = {player.name: player for player in players}
    for name in without:
        if entrants.pop(name, None) is None:
            raise ModelError(f"--without {name}: no such player here; there are {', '.join(sorted(entrants))}")
    if len(entrants) < 2:
        raise ModelError(f"{folder}: a leaderboard needs two players, found {len(entrants)}; add some --with")
    return list(entrants.values())


_COLUMNS = ("rank", "range", "player", "rating", "±", "points", "matches")


def _rows(board: Leaderboard) -> list[tuple[str, ...]]:
    return [
        (
            str(s.rank),
            str(s.rank_range[0]) if s.rank_range[0] == s.rank_range[1] else f"{s.rank_range[0]}-{s.rank_range[1]}",
            s.name,
            f"{s.rating:.0f}",
            f"{s.half_width:.0f}{' ?' if s.provisional else ''}",
            percent(s.score),
            str(s.games),
        )
        for s in board.standings
    ]


def leaderboard_table(board: Leaderboard) -> Table:
    """A leaderboard as people read it."""
    table = Table(caption="± : 95 % interval over mirrored pairs; ? : provisional", caption_justify="left")
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "player" else "right")
    for row in _rows(board):
        table.add_row(*(escape(cell) for cell in row))
    return table


def _write_markdown(path: Path, board: Leaderboard) -> None:
    from palus.errors import StorageError

    lines = [_COLUMNS, tuple("---" if c == "player" else "--:" for c in _COLUMNS), *_rows(board)]
    try:
        path.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror}); choose another place for --output"
        ) from error
