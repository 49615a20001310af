"""`palus rank`: a round robin of a whole folder and its leaderboard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from palus.cli.options import GameOption, LogOption
from palus.cli.output import (
    check_place,
    end_early,
    matches_progress,
    percent,
    print_json,
    ranks,
    standings,
    stderr,
    stdout,
)
from palus.errors import ModelError, StorageError

if TYPE_CHECKING:
    from palus.arena.models.players import Player
    from palus.arena.study.tournament import Leaderboard

EPILOG = """
Ratings are Bradley-Terry strengths around 1200, fitted to all matches together; 400 points mean 10:1 odds. The range of
ranks is what the matches leave open: players whose ranges overlap may well be equally strong.

Examples:

  # every .onnx, bundle and snapshot in it, and the house bots
  palus rank models/

  # a run: its policy and its last checkpoints
  palus rank results/mine

  # did self-play get better?
  palus rank results/mine/SoccerTwos/snapshots --pairs 20

  palus rank models/ --with results/mine --without goalie-striker

  # Doom, one against one
  palus rank agents/ --game doom_duel --pairs 5

  palus rank models/ --json --log matches.jsonl
"""


def rank(
    folder: Annotated[Path, typer.Argument(help="Folder with .onnx files, bundles or snapshots.")],
    pairs: Annotated[int, typer.Option(min=1, help="Mirrored pairs per pairing of players.")] = 50,
    also: Annotated[list[str] | None, typer.Option("--with", help="One more player; may be repeated.")] = None,
    without: Annotated[list[str] | None, typer.Option(help="Leave out a player of this name.")] = None,
    seed: Annotated[int, typer.Option(help="The same seed and players give the same leaderboard.")] = 0,
    game: GameOption = None,
    output: Annotated[Path | None, typer.Option(help="Also write the leaderboard as Markdown here.")] = None,
    log: LogOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the leaderboard as JSON.")] = False,
) -> None:
    """Let everybody in a folder play everybody and print the leaderboard, with intervals.

    The random policy and the house bots of the game take part unless left out. A file that cannot be played is
    named and skipped.

    Ctrl-C once makes the leaderboard of what was played so far and leaves with 130; twice ends at once.
    """
    from palus.arena.models.players import find_players
    from palus.arena.referee.games import GAMES, playable_game, source_of
    from palus.arena.study.tournament import rank_players
    from palus.cli.players import append_log, game_meant, game_of_run, load, refresh_onnx
    from palus.run.session import interruptible

    runs = (str(run) for run in sorted(folder.glob("*/")) if game_of_run(run) in GAMES)
    declared = playable_game(game := game_meant(game, str(folder), *runs, *(also or [])))
    if folder.is_file():
        raise ModelError(f"{folder}: a file; give the folder that it is in, or let it play with palus match")
    if declared.filmed:
        for run in filter(Path.is_dir, folder.glob("*")):
            refresh_onnx(run)
    found, rejected = find_players(folder, source_of(game).spec)
    for reason in rejected:
        stderr.print(f"[yellow]skipped:[/] {escape(reason)}")
    if not found:
        lacking = f"{folder}: no model in it that plays {game}"
        if not also:
            raise ModelError(f"{lacking}; give a folder with .onnx files, bundles or snapshots, or a run's")
        stderr.print(f"[yellow]warning:[/] {escape(lacking)}")
    check_place(log, "--log")
    check_place(output, "--output")
    named = load(*declared.house, *(also or []), game=game)
    entrants = _entrants([*named, *found], folder, without or [])
    planned = pairs * len(entrants) * (len(entrants) - 1)
    with interruptible() as stopped, matches_progress("", planned) as tick:
        board = rank_players(
            entrants, pairs, seed, env_id=game, progress=lambda title, n: tick(n, title), stopped=stopped
        )
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
        stdout.table(leaderboard_table(board))
        for names, tied in board.loose:
            stdout.print(
                f"[yellow]Careful:[/] only {tied} pairs tie {escape(', '.join(names))} to the others; ratings cannot "
                "be compared across that gap. Let them play more pairs."
            )
        low, high = (board.blue_advantage[0] + sign * board.blue_advantage[1] for sign in (-1, 1))
        stdout.print(
            f"{len(board.results)} matches. Playing blue is worth {low:+.0f} to {high:+.0f} points (0 = a fair field)."
        )
    if interrupted:
        end_early(len(board.results), planned, "matches", "Pairings that did not begin are missing.")


def leaderboard_table(board: Leaderboard) -> Table:
    """The standings as a terminal shows them."""
    return standings(_COLUMNS, _rows(board))


def _entrants(players: list[Player], folder: Path, without: list[str]) -> list[Player]:
    """Who takes part, each name once."""
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
            ranks(s.rank_range),
            s.name,
            f"{s.rating:.0f}",
            f"{s.half_width:.0f}{' ?' if s.provisional else ''}",
            percent(s.score),
            str(s.games),
        )
        for s in board.standings
    ]


def _write_markdown(path: Path, board: Leaderboard) -> None:
    lines = [_COLUMNS, tuple("---" if c == "player" else "--:" for c in _COLUMNS), *_rows(board)]
    try:
        path.write_text("".join(f"| {' | '.join(line)} |\n" for line in lines), encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"{path}: cannot be written ({error.strerror}); choose another place for --output"
        ) from error
