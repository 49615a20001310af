"""`mlagents-learn` and `mlagents-run-experiment`: ML-Agents' commands, flags and console lines on palus's `train`.

Lines that ML-Agents has go to stdout in its words; what palus has to say beside them goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from palus import __version__
from palus.cli.output import EXIT_INTERRUPTED, EXIT_USER_ERROR, told_memory, was_interrupted
from palus.cli.train import obstacles
from palus.config import Behavior, RunFile, load_run
from palus.config.load import plain
from palus.config.network import SignalNetworkSettings
from palus.config.run_file import EDITOR
from palus.config.source import Source
from palus.errors import ConfigError, ExistingRunError, PalusError
from palus.terminal import bear_any_text, printable
from palus.trust import Trust

if TYPE_CHECKING:
    from palus.train import Run

REFERENCE, COMMUNICATOR = "1.1.0", "1.5.0"
"""The version of ML-Agents whose commands these are, and of its protocol."""
FLAGS: dict[str, tuple[str, type, str]] = {
    "--env": ("env_settings.env_path", str, "Unity executable; without it a game of palus, else Unity's Editor."),
    "--resume": ("", bool, "Continue the run of this id."),
    "--force": ("", bool, "Replace the run of this id."),
    "--deterministic": ("", bool, "Collect with the likeliest actions."),
    "--run-id": ("checkpoint_settings.run_id", str, "Name of the run and of its folder."),
    "--initialize-from": ("checkpoint_settings.initialize_from", str, "Run id to take the first weights from."),
    "--seed": ("env_settings.seed", int, "Seed of the run; -1 draws one."),
    "--inference": ("checkpoint_settings.inference", bool, "Play without learning."),
    "--base-port": ("env_settings.base_port", int, "Port of worker 0; worker i adds i. 0 takes any that are free."),
    "--num-envs": ("env_settings.num_envs", int, "Executables side by side."),
    "--num-areas": ("env_settings.num_areas", int, "Training areas inside an executable."),
    "--debug": ("debug", bool, "Log in detail."),
    "--max-lifetime-restarts": ("env_settings.max_lifetime_restarts", int, "Restarts of an executable over the run."),
    "--restarts-rate-limit-n": ("env_settings.restarts_rate_limit_n", int, "Restarts within the period."),
    "--restarts-rate-limit-period-s": ("env_settings.restarts_rate_limit_period_s", int, "The period, seconds."),
    "--results-dir": ("checkpoint_settings.results_dir", str, "Folder of all runs."),
    "--timeout-wait": ("env_settings.timeout_wait", int, "Seconds to wait for an answer of the executable."),
    "--width": ("engine_settings.width", int, "Window width, pixels."),
    "--height": ("engine_settings.height", int, "Window height, pixels."),
    "--quality-level": ("engine_settings.quality_level", int, "Unity's quality level."),
    "--time-scale": ("engine_settings.time_scale", float, "Speed of the simulation's clock."),
    "--target-frame-rate": ("engine_settings.target_frame_rate", int, "Frames per second; -1: no limit."),
    "--capture-frame-rate": ("engine_settings.capture_frame_rate", int, "Simulated frames per second."),
    "--no-graphics": ("engine_settings.no_graphics", bool, "Run without graphics."),
    "--no-graphics-monitor": ("engine_settings.no_graphics_monitor", bool, "The same, but worker 0 keeps graphics."),
    "--torch-device": ("torch_settings.device", str, "cpu, cuda, cuda:1, ... or mps"),
}
"""Flag -> key of the run file, type, help. A flag that is given stands above the file, whatever its value.

Without a key it does not go into the run's configuration.yaml: who trains that again does not mean it any more.
"""
RETIRED = {
    "--load": "is an old word for --resume, which is used.",
    "--train": "has no effect; every run trains unless --inference is given.",
    "--torch": "was removed; PyTorch is the only framework.",
    "--tensorflow": "was removed; PyTorch is the only framework.",
}
NOTHING_DECLARED = Source("no file", "default_settings: {trainer_type: ppo}")


def learn(arguments: Sequence[str] | None = None) -> int:
    """Run `mlagents-learn`; returns the exit code, 0 also after Ctrl-C."""
    given = vars(_parser().parse_args(arguments))
    return _start(given.pop("trainer_config_path", None), given)


def run_experiment(arguments: Sequence[str] | None = None) -> int:
    """Run `mlagents-run-experiment`; returns the exit code."""
    parser = argparse.ArgumentParser("mlagents-run-experiment", description="Train as a complete run file says.")
    parser.add_argument("experiment_config_path", help="Run file with all options, as configuration.yaml has them.")
    file = parser.parse_args(arguments).experiment_config_path
    where = f"checkpoint_settings of {file}"
    return _start(file, {}, f"This command has no flags: write resume, force or another run_id into {where}")


def _parser() -> argparse.ArgumentParser:
    """Only what was given is in the result, so that a flag's default never stands above the file."""
    parser = argparse.ArgumentParser(
        "mlagents-learn",
        description="Train as ML-Agents' command does; `palus train` has more options.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("trainer_config_path", nargs="?", help="Run file; without it all behaviors have defaults.")
    for flag, (_, kind, text) in FLAGS.items():
        if kind is bool:
            parser.add_argument(flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, type=kind, help=text)
    for flag in RETIRED:
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--env-args", nargs=argparse.REMAINDER, help="The rest: arguments for the executable.")
    return parser


def _name(flag: str) -> str:
    return flag[2:].replace("-", "_")


def _start(file: str | None, given: dict[str, Any], advice: str = "") -> int:
    """advice: what follows where there is a run of this id, whose sentence names flags."""
    bear_any_text()
    print("\n".join([" Version information:", *(f"  {line}" for line in _versions())]))
    for flag, text in RETIRED.items():
        if given.pop(_name(flag), False):
            _log("WARNING", f"{flag} {text}")
            if flag == "--load":
                given["resume"] = True
    if file is None:
        _log("WARNING", "No trainer configuration was given: every behavior is trained with PPO's default settings.")
    try:
        return _train(_run_file(file, given), given)
    except PalusError as error:
        told = f"{error} {advice}".rstrip() if isinstance(error, ExistingRunError) else str(error)
        print(printable(f"error: {told}"), file=sys.stderr)
        return EXIT_USER_ERROR
    except MemoryError as error:
        print(f"error: {told_memory(error)}", file=sys.stderr)
        return EXIT_USER_ERROR
    except ModuleNotFoundError as error:
        print(f'error: training takes more than is installed ({error}): pip install "palus[train]"', file=sys.stderr)
        return EXIT_USER_ERROR
    except (KeyboardInterrupt, ImportError) as error:  # before there was anything to save, or for the second time
        if not was_interrupted(error):
            raise
        return EXIT_INTERRUPTED


def _versions() -> Iterator[str]:
    yield from (f"ml-agents: {REFERENCE},", f"ml-agents-envs: {REFERENCE},", f"Communicator API: {COMMUNICATOR},")
    try:
        yield f"PyTorch: {version('torch')}"
    except PackageNotFoundError:
        yield "PyTorch: not installed"
    yield f"palus: {__version__}"


def _run_file(file: str | None, given: dict[str, Any]) -> RunFile:
    """The run that a file and the flags mean; without a game it waits for the Editor. Raises ConfigError."""
    keys = {_name(flag): key for flag, (key, *_) in FLAGS.items() if key} | {"env_args": "env_settings.env_args"}
    overrides = [f"{keys[name]}={json.dumps(value)}" for name, value in given.items() if name in keys]
    run = load_run(NOTHING_DECLARED if file is None else file, overrides)
    run = _deterministic(run) if given.get("deterministic") else run
    if run.env_id is None and not run.talks:
        if run.env_settings.num_envs > 1:
            raise ConfigError([f"env_settings.num_envs {run.env_settings.num_envs}: there is one Editor; give --env"])
        run = run.changed(env_settings={"env_path": EDITOR})
    named = [run.env_settings.env_path] if run.env_settings.env_path is not None else []
    if faults := obstacles(run, Trust.of([], programs=named)):  # as ML-Agents: the file may name the game
        raise ConfigError(faults)
    settings = run.checkpoint_settings
    if settings.initialize_from is not None and (settings.resume or "resume" in given):
        if "resume" in given or "initialize_from" not in given:
            _log("WARNING", f"The run is resumed; initialize_from {settings.initialize_from} is ignored.")
        else:
            _log("WARNING", "The file's resume is ignored; --initialize-from stands above it.")
            run = run.changed(checkpoint_settings={"resume": False})
    return run


def _deterministic(run: RunFile) -> RunFile:
    """The run with `--deterministic` for every declared behavior."""
    certain = {name: own.changed(network_settings={"deterministic": True}) for name, own in run.behaviors.items()}
    return run.changed(behaviors=certain)


def _train(run: RunFile, given: dict[str, Any]) -> int:
    from palus.train import describe, train

    def announce(parts: Run) -> None:
        for line in describe(parts):
            print(printable(line), file=sys.stderr)
        for line in _connected(parts):
            _log("INFO", line)
        for name, behavior in parts.run.behaviors.items():
            _log("INFO", f"Hyperparameters for behavior name {name}: \n" + "\n".join(_tree(_settings(behavior))))

    settings = run.checkpoint_settings
    resume, force = settings.resume or "resume" in given, settings.force or "force" in given
    train(run, resume=resume, force=force, on_start=announce, log=_log)
    return 0


def _connected(parts: Run) -> Iterator[str]:
    """ML-Agents' lines of the executables that a run plays in."""
    if parts.run.env_settings.env_path is None:
        return
    from palus.unity.discovery import TalkingSource
    from palus.unity.environment import UnityEnv

    for game in parts.source.games if isinstance(parts.source, TalkingSource) else ():
        if isinstance(game, UnityEnv):
            versions = f"package version {game.package_version} and communication version {game.communication_version}"
            yield f"Connected to Unity environment with {versions}"
    yield from (f"Connected new brain: {agent.name}" for agent in parts.spec.agents)


def _settings(behavior: Behavior) -> dict[str, Any]:
    """A behavior's settings; of the network's keys that only palus has, those that were written."""
    network = behavior.network_settings
    shown = SignalNetworkSettings.model_fields.keys() | network.model_fields_set
    settings = plain(behavior)
    return settings | {
        "network_settings": {key: value for key, value in settings["network_settings"].items() if key in shown}
    }


def _tree(settings: dict[str, Any], depth: int = 0) -> Iterator[str]:
    """ML-Agents' lines of a map of settings."""
    for key, value in settings.items():
        indent = "\t" + "  " * depth
        if isinstance(value, dict):
            yield f"{indent}{key}:\t"
            yield from _tree(value, depth + 1)
        else:
            yield f"{indent}{key}:\t{value}"


def _log(level: str, text: str) -> None:
    print(printable(f"[{level}] {text}"), flush=True)


def near_command(option: str) -> str | None:
    """What to tell somebody who gives `palus train` a flag that only `mlagents-learn` has."""
    if option in FLAGS or option in RETIRED or option == "--env-args":
        return f"{option} is a flag of mlagents-learn, which palus has too: mlagents-learn FILE {option} ..."
    return None
