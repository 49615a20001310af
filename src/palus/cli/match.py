"""`palus match`: two players, mirrored pairs, the score with its interval."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus.cli.options import GameOption, LogOption, ModeOption
from palus.cli.output import (
    check_place,
    end_early,
    matches_progress,
    nats,
    percent,
    percent_range,
    print_json,
    stdout,
    typed,
)
from palus.errors import EnvError, ModelError, PalusError, ReplayError

if TYPE_CHECKING:
    from palus.arena.referee.result import Mode, PairingSummary

EPILOG = """
Players: an .onnx file from ML-Agents or palus, a bundle folder (a run's folder is one), a league snapshot (.npz), or
random, ball-chaser, goalie-striker.

Examples:

  # 200 pairs: each kick-off is played twice, sides swapped
  palus match results/mine random

  # narrower interval
  palus match results/mine stranger.onnx --pairs 500

  # then: palus watch best.match
  palus match results/mine goalie-striker --pairs 5 --replay best.match

  # Doom, one against one, as a video
  palus match results/doom random --game doom_duel --pairs 2 --replay duel.mp4

  # in a Unity game, half of the matches on either team
  palus match results/new results/old --env Builds/Game

  # score, interval, wins, draws, losses and more
  palus match a.onnx b.onnx --json
"""

QUICK = "What ends soon is over first, so they lean to quick wins; let it finish for a fair number."


def match(
    a: Annotated[str, typer.Argument(help="Player A: file, folder or house bot.", metavar="A")],
    b: Annotated[str, typer.Argument(help="Player B.", metavar="B")],
    pairs: Annotated[int, typer.Option(min=1, help="Mirrored pairs; two matches each.")] = 200,
    seed: Annotated[int, typer.Option(help="The same seed and players give the same matches.")] = 0,
    mode: ModeOption = "stochastic",
    game: GameOption = None,
    replay: Annotated[
        Path | None, typer.Option(help="Write a replay (.match) of the first matches here; Doom: .mp4.")
    ] = None,
    replay_matches: Annotated[int | None, typer.Option(min=1, help="How many matches it holds; default 10.")] = None,
    log: LogOption = None,
    env: Annotated[
        str | None,
        typer.Option(help="A Unity executable to play in instead; `UnityEditor` for the Editor."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Play two teams against each other and say who is better, and how sure that is.

    Ctrl-C once tells what was played so far, replay included, and leaves with 130; twice ends at once.
    """
    if replay_matches is not None and replay is None:
        raise ReplayError(f"--replay-matches {replay_matches}: of which replay? Name its file: --replay FILE.match")
    if env is not None:
        if game is not None:
            raise EnvError(f"--game {game}: with --env its game is played; leave one of them out")
        if replay or log:
            raise EnvError(
                f"{replay or log}: replays and match logs are of palus's own games; leave them out with --env"
            )
        _in_executable(env, (a, b), pairs, seed, mode, as_json)
        return
    from palus.arena.referee.games import playable_game, source_of
    from palus.arena.referee.match import play_pairs
    from palus.arena.referee.recorder import Film, Recorder
    from palus.arena.referee.replay import write_replay
    from palus.arena.referee.result import summarize
    from palus.cli.players import append_log, game_meant, load
    from palus.run.session import interruptible

    declared = playable_game(game := game_meant(game, a, b))
    ending, what = (".mp4", "a video") if declared.filmed else (".match", "a replay")
    if replay is not None and replay.suffix != ending:
        named = replay.parent / f"{replay.stem or 'first'}{ending}"
        raise ReplayError(f"--replay {replay}: of {game} {what} is written; use {named}")
    check_place(log, "--log")
    check_place(replay, "--replay", made=True)
    try:
        filmed, (first, second) = declared.filmed, load(a, b, game=game)
    except ModelError as error:
        raise ModelError(f"{error}{_where_else(a, b)}") from error
    names = (first.name, second.name)
    title = " - ".join(names)
    with ExitStack() as stack:
        stopped = stack.enter_context(interruptible())
        tick = stack.enter_context(matches_progress(title, 2 * pairs))
        recorder: Film | Recorder | None = None
        if replay is not None and filmed:
            from palus.video import video_file

            write = stack.enter_context(video_file(replay, source_of(game).spec.fps))
            recorder = Film(lambda _, picture: write(picture), every_tick=True)
        elif replay is not None:
            recorder = Recorder(range(min(replay_matches or 10, 2 * pairs)))
        play = partial(play_pairs, mode=mode, env_id=game, recorder=recorder, progress=tick, stopped=stopped)
        results = play(first, second, pairs, seed)
        interrupted = stopped()
    if interrupted and not results:
        end_early(0, pairs, "pairs")
    if isinstance(recorder, Recorder) and replay is not None:
        recorded = [recorder.recordings[number] for number in sorted(recorder.recordings)]
        replay = write_replay(replay, recorded, title=title) if recorded else None
    if log is not None:
        append_log(log, results)
    summary = summarize(results)
    if as_json:
        report = {"a": names[0], "b": names[1], "seed": seed, "mode": mode, "interrupted": interrupted}
        print_json({**report, **asdict(summary)})
    else:
        played = f"{summary.pairs} mirrored pair{'s' * (summary.pairs > 1)}"
        _tell(names, summary, played, f"{summary.mean_steps * declared.tick_s:.1f} s")
        if replay is not None:
            stdout.print(f"Replay: {escape(str(replay)) if filmed else f'palus watch {typed(replay)}'}")
    if interrupted:
        end_early(len(results) // 2, pairs, "pairs", "" if filmed else QUICK)


def _where_else(*players: str) -> str:
    """Of players that `--game` cannot load: a run of a Unity game plays there."""
    from palus.config import load_run

    for word in players:
        file = Path(word, "configuration.yaml")
        with suppress(PalusError):
            if file.is_file() and load_run(file).talks:
                return f". {word} was trained in a Unity game; to play there, say which: --env GAME"
    return ""


def _in_executable(env: str, players: tuple[str, str], pairs: int, seed: int, mode: Mode, as_json: bool) -> None:
    """The same in a game of Unity's."""
    from palus.run.session import interruptible
    from palus.run.talking_match import opened, play_match, players_of

    with interruptible() as stopped, opened(env, seed) as source:
        first, second = players_of(players, source.spec)
        names = (first.name, second.name)
        with matches_progress(" - ".join(names), 2 * pairs) as tick:
            summary = play_match(source, first, second, pairs, seed, mode=mode, progress=tick, stopped=stopped)
        interrupted = stopped()
    if as_json:
        report = {"a": names[0], "b": names[1], "env": env, "seed": seed, "mode": mode, "interrupted": interrupted}
        print_json({**report, **asdict(summary)})
    elif summary.pairs:
        _tell(
            names, summary, f"{2 * summary.pairs} matches, half on either team", f"{summary.mean_steps:.0f} decisions"
        )
    if interrupted:
        end_early(summary.pairs, pairs, "pairs", QUICK)


def _tell(names: tuple[str, str], summary: PairingSummary, what: str, length: str) -> None:
    low, high = summary.interval
    verdict = "A is better" if low > 0.5 else "B is better" if high < 0.5 else "too close to call"
    stdout.print(
        f"[bold]{escape(names[0])}[/] - [bold]{escape(names[1])}[/]   "
        f"[bold]{percent(summary.score)}[/] of the points ({percent_range(summary.interval)}, 95 %): {verdict}"
    )
    stdout.print(
        f"{summary.wins} won, {summary.draws} drawn, {summary.losses} lost in {what}; "
        f"{length} per match; policy entropy {nats(summary.entropy_a)} and "
        f"{nats(summary.entropy_b)} nats"
    )
