"""`palus demo`: from nothing to a trained, published, ranked and watchable team, in minutes."""

from __future__ import annotations

import sys
import time
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.rule import Rule

from palus.cli.options import MOST_MINUTES
from palus.cli.output import percent, print_json, stderr, stdout
from palus.processes import require_fork

if TYPE_CHECKING:
    from palus.cli.demo_arena import DemoArena

EPILOG = """
What it does: trains SoccerTwos from random weights with the preset soccertwos-demo, on a page that shows it, exports
SoccerTwos.onnx, starts an arena on this machine, pushes the team to its hub, lets it fight the house bots, its own
earlier selves and every model in --models until the leaderboard knows its place, and writes one HTML page with its best
goals. Then the arena goes on until Ctrl-C: watch matches, play against your team, push more.

Examples:

  palus demo

  # without opening a browser, and over when the board is there
  palus demo --minutes 3 --no-browser --leave
"""

PLAYER = "demo"
PAIRS = 100
"""Mirrored pairs against each fixed opponent: for the last line and for the card."""
MODEL_FOLDERS = ("models", "models/soccertwos", "../shared/models/soccertwos")
"""Where strangers' models are looked for when --models is not given."""
PRESET = "soccertwos-demo"
FEWEST_STEPS = 4_000_000
"""With less the team would hardly have learned to score; the clock then ends the training early."""


def demo(
    minutes: Annotated[float, typer.Option(min=0.01, max=MOST_MINUTES, help="Most minutes to train.")] = 6.0,
    arena_minutes: Annotated[
        float, typer.Option(min=0, max=MOST_MINUTES, help="Most minutes of matches until the board is shown.")
    ] = 1.5,
    models: Annotated[
        list[Path] | None,
        typer.Option(exists=True, file_okay=False, help="Folder with strangers' models; may be repeated."),
    ] = None,
    results_dir: Annotated[Path, typer.Option(help="Where the run and the arena go.")] = Path("results"),
    seed: Annotated[int, typer.Option(help="Seed of the run.")] = 1,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the live page, at the end the leaderboard.")
    ] = True,
    stay: Annotated[
        bool | None, typer.Option("--stay/--leave", help="Keep the arena until Ctrl-C. Default: in a terminal.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON on standard output.")] = False,
) -> None:
    """Train a team from nothing, push it to an arena of your own, watch it fight."""
    from palus.cli.demo_arena import await_place, board, board_table, invite, running_arena

    require_fork("the arena, in which the demo ends,")
    started = time.perf_counter()
    console = stderr if as_json else stdout
    folder = results_dir / PLAYER
    console.print(Rule("1. Training a team from nothing"))
    in_terminal = sys.stdout.isatty()
    stays = in_terminal if stay is None else stay
    train_team(folder, minutes, seed, console, browser=browser and in_terminal and stays)
    console.print(Rule("2. The best goals"))
    page = _goals(folder, seed, console)
    scores = _measure(folder)
    console.print(Rule("3. The arena"))
    with running_arena(results_dir / "arena") as arena:
        repo = invite(arena, folder, models or [Path(p) for p in MODEL_FOLDERS], console)
        place = await_place(arena, repo, 60.0 * arena_minutes)
        rows = board(arena)
        console.table(board_table(rows, repo))
        wins = place.best_wins if place is not None else []
        watch = f"{arena.url}/match?id={wins[0].id}" if wins else None
        result = {
            "minutes": (time.perf_counter() - started) / 60,
            "scores": scores,
            "repo": repo,
            "board": [row.model_dump() for row in rows],
            "first_replay": watch,
            "model": str(folder / "SoccerTwos.onnx"),
            "page": None if page is None else str(page),
        }
        _what_next(result, arena, stays, console)
        if as_json:
            print_json(result)
        if browser and in_terminal and stays:
            webbrowser.open(arena.url)
        if stays:
            _stay(arena, console)


def train_team(folder: Path, minutes: float, seed: int, console: Console, *, browser: bool = False) -> None:
    """Train the run `folder` for at most `minutes`, with a live page, which a browser shows on request.

    Its schedules fit: learning rate and entropy weight have to fall to their ends in the time that there is, since that
    is when a team becomes good.
    """
    from palus.cli.train import train
    from palus.config import load_run
    from palus.launch.pace import fitted

    with console.status("Compiling the game and measuring this machine ..."):
        steps = max(FEWEST_STEPS, fitted(load_run(PRESET), minutes).behaviors["SoccerTwos"].max_steps)
    console.print(f"{steps / 1e6:.1f}M steps fit into {minutes:g} minutes here.")
    train(
        PRESET,
        [f"palus.max_minutes={minutes}", f"behaviors.SoccerTwos.max_steps={steps}"],
        run_id=folder.name,
        results_dir=str(folder.parent),
        seed=seed,
        force=True,
        watch=True,
        browser=browser,
    )


def _goals(folder: Path, seed: int, console: Console) -> Path | None:
    """Record matches against the house bots, keep the finest goals, write replay and page."""
    from palus.arena.referee.replay import read_replay, write_replay
    from palus.arena.study.highlights import record_wins
    from palus.cli.players import load
    from palus.web.page import write_html

    team, *rivals = load(str(folder), "goalie-striker", "ball-chaser")
    goals = record_wins(team, rivals, pairs=10, seed=seed, per_opponent=4)
    if not goals:
        console.print("It scored no goal worth showing yet; train longer with --minutes.")
        return None
    replay = write_replay(folder / "goals.match", goals, title=f"The best goals of {folder.name}")
    data, contents = read_replay(replay)
    page = write_html(folder / "goals.html", data, contents.title)
    console.print(f"The {len(goals)} finest against {' and '.join(rival.name for rival in rivals)}: {page}")
    return page


def _measure(folder: Path) -> dict[str, float]:
    """Share of points against the fixed opponents of every run, entered into the bundle, so that its card says so."""
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.result import summarize
    from palus.cli.players import load
    from palus.export.bundle import record_results
    from palus.hub.model_card import refresh_card

    team, *others = load(str(folder), "random", "ball-chaser")
    scores = {other.name: summarize(play_pairs(team, other, PAIRS, seed=0)).score for other in others}
    record_results(folder, scores, PAIRS)
    refresh_card(folder)
    return scores


def _what_next(result: dict[str, Any], arena: DemoArena, stays: bool, console: Console) -> None:
    console.print(Rule("Done"))
    summary = ", ".join(f"{percent(score)} against {name}" for name, score in result["scores"].items())
    console.print(
        f"{result['minutes']:.1f} minutes from random weights to {summary} (share of points, {PAIRS} mirrored pairs)."
    )
    if not stays:
        console.print(f"The arena ends with the demo; these addresses answer again after: {arena.command}")
    lines = (
        ("Leaderboard:", arena.url),
        ("Your team:", f"{arena.url}/{result['repo']}"),
        ("Its best win:", result["first_replay"] or "none yet; the arena goes on"),
        ("Play against it:", f"{arena.url}/room?purple={result['repo']}&play=1"),
        ("Your best goals:", f"{result['page']}   (open it in any browser)" if result["page"] else "none yet"),
        ("Your model for Unity:", result["model"]),
    )
    for what, where in lines:
        console.print(f"{what:<22}{where}")
    console.print("\nWhat to type next:")
    for line, meaning in (
        ("palus train soccertwos-strong", "within minutes it beats the team that Unity ships"),
        (f"palus push results/YOURS {arena.owner}/YOURS --hub {arena.url}", "and joins this arena"),
        (arena.command, "this arena again, any time"),
        ("palus compare A B", "is B better than A? as few matches as that takes"),
    ):
        console.print(f"  {line:<64}  # {meaning}")


def _stay(arena: DemoArena, console: Console) -> None:
    """Let the arena go on until Ctrl-C."""
    console.print(f"\nThe arena goes on at {arena.url}; Ctrl-C ends it, nothing is lost.")
    try:
        while True:
            time.sleep(3600)
    except KeyboardInterrupt:
        console.print("Stopping the arena.")
