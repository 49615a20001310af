"""What ML-Agents does to a parsed file before it becomes settings: trainer names, default settings.

Every function takes and returns plain trees and leaves its input as it was; values that are no maps pass through, the
models complain about them later.
"""

from __future__ import annotations

from palus.config.faults import Fault, KeyPath, found, near_name
from palus.config.run_file import RunFile
from palus.config.source import Tree
from palus.config.trainer import HYPERPARAMETERS, Behavior

TRAINERS = tuple(HYPERPARAMETERS)  # whatever a file holds may be looked for in it


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
    if behavior.get("trainer_type") in TRAINERS:
        return behavior, []
    path = (*at, "trainer_type")
    if "trainer_type" not in behavior:
        slip = [value for key, value in behavior.items() if near_name(key, ["trainer_type"]) and value in TRAINERS]
        if slip:  # the misspelt key is reported as such
            return behavior | {"trainer_type": slip[0]}, []
        if "hyperparameters" not in behavior:
            return behavior | {"trainer_type": "ppo"}, []
        likeliest = _likeliest(behavior["hyperparameters"])
        text = f"missing; hyperparameters need it; expected one of {', '.join(TRAINERS)}"
        return behavior | {"trainer_type": likeliest}, [Fault(path, text)]
    given = behavior["trainer_type"]
    near = near_name(str(given), TRAINERS)
    hint = f"; did you mean {near}?" if near else ""
    likeliest = near or _likeliest(behavior.get("hyperparameters"))
    text = f"expected one of {', '.join(TRAINERS)}, found {found(given)}{hint}"
    return behavior | {"trainer_type": likeliest}, [Fault(path, text)]


def _likeliest(hyperparameters: object) -> str:
    """The trainer that knows most of the keys."""
    keys = set(hyperparameters) if isinstance(hyperparameters, dict) else set()
    return max(TRAINERS, key=lambda trainer: len(keys & set(HYPERPARAMETERS[trainer].model_fields)))


def under_defaults(behavior: Tree, defaults: Behavior | None, written: Tree) -> Tree:
    """`behavior` merged over `default_settings`, map by map.

    defaults: the default settings with every value filled in, as ML-Agents merges them. written: as the file has them.
    A behavior with another trainer takes over only those hyperparameters and numbers of the network that were written,
    and that its trainer has; ML-Agents takes all and then stumbles over the ones that the trainer does not know.
    """
    if defaults is None:
        return behavior
    base = plain(defaults)
    trainer = behavior.get("trainer_type", defaults.trainer_type)
    if trainer != defaults.trainer_type and trainer in TRAINERS:
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


def plain(settings: Behavior | RunFile) -> Tree:
    """Settings as a tree of plain values in ML-Agents' key order; reward signals that are off are left out."""
    tree = settings.model_dump(mode="json")
    for behavior in [tree, tree.get("default_settings"), *tree.get("behaviors", {}).values()]:
        if behavior and "reward_signals" in behavior:
            signals = behavior["reward_signals"].items()
            behavior["reward_signals"] = {name: signal for name, signal in signals if signal is not None}
    return tree
