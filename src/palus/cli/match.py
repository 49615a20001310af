"""`palus match`: two players, mirrored pairs, the score with its interval."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.markup import escape

from palus.cli.output import end_early, matches_progress, nats, percent, percent_range, print_json, stdout

if TYPE_CHECKING:
    from palus.arena.referee.result import MatchResult, Mode, PairingSummary

EPILOG = """
Players: an .onnx file from ML-Agents or palus, a bundle folder (a run's folder is one), a league snapshot (.npz), or
random, ball-chaser, goalie-striker.

Examples:

  palus match results/mine random                       200 pairs: each kick-off is played twice, sides swapped

  palus match results/mine stranger.onnx --pairs 500    narrower interval

  palus match results/mine goalie-striker --pairs 5 --replay best.match     then: palus watch best.match

  palus match results/doom random --game doom_duel --pairs 2 --replay duel.mp4     Doom, one against one, as a video

  palus match a.onnx b.onnx --json                      score, interval, wins, draws, losses and more
"""

QUICK = "What ends soon is over first, so they lean to quick wins; let it finish for a fair number."


@dataclass(frozen=True)
class _Played:
    """results: of the pairs that are over. replay: the file that was written. interrupted: by Ctrl-C."""

    names: tuple[str, str]
    results: tuple[MatchResult, ...]
    replay: Path | None
    interrupted: bool


def match(
    a: Annotated[str, typer.Argument(help="Player A: file, folder or house bot.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Player B.", metavar="B")],
    pairs: Annotated[int, typer.Option(min=1, help="Mirrored pairs; two matches each.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed and players give the same matches.")] = 0,
    mode: Annotated[
        Literal["stochastic", "greedy"],
        typer.Option(help="Draw actions from the policies' probabilities, or take the most probable."),
    ] = "stochastic",
    game: Annotated[
        Literal["SoccerTwos", "doom_duel"], typer.Option(help="What they play; Doom takes palus[doom].")
    ] = "SoccerTwos",
    replay: Annotated[Path | None, typer.Option(help="Write a replay of the first matches here; Doom: .mp4.")] = None,
    replay_matches: Annotated[int, typer.Option(min=1, help="How many matches the replay holds.")] = 10,
    log: Annotated[Path | None, typer.Option(help="Append one JSON line per match to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Play two teams against each other and say who is better, and how sure that is.

    Ctrl-C once tells what was played so far, replay included, and leaves with 130; twice ends at once.
    """
    from palus.arena.referee.result import summarize
    from palus.cli.players import append_log

    if game == "doom_duel":
        played = _duel(a, b, pairs, seed, mode, replay)
    else:
        played = _soccer(a, b, pairs, seed, mode, replay, replay_matches)
    if played.interrupted and not played.results:
        end_early(0, pairs, "pairs")
    summary = summarize(played.results)
    if log is not None:
        append_log(log, played.results)
    if as_json:
        first, second = played.names
        report = {"a": first, "b": second, "seed": seed, "mode": mode, "interrupted": played.interrupted}
        print_json({**report, **asdict(summary)})
    else:
        _tell(played, summary, game == "doom_duel")
    if played.interrupted:
        end_early(len(played.results) // 2, pairs, "pairs", "" if game == "doom_duel" else QUICK)


def _tell(played: _Played, summary: PairingSummary, is_doom: bool) -> None:
    first, second = played.names
    from palus.arena.referee.games import game_of

    tick_s = game_of("doom_duel" if is_doom else "SoccerTwos").tick_s
    low, high = summary.interval
    verdict = "A is better" if low > 0.5 else "B is better" if high < 0.5 else "too close to call"
    stdout.print(
        f"[bold]{escape(first)}[/] - [bold]{escape(second)}[/]   "
        f"[bold]{percent(summary.score)}[/] of the points ({percent_range(summary.interval)}, 95 %): {verdict}",
        soft_wrap=True,
    )
    stdout.print(
        f"{summary.wins} won, {summary.draws} drawn, {summary.losses} lost in {summary.pairs} mirrored pairs; "
        f"{summary.mean_steps * tick_s:.1f} s per match; policy entropy {nats(summary.entropy_a)} and "
        f"{nats(summary.entropy_b)} nats",
        soft_wrap=True,
    )
    if played.replay is not None:
        stdout.print(f"Replay: {'' if is_doom else 'palus watch '}{escape(str(played.replay))}", soft_wrap=True)


def _soccer(a: str, b: str, pairs: int, seed: int, mode: Mode, replay: Path | None, replay_matches: int) -> _Played:
    """Matches of SoccerTwos. The replay has those of its matches that are over."""
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.recorder import Recorder
    from palus.cli.players import load, save_replay
    from palus.run.session import interruptible

    first, second = load(a, b)
    recorder = None if replay is None else Recorder(range(min(replay_matches, 2 * pairs)))
    with interruptible() as stopped, matches_progress(f"{first.name} - {second.name}", 2 * pairs) as tick:
        results = play_pairs(first, second, pairs, seed, mode=mode, recorder=recorder, progress=tick, stopped=stopped)
    if replay is not None and recorder is not None and recorder.recordings:
        save_replay(replay, recorder, f"{first.name} - {second.name}")
    else:
        replay = None
    return _Played((first.name, second.name), results, replay, stopped())


def _duel(a: str, b: str, pairs: int, seed: int, mode: Mode, replay: Path | None) -> _Played:
    """Doom's matches; a replay is a video of what both players see, all matches one after another."""
    from palus.arena.models.players import load_player
    from palus.arena.referee.games import source_of
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.recorder import Film
    from palus.cli.players import refresh_onnx
    from palus.run.session import interruptible

    for word in (a, b):
        refresh_onnx(Path(word))
    spec = source_of("doom_duel").spec
    first, second = (load_player(word, spec) for word in (a, b))
    with ExitStack() as stack:
        stopped = stack.enter_context(interruptible())
        tick = stack.enter_context(matches_progress(f"{first.name} - {second.name}", 2 * pairs))
        recorder = None
        if replay is not None:
            from palus.run.video import VideoWriter

            video = stack.enter_context(VideoWriter(replay, spec.fps))
            recorder = Film(lambda _, picture: video.write(picture), every_tick=True)
        results = play_pairs(
            first,
            second,
            pairs,
            seed,
            mode=mode,
            env_id="doom_duel",
            recorder=recorder,
            progress=tick,
            stopped=stopped,
        )
    return _Played((first.name, second.name), results, replay, stopped())
