"""`palus demo`: from nothing to a trained, exported, ranked and watchable team, in minutes."""

from __future__ import annotations

import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.rule import Rule

from palus.cli.output import matches_progress, percent, stdout
from palus.cli.rank import leaderboard_table

if TYPE_CHECKING:
    from palus.arena.players import Player
    from palus.arena.tournament import Leaderboard

EPILOG = """
What it does: trains SoccerTwos from random weights with the preset soccertwos-demo, exports SoccerTwos.onnx, plays a
round robin against the random policy, the house bots, its own earlier checkpoints and every model in --models, and
writes one HTML page with its best goals.
"""

PRESET, PLAYER = "soccertwos-demo", "demo"
MODEL_FOLDERS = ("models", "models/soccertwos", "../shared/models/soccertwos")
"""Where strangers' models are looked for when --models is not given."""
OWN_CHECKPOINTS = 3


def demo(
    minutes: Annotated[float, typer.Option(help="Most minutes to train.")] = 6.0,
    pairs: Annotated[int, typer.Option(min=1, help="Mirrored pairs per pairing of the leaderboard.")] = 15,
    models: Annotated[list[Path] | None, typer.Option(help="Folder with strangers' models; may be repeated.")] = None,
    results_dir: Annotated[Path, typer.Option(help="Where the run goes.")] = Path("results"),
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 1,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page at the end.")] = True,
) -> None:
    """Train a team from nothing, watch it get better, rank it, and watch its best goals."""
    started = time.perf_counter()
    folder = results_dir / PLAYER
    stdout.print(Rule("1. Training a team from nothing"))
    _train(folder, minutes, seed)
    stdout.print(Rule("2. The leaderboard"))
    entrants = _entrants(folder, [*(models or [Path(p) for p in MODEL_FOLDERS])])
    board = _rank(entrants, pairs, seed)
    stdout.print(Rule("3. The best goals"))
    page = _goals(folder, entrants, board, seed)
    _what_next(folder, page, time.perf_counter() - started)
    if browser and page is not None and sys.stdout.isatty():
        webbrowser.open(page.resolve().as_uri())


def _train(folder: Path, minutes: float, seed: int) -> None:
    from palus.cli.train import train

    train(
        PRESET,
        [f"palus.max_minutes={minutes}"],
        run_id=folder.name,
        results_dir=str(folder.parent),
        seed=seed,
        resume=False,
        force=True,
        check=False,
        as_json=False,
    )


def _entrants(folder: Path, model_folders: list[Path]) -> list[Player]:
    """The team, some of its earlier selves, the house players and the strangers found; each name once."""
    from palus.arena.players import HOUSE_PLAYERS, find_players
    from palus.cli.players import load, soccer_twos

    spec = soccer_twos()
    own, _ = find_players(folder, spec)
    earlier = sorted((p for p in own if p.name != folder.name), key=lambda p: int(p.name.rpartition("-")[2]))
    step = max(1, len(earlier) // OWN_CHECKPOINTS)
    players = [p for p in own if p.name == folder.name] + earlier[::step][:OWN_CHECKPOINTS] + load(*HOUSE_PLAYERS)
    for models in model_folders:
        if models.is_dir():
            found, skipped = find_players(models, spec)
            players += found
            stdout.print(f"{len(found)} models found in {models}, {len(skipped)} made for other games.")
    return list({player.name: player for player in players}.values())


def _rank(entrants: list[Player], pairs: int, seed: int) -> Leaderboard:
    from palus.arena.tournament import rank_players

    with matches_progress("", pairs * len(entrants) * (len(entrants) - 1)) as tick:
        board = rank_players(entrants, pairs, seed, progress=lambda title, finished: tick(finished, title))
    stdout.print(leaderboard_table(board))
    return board


def _goals(folder: Path, entrants: list[Player], board: Leaderboard, seed: int) -> Path | None:
    """Record matches against the four best others, keep the finest goals, write replay and page."""
    from palus.arena.highlights import record_goals
    from palus.arena.replay import read_replay_bytes, write_replay
    from palus.web.page import write_html

    by_name = {player.name: player for player in entrants}
    rivals = [by_name[s.name] for s in board.standings if not s.name.startswith(("SoccerTwos-", folder.name))][:4]
    goals = record_goals(by_name[folder.name], rivals, pairs=10, seed=seed, per_opponent=3)
    if not goals:
        stdout.print("It scored no goal worth showing yet; train longer with --minutes.")
        return None
    replay = write_replay(folder / "goals.match", goals, title=f"The best goals of {folder.name}")
    data, contents = read_replay_bytes(replay)
    page = write_html(folder / "goals.html", data, contents.title)
    stdout.print(f"The {len(goals)} finest, against {', '.join(rival.name for rival in rivals)}.", soft_wrap=True)
    return page


def _what_next(folder: Path, page: Path | None, seconds: float) -> None:
    from palus.arena.match import play_pairs
    from palus.arena.result import summarize
    from palus.cli.players import load

    team, chaser, random = load(str(folder), "ball-chaser", "random")
    scores = {p.name: summarize(play_pairs(team, p, 100, seed=0)).score for p in (random, chaser)}
    stdout.print(Rule("Done"))
    summary = ", ".join(f"{percent(score)} against {name}" for name, score in scores.items())
    stdout.print(
        f"{seconds / 60:.1f} minutes from random weights to {summary} (share of points, 100 mirrored pairs).",
        soft_wrap=True,
    )
    if page is not None:
        stdout.print(f"\nYour best goals:      {page}   (open it in any browser)")
    stdout.print(f"Your model for Unity: {folder / 'SoccerTwos.onnx'}")
    stdout.print("\nWhat to type next:")
    for line, meaning in (
        ("palus train soccertwos-strong", "within an hour it beats the team that Unity ships"),
        (f"palus match {folder} goalie-striker --replay match.match", "one more test, recorded"),
        ("palus watch match.match", "and watched"),
        ("palus rank FOLDER", "a leaderboard of any folder of .onnx files"),
    ):
        stdout.print(f"  {line:<64}  # {meaning}", highlight=False, soft_wrap=True)
