"""`palus compare`: is B better than A? Plays until a sequential test is sure, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from palus.cli.options import GameOption, ModeOption
from palus.cli.output import end_early, percent, percent_range, print_json, progress_bar, stdout

if TYPE_CHECKING:
    from palus.arena.models.players import Player
    from palus.arena.referee.result import MatchResult, PairingSummary
    from palus.ratings.sequential import Hypotheses, SequentialTest

EPILOG = """
Two hypotheses are weighed after every batch of mirrored pairs: B is `--elo0` or `--elo1` points better than A (score
Elo: 0 = half of the points, 35 = 55 %, 100 = 64 %). The log likelihood ratio walks between two bounds, about -2.94 and
+2.94; whichever it reaches first decides. Close teams take hundreds of pairs, clear differences tens.

Examples:

  # is the new team better than the old one?
  palus compare old.onnx results/mine

  # is B at least not worse?
  palus compare a.onnx b.onnx --elo0 -20 --elo1 0

  # only a clear difference matters: quick
  palus compare a.onnx b.onnx --elo1 100

  # another game, where no run tells which
  palus compare agents/old agents/new --game StrikersVsGoalie

  palus compare a.onnx b.onnx --json
"""

FIRST_BATCH = 8
"""Pairs of the first batch: about what is stepped side by side at full speed on two cores."""
LARGEST_BATCH = 64

Outcome = Literal["better", "not better", "undecided"]


def compare(
    a: Annotated[str, typer.Argument(help="Player A, the old one: file, folder or house bot.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Player B, the new one.", metavar="B")],
    elo0: Annotated[
        float, typer.Option(min=-4000, max=4000, help="B counts as not better at this many points over A.")
    ] = 0.0,
    elo1: Annotated[
        float, typer.Option(min=-4000, max=4000, help="B counts as better at this many points over A.")
    ] = 35.0,
    alpha: Annotated[float, typer.Option(help="Accepted chance of calling B better when it is not.")] = 0.05,
    beta: Annotated[float, typer.Option(help="Accepted chance of missing that B is better.")] = 0.05,
    max_pairs: Annotated[int, typer.Option(min=1, help="Stop undecided after this many mirrored pairs.")] = 2000,
    seed: Annotated[int, typer.Option(help="The same seed and players give the same matches.")] = 0,
    mode: ModeOption = "stochastic",
    game: GameOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Say whether team B is better than team A, from as few matches as the error rates allow.

    Ctrl-C once tells what was played so far, and leaves with 130; twice ends at once.
    """
    from palus.arena.referee.games import playable_game
    from palus.arena.referee.result import summarize
    from palus.cli.players import game_meant, load
    from palus.ratings.sequential import Hypotheses
    from palus.run.session import interruptible

    try:
        hypotheses = Hypotheses(elo0, elo1, alpha, beta)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    playable_game(game := game_meant(game, a, b))
    old, new = load(a, b, game=game)
    with interruptible() as stopped:
        results, test = _play(old, new, game, hypotheses, max_pairs, seed, mode, stopped)
        interrupted = stopped() and test.decision is None
    if interrupted and not results:
        end_early(0, max_pairs, "pairs")
    summary, outcome, void_pairs = summarize(results), test.decision or "undecided", len(results) // 2 - test.pairs
    if as_json:
        report = {
            "a": old.name,
            "b": new.name,
            "outcome": outcome,
            "llr": test.llr,
            "bounds": (hypotheses.lower, hypotheses.upper),
            "hypotheses": hypotheses,
            "pair_counts": test.counts,
            "score_of_b": summary.score,
            "interval": summary.interval,
            "wins_of_b": summary.wins,
            "draws": summary.draws,
            "losses_of_b": summary.losses,
            "pairs": summary.pairs,
            "void_pairs": void_pairs,
            "seed": seed,
            "mode": mode,
            "interrupted": interrupted,
        }
        print_json(report)
    else:
        _tell(outcome, summary, test, escape(old.name), escape(new.name))
        if void_pairs:
            stdout.print(f"{void_pairs} pairs do not count: a game in them was void.")
    if interrupted:
        end_early(len(results) // 2, max_pairs, "pairs")


def _play(
    old: Player,
    new: Player,
    game: str,
    hypotheses: Hypotheses,
    max_pairs: int,
    seed: int,
    mode: Literal["stochastic", "greedy"],
    stopped: Callable[[], bool],
) -> tuple[list[MatchResult], SequentialTest]:
    """Batches of pairs until the test decides or the pairs run out: all that was played, and where the test stands.

    Batches grow with what was played, so a long test looks rarely and a short one is not overshot by much. Looking less
    often than after every pair only makes the error rates smaller. The batch that Ctrl-C stops does not count: what is
    over soon would lead it.
    """
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.result import points_of_a
    from palus.arena.referee.sampling import pair_seeds
    from palus.ratings.sequential import SequentialTest

    all_results: list[MatchResult] = []
    test, seeds, played = SequentialTest(hypotheses), pair_seeds(seed, max_pairs), 0
    low, high = hypotheses.lower, hypotheses.upper
    title = escape(f"{new.name} - {old.name}")
    with progress_bar(title, high - low, "{task.fields[state]}", state="") as update:  # between the test's bounds
        while test.decision is None and played < max_pairs:
            state = f"{low:+.2f} < {test.llr:+.2f} < {high:+.2f} after {test.pairs} pairs"
            update(completed=min(max(test.llr, low), high) - low, state=state)
            batch = min(max(FIRST_BATCH, played // 4), LARGEST_BATCH, max_pairs - played)
            # The new player comes first: the results are seen from its side.
            results = play_pairs(new, old, batch, int(seeds[played]), mode=mode, env_id=game, stopped=stopped)
            if stopped():
                break
            points = points_of_a(results)
            pairs = zip(points[::2], points[1::2], strict=True)
            test = test.after([(one + two) / 2 for one, two in pairs if one is not None and two is not None])
            all_results += results
            played += batch
    return all_results, test


def _tell(outcome: Outcome, summary: PairingSummary, test: SequentialTest, a: str, b: str) -> None:
    rule = test.hypotheses
    sentences: dict[Outcome, str] = {
        "better": f"[bold]{b}[/] is [bold]better[/] than {a}: the results fit a lead of {rule.elo1:g} points, "
        f"not of {rule.elo0:g}. Were it {rule.elo0:g}, a test would say so in {percent(rule.alpha)} of the cases.",
        "not better": f"[bold]{b}[/] is [bold]not better[/] than {a}: the results fit a lead of {rule.elo0:g} points, "
        f"not of {rule.elo1:g}. Were it {rule.elo1:g}, a test would say so in {percent(rule.beta)} of the cases.",
        "undecided": f"[bold]Undecided[/] whether {b} is better than {a}: raise --max-pairs, or ask for a larger "
        "difference with --elo1.",
    }
    stdout.print(sentences[outcome])
    stdout.print(
        f"{b} took {percent(summary.score)} of the points ({percent_range(summary.interval)}, 95 %): "
        f"{summary.wins} won, {summary.draws} drawn, {summary.losses} lost in {summary.pairs} mirrored pairs."
    )
    stdout.print(
        f"Log likelihood ratio {test.llr:+.2f}, bounds {rule.lower:+.2f} and {rule.upper:+.2f}. A series that stops "
        "when it is sure flatters whoever leads a little: for a number, play a fixed one with palus match."
    )
