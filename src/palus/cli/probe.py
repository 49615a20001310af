"""`palus probe`: train a best response against a frozen policy and say what it takes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from palus.cli.options import MOST_MINUTES, MOST_STEPS
from palus.cli.output import EXIT_INTERRUPTED, can_keep, matches_progress, print_json, stderr, stdout
from palus.config import RunFile, load_run
from palus.envs import GameSource, arena_games
from palus.errors import ConfigError
from palus.terminal import Terminal
from palus.types import DEFAULT_GAME

if TYPE_CHECKING:
    from palus.hub.probe_file import Probe
    from palus.train import Run

EPILOG = """
MODEL is an .onnx file, a run's folder or a bundle, a snapshot of a run (.npz), a house bot, or OWNER/NAME of a
published model, which is fetched into the folder NAME first.

Examples:

  # what ten minutes of training against it alone win from it
  palus probe results/mine --minutes 10

  # by trainer steps instead of time
  palus probe stranger.onnx --steps 5e6

  # half an hour more
  palus probe results/mine --resume --minutes 30

  # strikers against its goalie
  palus probe results/svg --behavior Striker

  # the result is on the card
  palus push results/mine ada/striker

A response that wins little proves little: a longer one, or another --config, may win more (docs/probe.md).
"""


def probe(
    model: Annotated[str, typer.Argument(help="File, folder, house bot or OWNER/NAME.", metavar="MODEL")],
    minutes: Annotated[
        float | None, typer.Option(min=0.01, max=MOST_MINUTES, help="Training time; 10 where --steps is not given.")
    ] = None,
    steps: Annotated[
        float | None, typer.Option(min=1, max=MOST_STEPS, help="Trainer steps; default: max_steps of the config.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="Run file or preset that trains the response; default: the game's own.")
    ] = None,
    game: Annotated[
        str | None, typer.Option(help="What it plays; default: what --config or the model says.", metavar="GAME")
    ] = None,
    behavior: Annotated[
        str | None, typer.Option(help="Which side the response plays, in games of several behaviors.")
    ] = None,
    pairs: Annotated[int, typer.Option(min=4, help="Mirrored pairs of the result; a quarter per point.")] = 200,
    run_id: Annotated[str | None, typer.Option(help="Name of the response's run; default: probe-MODEL.")] = None,
    results_dir: Annotated[str, typer.Option(help="Folder of all runs.")] = "results",
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of training and of the matches.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Train the response of this id further.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the response of this id.")] = False,
    hub: Annotated[str | None, typer.Option(help="huggingface.co, http://host:port, or folder:PATH.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """How exploitable is a policy? Train a best response against it, for a budget, and say what that wins.

    The result is a lower bound: somebody wins at least so much from the policy. The checkpoint that is reported is
    chosen on other matches than those that it is reported by. Ctrl-C ends the training and measures what there is;
    probe.json and probe.svg go into the response's run and, where MODEL is a folder, beside the model, for its card.
    """
    from palus.cli.players import local_folder, refresh_onnx

    if not Path(model).exists() and model.count("/") == 1 and Path(model).suffix not in (".onnx", ".npz"):  # OWNER/NAME
        model = str(local_folder(model, hub))
    path = Path(model)
    if path.is_dir():
        refresh_onnx(path)
    beside = path.is_dir() and can_keep(path, "probe.json goes into the response's run alone")
    run = _run_file(model, config, game)
    name = run_id or f"probe-{path.resolve().name if path.is_dir() else path.stem}"
    run = run.changed(
        checkpoint_settings={"run_id": name, "results_dir": results_dir, "resume": False, "force": False},
        env_settings={} if seed is None else {"seed": seed},
    )
    with Terminal(stderr=True).status("Loading PyTorch and starting the games (kernels compile once per version) ..."):
        from palus.probe import Budget, respond
        from palus.run.session import interruptible

    assert run.env_id is not None
    spec = GameSource(run.env_id, run.palus.env_options).spec
    budget = Budget(None if steps is None else int(steps), (minutes or 10.0) if minutes or steps is None else 0.0)

    def announce(parts: Run) -> None:
        stderr.print(f"Training a best response to {escape(model)} in {escape(str(parts.folder.root))}.")

    response = respond(model, run, spec, behavior, budget, resume=resume, force=force, on_start=announce)
    with interruptible() as stopped, matches_progress("Measuring", response.matches(pairs)) as tick:
        found = response.measure(pairs, tick, stopped)
    if found is None:
        stderr.print("Interrupted while it was measured: nothing is reported. The same command with --resume measures.")
        raise typer.Exit(EXIT_INTERRUPTED)
    if as_json:
        print_json({**asdict(found), "bound": found.bound})
    else:
        _tell(model, found, response.folder.root)
    response.publish(found, *([path] if beside else []))  # after it was told: a disk may have become full


def _run_file(model: str, config: str | None, game: str | None) -> RunFile:
    """By which the response is trained: the given one, else the game's preset, else the model's own."""
    own = Path(model) / "configuration.yaml"
    if config is None:
        game = game or _game_of(model)
        declared = arena_games().get(game)
        config = declared.preset if declared and declared.preset else str(own) if own.is_file() else None
    if config is None:
        raise ConfigError(f"{game}: no run file for it comes with palus; name one that trains it with --config")
    override = [] if game is None else [f"palus.env={json.dumps(game)}"]
    run = load_run(config, override)
    if run.env_id is None:
        raise ConfigError(f"{config}: names no game of palus; set palus.env, or give --game")
    return run


def _game_of(model: str) -> str:
    """What a model plays, as its file or folder says; the game that is meant where none is named, else."""
    path = Path(model)
    if path.suffix == ".npz" and path.is_file():
        from palus.export.policy_file import read_policy

        return read_policy(path).env_id
    names = {file.stem for file in path.glob("*.onnx")} if path.is_dir() else {path.stem}
    for game in arena_games().values():
        if names & set(game.behaviors):
            return game.env
    if (path / "configuration.yaml").is_file():
        return load_run(path / "configuration.yaml").env_id or DEFAULT_GAME
    return DEFAULT_GAME


def _tell(model: str, probe: Probe, folder: Path) -> None:
    for point in probe.curve:
        stdout.print(f"{point.steps:>12,} steps  {point.text}")
    side = "" if probe.symmetric else f" as {escape(probe.behavior)}"
    stdout.print(
        f"A best response of {escape(probe.budget)} takes [bold]{probe.best.text}[/] of the points from "
        f"[bold]{escape(model)}[/]{side}, in {probe.best.pairs} {'mirrored pairs' if probe.symmetric else 'matches'} "
        f"that did not choose its checkpoint (step {probe.best.steps:,})."
    )
    what = "Its exploitability is at least" if probe.symmetric else "What can be won from it is at least"
    stdout.print(f"{what} {probe.bound:.2f} points per match (win 1, loss -1), with 97.5 % confidence.")
    stdout.print(f"probe.json and probe.svg: {escape(str(folder))}")
