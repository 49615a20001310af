"""`load_run`: defaults, then the file or preset, then dotted overrides, to a `RunFile`, or all faults at once.

A fault does not hide the next one: a misspelt key goes on under the name it was meant to have, a bad value makes way
for its default, and the rules that would have looked at that value are skipped.
"""

from __future__ import annotations

import copy
import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter, ValidationError

from palus.config.checks import check
from palus.config.faults import Fault, KeyPath, faults_of, found, near_name
from palus.config.migrate import old_format
from palus.config.retired import retire_old_keys
from palus.config.run_file import RunFile
from palus.config.source import Source, Tree, apply_overrides, parse_tree, read_source
from palus.config.trainer import HYPERPARAMETERS, TRAINERS, AnyBehavior, Behavior
from palus.errors import ConfigError

logger = logging.getLogger(__name__)
NAMES = tuple(TRAINERS)  # whatever a file holds may be looked for in it


def load_run(
    source: str | Path | Source,
    overrides: Sequence[str] = (),
    judge: Callable[[RunFile], Sequence[str]] = lambda run: (),
) -> RunFile:
    """Read a run file.

    source: path of a YAML file, or a name out of `preset_names()`; a file of that name goes first. Or a text.
    overrides: `dotted.path=value`, the value in YAML, for example `behaviors.SoccerTwos.max_steps=1e6`.
    judge: more faults of a run, sentences that begin with their key (`unsupported`); told together with the file's own.
    Old keys that are translated or ignored are logged as warnings.
    Raises ConfigError with one sentence per fault, all faults together.
    """
    text = source if isinstance(source, Source) else read_source(source)
    tree, faults = parse_tree(text.text)
    versions = old_format(parse_tree(text.text, repeated=[])[0] if faults else tree)
    if versions is not None:
        file = shlex.quote(text.label if isinstance(source, Source) else str(source))
        command = f"palus migrate {file} --output NEW.yaml"
        raise ConfigError([f"{text.label}: in the format of ML-Agents {versions}; translate it first: {command}"])
    if faults:
        raise ConfigError([fault.sentence(text.label) for fault in faults])
    written = tree
    tree, overridden, faults = apply_overrides(tree, overrides)
    tree, misspelt = spell_sections(tree)
    tree, warnings = retire_old_keys(tree)
    run, more = _resolve(tree)
    faults += empty_signals(written) + misspelt + more

    def label(path: KeyPath) -> str:
        return "override" if _is_overridden(path, overridden, written) else text.label

    # Whoever made the section of a key that is missing is asked for it.
    sentences = [fault.sentence(label(fault.path[:-1] if fault.missing else fault.path)) for fault in faults]
    for sentence in judge(run) if run is not None else ():
        path = tuple(sentence.split(":")[0].split(" ")[0].split("."))
        if not any(path[: len(fault.path)] == fault.path for fault in faults):  # else of what stands in for a fault
            sentences.append(f"{label(path)}, {sentence}")
    if sentences or run is None:
        raise ConfigError(sentences)
    for warning in warnings:
        logger.warning("%s", warning.sentence(text.label))
    return run


def dump_run(run: RunFile) -> str:
    """The run as the text of a `configuration.yaml`: ML-Agents' key order, every default filled in, `palus` last.

    `load_run` of this text gives an equal `RunFile`.
    """
    return yaml.safe_dump(plain(run), sort_keys=False, allow_unicode=True, width=120)


_CLIPPED = ("batch_size", "buffer_size", "learning_rate", "beta", "epsilon", "lambd", "num_epoch", "shared_critic")
_FIRST = {"ppo": _CLIPPED, "poca": _CLIPPED, "sac": ("learning_rate", "learning_rate_schedule")}
"""Trainer -> hyperparameters that ML-Agents writes first; the models have defaults after what they depend on."""


def plain(settings: Behavior | RunFile) -> Tree:
    """Settings as a tree of plain values in ML-Agents' key order; signals and populations that are off are left out."""
    tree = settings.model_dump(mode="json")
    for behavior in [tree, tree.get("default_settings"), *tree.get("behaviors", {}).values()]:
        if behavior and "reward_signals" in behavior:
            signals = behavior["reward_signals"].items()
            behavior["reward_signals"] = {name: signal for name, signal in signals if signal is not None}
        if behavior and behavior.get("population", ()) is None:
            del behavior["population"]
        if behavior and "trainer_type" in behavior:
            own, first = behavior["hyperparameters"], _FIRST.get(behavior["trainer_type"], ())
            behavior["hyperparameters"] = {key: own[key] for key in first if key in own} | own
    return tree


def differing(
    tree: Mapping[str, Any], other: Mapping[str, Any], above: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Dotted path and values of everything that two trees do not have alike, as one where only one of them has it."""
    for key in {**tree, **other}:
        one, two = tree.get(key), other.get(key)
        if isinstance(one, Mapping) and isinstance(two, Mapping):
            yield from differing(one, two, f"{above}{key}.")
        elif one != two:
            yield above + key, one, two


def changes(before: RunFile, now: RunFile) -> list[str]:
    """What a run that goes on has otherwise than it had, a line each: but for its folder, and seeds that are drawn."""
    return [
        f"{key}: {json.dumps(value)}, until now {json.dumps(had)}"
        for key, value, had in differing(plain(now), plain(before))
        if not ((key.endswith("seed") and value == -1) or key.startswith("checkpoint_settings."))
    ]


def _is_overridden(path: KeyPath, overridden: Sequence[tuple[str, ...]], written: Tree) -> bool:
    """Whether an override gave the value at that path: all of it, or a part of what the file does not have."""
    if any(path[: len(key)] == key for key in overridden):
        return True
    node: Any = written
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return node is None and any(key[: len(path)] == path for key in overridden)


def _resolve(tree: Tree) -> tuple[RunFile | None, list[Fault]]:
    """The run that a tree means, and all faults; None where too little is right to go on."""
    tree, faults = _fill_behaviors(tree)
    run, more = _validate(RunFile, tree, ())
    faults += more
    if run is not None:
        broken = list(check(run))
        faults += [f for f in broken if not any(_related(key, bad.path) for key in f.compared for bad in faults)]
    return run, faults


def _fill_behaviors(tree: Tree) -> tuple[Tree, list[Fault]]:
    """Name every behavior's trainer and fill it up from `default_settings`."""
    faults: list[Fault] = []
    tree = dict(tree)
    written, defaults = tree.get("default_settings"), None
    if isinstance(written, dict):
        at: KeyPath = ("default_settings",)
        written, faults = name_trainer(at, written)
        defaults, more = _validate(AnyBehavior, written, at)
        faults += more
        tree["default_settings"] = defaults
    behaviors = tree.get("behaviors")
    if isinstance(behaviors, dict):
        tree["behaviors"] = dict(behaviors)
        for name, behavior in behaviors.items():
            if isinstance(behavior, dict):
                behavior = under_defaults(behavior, defaults, written or {})
                tree["behaviors"][name], more = name_trainer(("behaviors", name), behavior)
                faults += more
    elif "behaviors" in tree and behaviors is None:
        del tree["behaviors"]
    if not behaviors and written is None:
        faults.append(Fault(("behaviors",), "there is nothing to train; add a behavior, for example SoccerTwos"))
    return tree, faults


def empty_signals(tree: Tree) -> list[Fault]:
    """Reward signals that a file names and leaves empty, where there is nothing that this could switch off: YAML reads
    `extrinsic:` as null, and `extrinsic: {}` was meant."""
    behaviors, below = tree.get("behaviors"), _signals(tree.get("default_settings"))
    empty: list[KeyPath] = [("default_settings", "reward_signals", name) for name in below if below[name] is None]
    for behavior, settings in behaviors.items() if isinstance(behaviors, dict) else ():
        signals = _signals(settings).items()
        empty += [
            ("behaviors", behavior, "reward_signals", name)
            for name, signal in signals
            if signal is None and below.get(name) is None
        ]
    return [Fault(path, f"empty; write `{path[-1]}: {{}}` for its defaults, or leave it out") for path in empty]


def _signals(behavior: object) -> Tree:
    signals = behavior.get("reward_signals") if isinstance(behavior, dict) else None
    return signals if isinstance(signals, dict) else {}


def spell_sections(tree: Tree) -> tuple[Tree, list[Fault]]:
    """Go on with misspelt top-level keys under the name they were meant to have, so that their content is judged."""
    faults = []
    for key in [key for key in tree if key not in RunFile.model_fields]:
        near = near_name(key, RunFile.model_fields)
        if near and near not in tree:
            faults.append(Fault((key,), f"unknown key; did you mean {near}?"))
            tree = {near if name == key else name: value for name, value in tree.items()}
    return tree, faults


def name_trainer(at: KeyPath, behavior: Tree) -> tuple[Tree, list[Fault]]:
    """Fill in `trainer_type`: ppo by default, but hyperparameters without a trainer are a fault.

    Whatever is wrong, the returned tree has a valid trainer, the likeliest one, so that the rest can be judged.
    """
    if behavior.get("trainer_type") in NAMES:
        return behavior, []
    path = (*at, "trainer_type")
    if "trainer_type" not in behavior:
        slip = [value for key, value in behavior.items() if near_name(key, ["trainer_type"]) and value in NAMES]
        if slip:  # the misspelt key is reported as such
            return behavior | {"trainer_type": slip[0]}, []
        if "hyperparameters" not in behavior:
            return behavior | {"trainer_type": "ppo"}, []
        likeliest = _likeliest(behavior["hyperparameters"])
        text = f"missing; hyperparameters need it; expected one of {', '.join(NAMES)}"
        return behavior | {"trainer_type": likeliest}, [Fault(path, text)]
    given = behavior["trainer_type"]
    near = near_name(str(given), NAMES)
    hint = f"; did you mean {near}?" if near else ""
    likeliest = near or _likeliest(behavior.get("hyperparameters"))
    hint = hint or ("; a class of your own stands in palus.trainers" if ":" in str(given) else "")
    text = f"expected one of {', '.join(NAMES)}, found {found(given)}{hint}"
    return behavior | {"trainer_type": likeliest}, [Fault(path, text)]


def _likeliest(hyperparameters: object) -> str:
    """The trainer that knows most of the keys."""
    keys = set(hyperparameters) if isinstance(hyperparameters, dict) else set()
    return max(NAMES, key=lambda trainer: len(keys & set(HYPERPARAMETERS[trainer].model_fields)))


def under_defaults(behavior: Tree, defaults: Behavior | None, written: Tree) -> Tree:
    """`behavior` merged over `default_settings`, map by map.

    defaults: the default settings with every value filled in, as ML-Agents merges them. written: as the file has them.
    A behavior with another trainer takes over only those hyperparameters and numbers of the network that were written,
    and that its trainer has, and no default where its trainer has another (`time_horizon`); ML-Agents takes all and
    then stumbles over those that the trainer does not know.
    """
    if defaults is None:
        return behavior
    base = plain(defaults)
    trainer = behavior.get("trainer_type", defaults.trainer_type)
    if trainer != defaults.trainer_type and trainer in NAMES:
        there, here = type(defaults).model_fields, TRAINERS[trainer].model_fields
        base = {  # without keys and defaults of the other trainer's own
            key: value
            for key, value in base.items()
            if key in here and (key in written or here[key].default == there[key].default)
        }
        base |= {name: _only(base[name], written.get(name)) for name in ("hyperparameters", "network_settings")}
        known = HYPERPARAMETERS[trainer].model_fields
        base["hyperparameters"] = {key: value for key, value in base["hyperparameters"].items() if key in known}
    return _merged(base, behavior)


def _only(values: Tree, written: object) -> Tree:
    """Those of the values whose keys were written."""
    return {
        key: _only(value, written[key]) if isinstance(value, dict) else value
        for key, value in values.items()
        if isinstance(written, dict) and key in written
    }


def _merged(base: Tree, over: Tree) -> Tree:
    both = {
        key: _merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in over.items()
    }
    return base | both


def _validate(kind: Any, tree: Tree, at: KeyPath) -> tuple[Any, list[Fault]]:
    """`tree` as a model, repaired where it is faulty, and the faults; None where it cannot be repaired."""
    adapter = TypeAdapter(kind)
    faults: list[Fault] = []
    tree = copy.deepcopy(tree)
    while True:
        try:
            return adapter.validate_python(tree), faults
        except ValidationError as error:
            now = faults_of(error, kind, at)
            faults += [fault for fault in now if not any(_related(fault.path, old.path) for old in faults)]
            repaired = [_repair(tree, fault, fault.path[len(at) :]) for fault in now]
            if not all(repaired):
                return None, faults


def _related(one: KeyPath, other: KeyPath) -> bool:
    """Whether the keys are the same or one holds the other."""
    both = min(len(one), len(other))
    return one[:both] == other[:both]


def _repair(tree: Tree, fault: Fault, path: KeyPath) -> bool:
    """Take the faulty value out of the tree, in place, or move it to the key it was meant for; False if impossible."""
    holders: list[Any] = [tree]
    for part in path[:-1]:
        if isinstance(holders[-1], dict) and part not in holders[-1]:
            return True  # it went with an earlier fault of the same section
        holders.append(holders[-1][part])
    keys = list(path)
    if keys and fault.missing:
        keys.pop()
        holders.pop()
    while keys and not isinstance(holders[-1], dict):  # an item cannot leave its list: the others would move up
        keys.pop()
        holders.pop()
    if not keys:
        return False
    value = holders[-1].pop(keys[-1], None)
    if fault.near and fault.near not in holders[-1]:
        holders[-1][fault.near] = value
    return True
