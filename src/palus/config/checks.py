"""Rules between keys, with the arithmetic: what each key allows alone is in the models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from palus.config.environment import CompletionCriteria, Curriculum
from palus.config.faults import Fault, KeyPath
from palus.config.run_file import RunFile
from palus.config.trainer import AppoBehavior, Behavior, PocaBehavior
from palus.files import is_file_name

POCA_ATTENTION_HEADS = 4


def check(run: RunFile) -> Iterator[Fault]:
    """Every broken rule of a run whose single values are all right."""
    yield from _paths(run)
    yield from _trainers(run)
    for name, behavior in run.behaviors.items():
        yield from _behavior(("behaviors", name), behavior)
    for name, parameter in (run.environment_parameters or {}).items():
        if isinstance(parameter, Curriculum):
            yield from _curriculum(run, ("environment_parameters", name, "curriculum"), parameter)


def _paths(run: RunFile) -> Iterator[Fault]:
    """Names that become files stay below the folder of all runs: a run file may be somebody else's."""
    for key in ("run_id", "initialize_from"):
        run_id: str | None = getattr(run.checkpoint_settings, key)
        parts = PurePath(run_id or "").parts
        if run_id is not None and (PurePath(run_id).is_absolute() or ".." in parts or not parts):
            text = f"{key} {run_id} leads out of results_dir; give a name, and the folder as results_dir"
            yield _finding(("checkpoint_settings",), (key,), text)
        elif run_id is not None and run_id.startswith("-"):
            text = f"{key} {run_id} is an option, where a name was expected; give the name before it"
            yield _finding(("checkpoint_settings",), (key,), text)
    for name in run.behaviors:
        if not is_file_name(name):
            text = "a behavior's name is a file's name; use one without / and without a dot in front"
            yield _finding(("behaviors", name), (), text)


def _trainers(run: RunFile) -> Iterator[Fault]:
    for name in run.palus.trainers:
        if name not in run.behaviors and run.default_settings is None:
            text = f"{name} is no behavior of this file; it has {', '.join(run.behaviors) or 'none'}"
            yield _finding(("palus", "trainers"), (name,), text)


def _finding(section: KeyPath, keys: tuple[str, ...], text: str) -> Fault:
    return Fault(section, text, compared=tuple(section + tuple(key.split(".")) for key in keys))


def _behavior(at: KeyPath, behavior: Behavior) -> Iterator[Fault]:
    hyper, network = behavior.hyperparameters, behavior.network_settings
    if hyper.buffer_size < hyper.batch_size:
        yield _finding(
            (*at, "hyperparameters"),
            ("buffer_size", "batch_size"),
            f"buffer_size {hyper.buffer_size} is smaller than batch_size {hyper.batch_size}; "
            "raise buffer_size to a multiple of batch_size",
        )
    memory = network.memory
    if memory and memory.kind == "lstm" and memory.memory_size % 2:
        yield _finding(
            (*at, "network_settings", "memory"),
            ("memory_size", "kind"),
            f"memory_size {memory.memory_size} is odd; one half of an lstm's memory is hidden state, the other cell "
            f"state, so use for example {memory.memory_size + 1}",
        )
    if memory and (memory.sequence_length or 0) > hyper.batch_size:
        yield _finding(
            at,
            ("network_settings.memory.sequence_length", "hyperparameters.batch_size"),
            f"network_settings.memory.sequence_length {memory.sequence_length} is greater than "
            f"hyperparameters.batch_size {hyper.batch_size}; a minibatch holds whole sequences, so raise batch_size",
        )
    if isinstance(behavior, AppoBehavior):
        yield from _appo(at, behavior)
    population = behavior.population
    if population is not None and population.perturb_min > population.perturb_max:
        yield _finding(
            (*at, "population"),
            ("perturb_min", "perturb_max"),
            f"perturb_min {population.perturb_min:g} is greater than perturb_max {population.perturb_max:g}; exchange "
            "them",
        )
    if isinstance(behavior, PocaBehavior) and network.hidden_units % POCA_ATTENTION_HEADS:
        whole = -(-network.hidden_units // POCA_ATTENTION_HEADS) * POCA_ATTENTION_HEADS
        yield _finding(
            (*at, "network_settings"),
            ("hidden_units",),
            f"hidden_units {network.hidden_units} cannot be split over the {POCA_ATTENTION_HEADS} attention heads of "
            f"poca's critic; use a multiple of {POCA_ATTENTION_HEADS}, for example {whole}",
        )
    if behavior.even_checkpoints and behavior.keep_checkpoints <= 0:
        yield _finding(
            at,
            ("even_checkpoints", "keep_checkpoints"),
            f"even_checkpoints divides max_steps by keep_checkpoints, which is {behavior.keep_checkpoints}; "
            "set keep_checkpoints to 1 or more",
        )
    signals = behavior.reward_signals
    if not any(getattr(signals, name) for name in type(signals).model_fields):
        yield _finding(
            (*at, "reward_signals"),
            tuple(type(signals).model_fields),
            "there is no reward to learn from; add extrinsic: {}",
        )


def _appo(at: KeyPath, behavior: AppoBehavior) -> Iterator[Fault]:
    hyper, horizon = behavior.hyperparameters, behavior.time_horizon
    for key in ("buffer_size", "batch_size"):
        size = getattr(hyper, key)
        if size % horizon:
            yield _finding(
                at,
                (f"hyperparameters.{key}", "time_horizon"),
                f"hyperparameters.{key} {size} is not a multiple of time_horizon {horizon}; rollouts are whole rows, "
                f"so use for example {-(-size // horizon) * horizon}",
            )
    if hyper.buffer_size % hyper.batch_size and hyper.buffer_size > hyper.batch_size:
        yield _finding(
            (*at, "hyperparameters"),
            ("buffer_size", "batch_size"),
            f"buffer_size {hyper.buffer_size} is not a multiple of batch_size {hyper.batch_size}; all minibatches of "
            f"appo are full, so use for example {-(-hyper.buffer_size // hyper.batch_size) * hyper.batch_size}",
        )
    if hyper.advantages == "vtrace" and hyper.normalize_returns:
        yield _finding(
            (*at, "hyperparameters"),
            ("advantages", "normalize_returns"),
            "advantages vtrace cannot be combined with normalize_returns; set normalize_returns to false",
        )


def _curriculum(run: RunFile, at: KeyPath, parameter: Curriculum) -> Iterator[Fault]:
    *earlier, _ = parameter.curriculum
    for index, lesson in enumerate(earlier):
        if lesson.completion_criteria is None:
            yield _finding(
                (*at, index),
                ("completion_criteria",),
                f"lesson {lesson.name} has no completion_criteria, so it would never end; all but the last need them",
            )
    for index, lesson in enumerate(parameter.curriculum):
        if lesson.completion_criteria is not None:
            yield from _criteria(run, (*at, index, "completion_criteria"), lesson.completion_criteria)


def _criteria(run: RunFile, at: KeyPath, criteria: CompletionCriteria) -> Iterator[Fault]:
    if criteria.measure == "progress" and not 0 <= criteria.threshold <= 1:
        yield _finding(
            at,
            ("threshold", "measure"),
            f"threshold {criteria.threshold:g} is not in [0, 1]; with measure progress it is a share of max_steps",
        )
    if run.default_settings is None and criteria.behavior not in run.behaviors:
        yield _finding(
            at,
            ("behavior",),
            f"behavior {criteria.behavior} is not in the file; it has {', '.join(run.behaviors)}",
        )
