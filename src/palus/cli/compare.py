"""`palus compare`: is B better than A? Plays until a sequential test is sure, and no longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from palus.cli.output import ModeOption, percent, percent_range, print_json, progress_bar, stdout

if TYPE_CHECKING:
    from palus.arena.models.players import Player
    from palus.arena.referee.result import MatchResult
    from palus.ratings.sequential import Hypotheses, SequentialTest

EPILOG = """
Two hypotheses are weighed after every batch of mirrored pairs: B is `--elo0` or `--elo1` points better than A (score
Elo: 0 = half of the points, 35 = 55 %, 100 = 64 %). The log likelihood ratio walks between two bounds, about -2.94 and
+2.94; whichever it reaches first decides. Close teams take hundreds of pairs, clear differences tens.

Examples:

  palus compare old.onnx results/mine                   is the new team better than the old one?

  palus compare a.onnx b.onnx --elo0 -20 --elo1 0       is B at least not worse?

  palus compare a.onnx b.onnx --elo1 100                only a clear difference matters: quick

  palus compare a.onnx b.onnx --json
"""

FIRST_BATCH = 8
"""Pairs of the first batch: about what is stepped side by side at full speed on two cores."""
LARGEST_BATCH = 64

Outcome = Literal["better", "not better", "undecided"]


@dataclass(frozen=True)
class _Series:
    """All that was played, and where the test stands."""

    results: tuple[MatchResult, ...]
    test: SequentialTest
    void_pairs: int

    @property
    def outcome(self) -> Outcome:
        return self.test.decision or "undecided"


def compare(
    a: Annotated[str, typer.Argument(help="Player A, the old one: file, folder or house bot.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Player B, the new one.", metavar="B")],
    elo0: Annotated[float, typer.Option(help="B counts as not better at this many points over A.")] = 0.0,
    elo1: Annotated[float, typer.Option(help="B counts as better at this many points over A.")] = 35.0,
    alpha: Annotated[float, typer.Option(help="Accepted chance of calling B better when it is not.")] = 0.05,
    beta: Annotated[float, typer.Option(help="Accepted chance of missing that B is better.")] = 0.05,
    max_pairs: Annotated[int, typer.Option(min=1, help="Stop undecided after this many mirrored pairs.")] = 2000,
    seed: Annotated[int, typer.Option(help="The same seed and players give the same matches.")] = 0,
    mode: ModeOption = "stochastic",
    as_json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Say whether team B is better than team A, from as few matches as the error rates allow."""
    from palus.cli.players import load
    from palus.ratings.sequential import Hypotheses

    try:
        hypotheses = Hypotheses(elo0, elo1, alpha, beta)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    old, new = load(a, b)
    series = _play(old, new, hypotheses, max_pairs, seed, mode)
    if as_json:
        print_json(_report(series, old.name, new.name, seed, mode))
    else:
        _tell(series, old.name, new.name)


def _play(
    old: Player, new: Player, hypotheses: Hypotheses, max_pairs: int, seed: int, mode: Literal["stochastic", "greedy"]
) -> _Series:
    """Batches of pairs until the test decides or the pairs run out.

    Batches grow with what was played, so a long test looks rarely and a short one is not overshot by much. Looking less
    often than after every pair only makes the error rates smaller.
    """
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.sampling import pair_seeds
    from palus.ratings.sequential import SequentialTest

    series = _Series((), SequentialTest(hypotheses), 0)
    seeds = pair_seeds(seed, max_pairs)
    played = 0
    with _bounds_progress(f"{new.name} - {old.name}", hypotheses) as show:
        while series.test.decision is None and played < max_pairs:
            batch = min(max(FIRST_BATCH, played // 4), LARGEST_BATCH, max_pairs - played)
            # The new player comes first: the results are seen from its side.
            results = play_pairs(new, old, batch, int(seeds[played]), mode=mode)
            series = _with(series, results)
            played += batch
            show(series.test)
    return series


def _with(series: _Series, results: tuple[MatchResult, ...]) -> _Series:
    from palus.arena.referee.result import points_of_a

    points = points_of_a(results)
    pairs = list(zip(points[::2], points[1::2], strict=True))
    shares = [(first + second) / 2 for first, second in pairs if first is not None and second is not None]
    void = series.void_pairs + len(pairs) - len(shares)
    return _Series(series.results + results, series.test.after(shares), void)


@contextmanager
def _bounds_progress(title: str, hypotheses: Hypotheses) -> Iterator[Callable[[SequentialTest], None]]:
    """Where the ratio stands between its bounds, on stderr; absent when that is no terminal."""
    from palus.ratings.sequential import SequentialTest

    low, high = hypotheses.lower, hypotheses.upper
    with progress_bar(escape(title), high - low, "{task.fields[state]}", state="") as update:

        def show(test: SequentialTest) -> None:
            llr = test.llr
            state = f"{low:+.2f} < {llr:+.2f} < {high:+.2f} after {test.pairs} pairs"
            update(completed=min(max(llr, low), high) - low, state=state)

        show(SequentialTest(hypotheses))
        yield show


def _report(series: _Series, old: str, new: str, seed: int, mode: str) -> dict[str, object]:
    from palus.arena.referee.result import summarize

    summary, test = summarize(series.results), series.test
    return {
        "a": old,
        "b": new,
        "outcome": series.outcome,
        "llr": test.llr,
        "bounds": (test.hypotheses.lower, test.hypotheses.upper),
        "hypotheses": test.hypotheses,
        "pair_counts": test.counts,
        "score_of_b": summary.score,
        "interval": summary.interval,
        "wins_of_b": summary.wins,
        "draws": summary.draws,
        "losses_of_b": summary.losses,
        "pairs": summary.pairs,
        "void_pairs": series.void_pairs,
        "seed": seed,
        "mode": mode,
    }


def _tell(series: _Series, old: str, new: str) -> None:
    from palus.arena.referee.result import summarize

    summary, test = summarize(series.results), series.test
    rule, a, b = test.hypotheses, escape(old), escape(new)
    sentences: dict[Outcome, str] = {
        "better": f"[bold]{b}[/] is [bold]better[/] than {a}: the results fit a lead of {rule.elo1:g} points, "
        f"not of {rule.elo0:g}. Were it {rule.elo0:g}, a test would say so in {percent(rule.alpha)} of the cases.",
        "not better": f"[bold]{b}[/] is [bold]not better[/] than {a}: the results fit a lead of {rule.elo0:g} points, "
        f"not of {rule.elo1:g}. Were it {rule.elo1:g}, a test would say so in {percent(rule.beta)} of the cases.",
        "undecided": f"[bold]Undecided[/] whether {b} is better than {a}: raise --max-pairs, or ask for a larger "
        "difference with --elo1.",
    }
    stdout.print(sentences[series.outcome])
    stdout.print(
        f"{b} took {percent(summary.score)} of the points ({percent_range(summary.interval)}, 95 %): "
        f"{summary.wins} won, {summary.draws} drawn, {summary.losses} lost in {summary.pairs} mirrored pairs."
    )
    stdout.print(
        f"Log likelihood ratio {test.llr:+.2f}, bounds {rule.lower:+.2f} and {rule.upper:+.2f}. A series that stops "
        "when it is sure flatters whoever leads a little: for a number, play a fixed one with palus match."
    )
    if series.void_pairs:
        stdout.print(f"{series.void_pairs} pairs do not count: a game in them was void.")
