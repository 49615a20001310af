"""First weights from another run: `initialize_from` and `init_path`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from palus.config import RunFile, load_run
from palus.config.trainer import Behavior
from palus.envs import GameSource
from palus.errors import CheckpointError, ModelError, PalusError
from palus.learn.learner import Learner
from palus.learn.ranks import ALONE, Ranks
from palus.nn.matmul import MatmulPath
from palus.nn.place import CPU
from palus.run.computing import Computing
from palus.run.folder import RunFolder, read_checkpoint
from palus.run.learners import LearnerMaker, populations_of
from palus.run.mlagents_checkpoint import is_ml_agents, learner_state, read_ml_agents
from palus.run.mlagents_optimizer import MISFITS, optimizer_state
from palus.run.mlagents_signals import signal_states
from palus.run.trainee import Trainee
from palus.trust import Trust

SEEDS = 2**30
"""Seeds that are drawn are below it: executable i is sent seed + i as a number of 32 bits with a sign."""


def with_initial_paths(run: RunFile) -> RunFile:
    """The run whose every `init_path` is a file, as `initialize_from` and ML-Agents' rules for bare names say.

    Raises CheckpointError where there is none.
    """
    settings = run.checkpoint_settings
    source = None if settings.initialize_from is None else Path(settings.results_dir) / settings.initialize_from
    if source is not None and not source.is_dir():
        raise CheckpointError(
            f"checkpoint_settings.initialize_from: {source}: no such run to initialize from; give the run id of one in "
            f"{settings.results_dir}."
        )
    behaviors = dict(run.behaviors)
    for name, behavior in run.behaviors.items():
        path = None if behavior.init_path is None else Path(behavior.init_path)
        if source is not None and (path is None or path.name == str(path)):
            path = _checkpoint(source, name) if path is None else source / name / path
        if path is None:
            continue
        path = _of_all(path)
        if path.suffix != ".pt" or not path.is_file():
            raise CheckpointError(
                f"behaviors.{name}.init_path {path}: no such file, or not a .pt; give a checkpoint.pt."
            )
        behaviors[name] = behavior.changed(init_path=str(path))
    return run.changed(behaviors=behaviors)


def _checkpoint(source: Path, behavior: str) -> Path:
    """The behavior's checkpoint in a run's folder: one file holds all behaviors, in the folder of the first."""
    own = source / behavior / "checkpoint.pt"
    found = [own] if own.is_file() else sorted(source.glob("*/checkpoint.pt"))
    if not found:
        raise CheckpointError(
            f"checkpoint_settings.initialize_from: {source}: no checkpoint to initialize from; the run saved none."
        )
    return found[0]


def _of_all(path: Path) -> Path:
    """The file that stands for a checkpoint.pt that is not there: another behavior's of the same palus run."""
    if path.name != "checkpoint.pt" or path.is_file() or not path.parent.is_dir():
        return path
    return next((own for own in sorted(path.parent.parent.glob("*/checkpoint.pt")) if not is_ml_agents(own)), path)


def initial_state(
    path: Path, behavior: str, learner: Learner, warn: Callable[[str], None]
) -> tuple[dict[str, Any], int]:
    """What a learner of that behavior knew when the checkpoint was written, as `Learner.begin_from` takes it, and at
    which step where ML-Agents wrote it, else 0.

    learner: that is to take it. warn: is told where only the optimiser's moments or a signal's networks of ML-Agents do
    not fit, which is no reason not to begin. Raises CheckpointError, KeyError or ValueError where the rest does not.
    """
    if is_ml_agents(path):
        checkpoint = read_ml_agents(path)
        state = learner_state(checkpoint, learner)
        if learner.learned_signals:
            state["signals"] = signal_states(checkpoint.modules, learner, lambda told: warn(f"{path}: {told}"))
        try:
            state["optimizer"] = optimizer_state(checkpoint, learner, path)
        except MISFITS as error:
            warn(f"{path}: the optimiser's state does not fit ({error}); Adam's moments begin anew.")
        return state, checkpoint.steps
    state = read_checkpoint(path)
    names, learners = state.get("names"), [learner for *_, learner in state["learners"]]
    if len(learners) == 1:
        return dict(learners[0]), 0
    if names is None or behavior not in names:
        known = "nobody says of whom" if names is None else f"of {' and '.join(dict.fromkeys(names))}"
        raise CheckpointError(f"{path}: {len(learners)} learners, {known}, none of {behavior}; give another.")
    return dict(learners[names.index(behavior)]), 0


def initialize(trainees: Sequence[Trainee], home: RunFolder | None, warn: Callable[[str], None]) -> list[str]:
    """Give learners the weights of `init_path`, or, with their steps, those that ML-Agents left in this run's folder.

    home: that folder. Returns where they come from, in ML-Agents' words. warn: see `initial_state`. Raises
    CheckpointError where a file does not fit, or is missing at home.
    """
    lines: list[str] = []
    for trainee in trainees:
        path = trainee.behavior.init_path if home is None else home.of(trainee.name) / "checkpoint.pt"
        if path is None:
            continue
        if home is not None and not Path(path).is_file():
            raise CheckpointError(f"{path}: not there, though ML-Agents trained another behavior here; start anew.")
        try:
            state, steps = initial_state(Path(path), trainee.name, trainee.learner, warn)
            trainee.learner.begin_from(state)
        except (KeyError, IndexError, RuntimeError, ValueError, TypeError, ModelError) as error:
            told = another_trainer(Path(path).parent.parent, {trainee.name: trainee.behavior})
            raise CheckpointError(
                f"{path}: does not fit behavior {trainee.name} ({told or error}); its trainer, network_settings and "
                "number of reward_signals have to be those of the run that it comes from."
            ) from error
        trainee.step = steps if home is not None else 0
        if home is not None:
            lines += [f"Resuming from {trainee.folder}.", f"Resuming training from step {trainee.step}."]
        else:
            lines.append(f"Initializing from {path}.")
            lines.append(f"Starting training from step 0 and saving to {trainee.folder}.")
    return lines


def another_trainer(folder: Path, behaviors: Mapping[str, Behavior]) -> str | None:
    """That the run whose checkpoint does not fit had another trainer, or its critic elsewhere; None where it had not,
    or its folder does not say. behaviors: of the run that was to take it."""
    try:
        before = load_run(folder / "configuration.yaml").behaviors
    except PalusError:
        return None
    for name in behaviors.keys() & before.keys():
        then, now = before[name], behaviors[name]
        for key in ("trainer_type", "hyperparameters.shared_critic"):
            was, found = (_looked_up(own, key) for own in (then, now))
            if was != found and None not in (was, found):
                here, there = (str(value).lower() for value in (found, was))
                return f"behaviors.{name}.{key} is {here} here, and was {there} where the weights are from"
    return None


def _looked_up(behavior: Behavior, key: str) -> object:
    """A value by its dotted path; None where a trainer has no such key."""
    found: object = behavior
    for part in key.split("."):
        found = getattr(found, part, None)
    return found


def unfit_learners(run: RunFile, trust: Trust, fresh: bool) -> Iterator[str]:
    """Why learners of a run would not take their `init_path`, one sentence each: they are made as the start makes them.

    run: of a game that does not talk, as `with_initial_paths` returns it; fresh: it begins with such weights, where it
    names some. Raises ConfigError where a network cannot be, and ModelError, DemonstrationError.
    """
    assert run.env_id is not None
    spec = GameSource(run.env_id, run.palus.env_options, trust).spec
    known = [behavior.name for behavior in spec.behaviors]
    names = [name for name in run.behaviors if name in known or "" in known]  # others are a fault of their own
    settings = run.checkpoint_settings
    folder = RunFolder(Path(settings.results_dir) / settings.run_id, names)
    computing = Computing(CPU, 1, MatmulPath("highest", 0.0, 0.0), (), int8=False)  # nothing is computed
    maker = LearnerMaker(run.palus.trainers, 0, computing, trust, ALONE, beside=False)
    trainees = maker.trainees(run, spec, folder, names, populations_of(run, spec, names, 0))
    for trainee in trainees if fresh else ():
        try:
            initialize([trainee], None, warn=lambda told: None)
        except CheckpointError as error:
            yield f"behaviors.{trainee.name}.init_path {error}"


def with_seed(run: RunFile, root: Path, ranks: Ranks, resume: bool) -> RunFile:
    """The run with one seed for its games, draws and networks: its own, else the one it was begun with, else one that
    rank 0 draws. root: the run's folder. Raises CheckpointError where a run that goes on cannot be read."""
    seed = run.env_settings.seed
    if seed < 0 and ranks.rank == 0:
        kept = list[Path]()
        if resume and run.talks:  # others are started after the checkpoint is read, which may be large
            kept = [path for path in sorted(root.glob("*/checkpoint.pt")) if not is_ml_agents(path)]
        seed = int(read_checkpoint(kept[0])["seed"]) if kept else secrets.randbelow(SEEDS)
    return run.changed(env_settings={"seed": ranks.first(seed)})
