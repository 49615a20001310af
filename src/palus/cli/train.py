"""`palus train`: validate a run file, train, export."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus import envs
from palus.cli.live import live_page
from palus.cli.options import MOST_MINUTES, TrustOption, check_trust, told_where
from palus.cli.output import print_json, stderr
from palus.config import RunFile, dump_run, load_run, notes, preset_names
from palus.config.load import changes, plain
from palus.config.run_file import EDITOR
from palus.errors import CheckpointError, ConfigError, DemonstrationError, EnvError, ModelError
from palus.terminal import Terminal
from palus.trust import Trust

if TYPE_CHECKING:
    from palus.learn.ranks import Ranks

EPILOG = f"""
Examples:

  # seconds, to see that everything works; replaces its former run
  palus train debug

  # the course's configuration, MA-POCA
  palus train soccertwos --run-id mine

  # with a live page: curves, win matrix, matches of the newest policy
  palus train soccertwos --run-id mine --watch

  # as many steps as fit; learning rate and all come down in time
  palus train soccertwos-strong --minutes 45

  palus train mine.yaml behaviors.SoccerTwos.max_steps=1e6 palus.threads=1

  # continue; nothing is lost
  palus train results/mine/configuration.yaml --resume

Presets: {", ".join(preset_names())}. All keys: docs/run-file.md.
"""


def train(
    file: Annotated[str, typer.Argument(help="Run file (ML-Agents' trainer YAML) or the name of a preset.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="Changes by dotted path: behaviors.SoccerTwos.max_steps=1e6")
    ] = None,
    run_id: Annotated[str | None, typer.Option(help="Name of the run and of its folder.")] = None,
    results_dir: Annotated[str | None, typer.Option(help="Folder of all runs (default: results).")] = None,
    env: Annotated[str | None, typer.Option(help="Unity executable to train in; `UnityEditor` for the Editor.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything random in the run.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run of this id.")] = False,
    resume_if_there: Annotated[
        bool,
        typer.Option("--resume-if-there", help="Continue the run of this id where it has saved, else begin."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the run of this id.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0.01,
            max=MOST_MINUTES,
            help="End within so many minutes: fewer steps, schedules and all, on a slow machine.",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only validate the run file and show what it means.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Show a live page of the run while it trains.")] = False,
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="With --watch: open the page in the browser.")
    ] = True,
    trust: TrustOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a team by self-play or an agent on games of its own, watch it improve, export it.

    Progress goes to the terminal and to TensorBoard (`tensorboard --logdir results`). Ctrl-C once ends cleanly with
    everything saved and exported; `--resume` continues as if nothing had happened.
    """
    flags = {
        "checkpoint_settings.run_id": run_id,
        "checkpoint_settings.results_dir": results_dir,
        "env_settings.env_path": env,
        "env_settings.seed": seed,
    }
    given = [f"{key}={json.dumps(value)}" for key, value in flags.items() if value is not None]
    if run_id is not None or any(item.startswith("checkpoint_settings.run_id=") for item in overrides or []):
        given.append("checkpoint_settings.force=false")  # a file's `force` is for the run that it names itself
    elif not Path(file).is_file():
        given.append(f"checkpoint_settings.run_id={json.dumps(file)}")  # a preset's run is called like the preset
    trusted = Trust.of(trust or [], overrides or [], [env] if env is not None else [])

    def judge(run: RunFile) -> list[str]:
        if not check:
            return obstacles(run, trusted)
        goes_on = resume or (resume_if_there and any(folder_of(run).glob("*/checkpoint.pt")))
        return [*obstacles(_placed(run), trusted, whole=True), *_of_learners(run, trusted, goes_on)]

    with told_where(file):
        run = load_run(file, [*given, *(overrides or [])], judge=judge)
    if minutes is not None:
        if resume or resume_if_there or "TORCHELASTIC_RUN_ID" in os.environ:
            raise typer.BadParameter(
                "--minutes sizes a run before it begins, by itself: leave it out with --resume, --resume-if-there and "
                "under torchrun, and say palus.max_minutes=N for a limit of time"
            )
        if run is not _placed(run):
            raise typer.BadParameter("--minutes measures the game; name it by --env PATH, or leave it out with --check")
        run = _fitted(run, minutes, trusted)
    if check:
        _show(run, trusted, as_json)
        return
    with ExitStack() as beside:
        show = partial(live_page, browser=browser) if watch else None
        _train(
            run,
            overrides or [],
            resume,
            force,
            resume_if_there,
            trusted,
            as_json,
            lambda folder: show and beside.enter_context(show(folder)),
        )


def _fitted(run: RunFile, minutes: float, trust: Trust) -> RunFile:
    with Terminal(stderr=True).status("Compiling the game and measuring this machine ..."):
        from palus.launch.pace import fitted

        sized = fitted(run, minutes, trust)
    for name, behavior in sized.behaviors.items():
        whole = run.behaviors.get(name, run.default_settings or behavior).max_steps
        stderr.print(f"{name}: {behavior.max_steps:,} of {whole:,} steps fit into {minutes:g} minutes here.")
    return sized


def _as_begun(run: RunFile, overrides: Sequence[str]) -> RunFile:
    """A run that goes on: the steps that --minutes gave it stay, and what else is not as it was is told."""
    try:
        begun = load_run(folder_of(run) / "configuration.yaml")
    except ConfigError:  # of an older version, or nobody's: the start says what is wrong
        return run
    run, limit = run.completed(begun.behaviors), begun.palus.max_minutes
    sized = limit > 0 == run.palus.max_minutes
    if sized and not any("max_steps=" in item or "max_minutes=" in item for item in overrides):
        steps = {name: own.max_steps for name, own in begun.behaviors.items() if name in run.behaviors}
        behaviors = {name: own.changed(max_steps=steps.get(name, own.max_steps)) for name, own in run.behaviors.items()}
        run = run.changed(behaviors=behaviors, palus={"max_minutes": limit})
    for line in changes(begun, run):
        stderr.print(f"[dim]{escape(line)}[/]")
    return run


def _placed(run: RunFile) -> RunFile:
    """The run in the Editor where its behaviors are of no game that is named, which only the start needs."""
    if run.env_id is not None or run.talks or not run.behaviors:
        return run
    return run.changed(env_settings={"env_path": EDITOR})


def folder_of(run: RunFile) -> Path:
    """Where a run lives."""
    return Path(run.checkpoint_settings.results_dir) / run.checkpoint_settings.run_id


def obstacles(run: RunFile, trust: Trust, *, whole: bool = False) -> list[str]:
    """Why a run that is written correctly cannot start; whole: as of `misfits`.

    Raises TrustError before anything of the game runs.
    """
    from palus.run.misfits import misfits

    check_trust(run, trust)
    return misfits(run, trust, whole=whole)


def _of_learners(run: RunFile, trust: Trust, resume: bool) -> list[str]:
    """Why the run could not make its learners, as a start does once its game is there: networks that cannot be, first
    weights that are missing or do not fit. Of a game that talks, and without torch: only whether weights are there."""
    from palus.run.misfits import completed

    with suppress(EnvError):  # which is a fault of its own
        run = completed(run, trust)
    settings = run.checkpoint_settings
    named = [settings.initialize_from, *(behavior.init_path for behavior in run.behaviors.values())]
    fresh = any(named) and not (resume or settings.resume or settings.load_model)  # who goes on has weights
    if not fresh and find_spec("torch") is None:
        return []
    from palus.run.initial import unfit_learners, with_initial_paths

    try:
        run = with_initial_paths(run) if fresh else run
        with suppress(DemonstrationError, EnvError):  # which are faults of their own
            return [] if run.env_id is None else list(unfit_learners(run, trust, fresh))
    except (CheckpointError, ConfigError, ModelError) as error:
        return [str(error)]
    return []


def _show(run: RunFile, trust: Trust, as_json: bool) -> None:
    """The run as it would start: the game says whom `default_settings` are for, and which keys it has no use for."""
    from palus.run.misfits import completed, known_game

    run, game = completed(run, trust), None
    if run.env_id is not None:
        source = envs.GameSource(run.env_id, run.palus.env_options, trust)
        game = known_game(run, source, source.spec)
    placed = _placed(run)
    link = _link(run, trust) if placed is run and "TORCHELASTIC_RUN_ID" in os.environ else []
    if link is None:  # rank 0 tells
        return
    lines = [*notes(placed, game), *link]
    if run is not placed:
        lines.append("no built-in game has these behaviors: checked as a Unity game's; to train, name it: --env PATH")
    if as_json:
        print_json({"valid": True, "notes": lines, "configuration": plain(run)})
        return
    print(dump_run(run))
    for note in lines:
        print(f"# {note}")
    print("# The run file is valid.")


def _link(run: RunFile, trust: Trust) -> list[str] | None:
    """Under torchrun: what its ranks will bring, measured, in a sentence; None of a rank that has nothing to say."""
    from palus.launch.link import measure
    from palus.learn.ranks import Ranks

    ranks = Ranks.joined()
    try:
        told = [measure(run, trust, ranks).sentence()] if ranks.size > 1 else []
    finally:
        ranks.close()
    return told if ranks.rank == 0 else None


def _train(
    run: RunFile,
    overrides: Sequence[str],
    resume: bool,
    force: bool,
    if_there: bool,
    trust: Trust,
    as_json: bool,
    show: Callable[[Path], object],
) -> None:
    """if_there: a run that is there goes on, on whichever machine of several it lies."""
    resume = resume or run.checkpoint_settings.resume or run.checkpoint_settings.load_model
    force = force or run.checkpoint_settings.force
    with Terminal(stderr=True).status("Loading PyTorch and starting the games (kernels compile once per version) ..."):
        from palus.learn.ranks import Ranks
        from palus.train import Run, describe
        from palus.train import train as run_training

    ranks = Ranks.joined()  # where torchrun has started this process beside others
    steps, seconds = 0, 0.0

    def announce(parts: Run) -> None:
        nonlocal steps, seconds  # of before
        steps, seconds = parts.step, parts.wall_seconds
        for line in describe(parts):
            stderr.print(f"[dim]{escape(line)}[/]")
        if run.checkpoint_settings.inference:
            stderr.print("Playing without learning; nothing is saved. End with Ctrl-C.")
        show(parts.folder.root)

    try:
        with _decided(run, resume, force, if_there, ranks) as (resume, force, alone):
            if resume and "TORCHELASTIC_RUN_ID" not in os.environ:
                run = _as_begun(run, overrides)
            on_start = announce if ranks.rank == 0 else None
            result = run_training(
                run, resume=resume, force=force, trust=trust, on_start=on_start, ranks=ranks, alone=alone
            )
    finally:
        ranks.close()
    if ranks.rank:
        return
    if as_json:
        print_json({**result.__dict__, "model": str(result.model) if result.model.is_file() else None})
        return
    if run.checkpoint_settings.inference:
        stderr.print(f"Played with what was learned until step {result.steps:,}; nothing was saved.")
        return
    folder, steps, seconds = folder_of(run), result.steps - steps, max(result.wall_seconds - seconds, 1e-9)
    pace = f": {steps:,} steps in {seconds / 60:.1f} min ({steps / seconds:,.0f} steps/s)" if steps else ""
    stderr.print(
        f"{'Finished' if result.finished else 'Stopped'} at step {result.steps:,}{pace}. Model: "
        f"{escape(str(result.model))}"
    )
    if not result.finished:
        again = f"palus train {shlex.quote(str(folder / 'configuration.yaml'))} --resume{trust.option}"
        _hint("Continue:", again if ranks.size == 1 else "the same command with --resume-if-there")
    first, *more = what_next(run, folder, trust)
    _hint("Next:", first)
    for command in more:
        _hint("", command)


@contextmanager
def _decided(
    run: RunFile, resume: bool, force: bool, if_there: bool, ranks: Ranks
) -> Iterator[tuple[bool, bool, bool | None]]:
    """`resume`, `force` and `alone` as `train` takes them. From the look at what is there to the end nobody else is in
    the run's folder; what only plays lets go of it."""
    from palus.run.alike import bring_home
    from palus.run.folder import RunFolder

    folder, brings = RunFolder(folder_of(run), []), ranks.size > 1 and (resume or if_there)
    with ExitStack() as kept:
        alone = kept.enter_context(folder.held()) if ranks.rank == 0 and (if_there or brings) else None
        if brings and (brought := bring_home(folder.root, ranks)) and ranks.rank == 0:
            stderr.print(escape(brought))
        there = if_there and any(folder.root.glob("*/checkpoint.pt"))
        resume, force = ranks.first((resume or there, force or (if_there and not there)))
        if run.checkpoint_settings.inference:
            kept.close()
            alone = None
        yield resume, force, alone


def what_next(run: RunFile, folder: Path, trust: Trust) -> list[str]:
    """Commands, or in a game of Unity words, for who has trained a run."""
    if run.env_id is None and run.palus.env is None:
        return ["give the model to the agents' Behavior Parameters in Unity"]
    game = envs.arena_games().get(run.env_id or "")  # none of an environment of ML-Agents' Python interface
    if game is None or game.filmed:
        return [f"palus enjoy {shlex.quote(str(folder))}{trust.option}"]
    return game.trial(shlex.quote(str(folder)))


def _hint(why: str, command: str) -> None:
    stderr.print(f"{why:<10} {escape(command)}")
