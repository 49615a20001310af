"""Old keys, ML-Agents' and palus's own: translated into today's or dropped, each with a warning.

Every function takes and returns plain trees and leaves its input as it was; values that are no maps pass through, the
models complain about them later.
"""

from __future__ import annotations

from palus.config.faults import Fault, KeyPath
from palus.config.source import Tree

NETWORK = {
    "encoder": "used as vis_encode_type",
    "core": "used as memory.kind, or memory: null for none",
    "core_size": "used as memory.memory_size, twice of it for an lstm",
    "core_layers": "used as memory.num_layers",
    "shared_critic": "used as hyperparameters.shared_critic",
}
"""Keys that the network of `appo` had before all trainers shared one set of words, and what becomes of them."""


def retire_old_keys(tree: Tree) -> tuple[Tree, list[Fault]]:
    """The tree in today's keys; each old one is a warning."""
    warnings: list[Fault] = []
    if isinstance(tree.get("default_settings"), dict):
        at: KeyPath = ("default_settings",)
        tree = tree | {"default_settings": _in_behavior(at, tree["default_settings"], warnings)}
    if isinstance(tree.get("behaviors"), dict):
        behaviors = {
            name: _in_behavior(("behaviors", name), behavior, warnings) if isinstance(behavior, dict) else behavior
            for name, behavior in tree["behaviors"].items()
        }
        tree = tree | {"behaviors": behaviors}
    settings = tree.get("checkpoint_settings")
    if isinstance(settings, dict) and settings.get("load_model") is True:
        warnings.append(Fault(("checkpoint_settings", "load_model"), "old word for resume; resume is set"))
        tree = tree | {"checkpoint_settings": settings | {"load_model": False, "resume": True}}
    if isinstance(tree.get("palus"), dict) and "kick_point" in tree["palus"]:
        tree = tree | {"palus": _without_kick_point(tree, warnings)}
    palus = tree.get("palus")
    if isinstance(palus, dict) and isinstance(palus.get("sampling"), dict) and "pages" in palus["sampling"]:
        warnings.append(Fault(("palus", "sampling", "pages"), "ignored; what plays is at most one rollout ahead"))
        sampling = {key: value for key, value in palus["sampling"].items() if key != "pages"}
        tree = tree | {"palus": palus | {"sampling": sampling}}
    return tree, warnings


def _without_kick_point(tree: Tree, warnings: list[Fault]) -> Tree:
    """An option of SoccerTwos that stood beside `env_options`, in the files of all games."""
    path: KeyPath = ("palus", "kick_point")
    palus = {key: value for key, value in tree["palus"].items() if key != "kick_point"}
    if palus.get("env") not in (None, "SoccerTwos"):
        warnings.append(Fault(path, f"ignored; {palus['env']} has no such option"))
        return palus
    warnings.append(Fault(path, "old word; used as palus.env_options.kick_point"))
    options = palus.get("env_options") or {}
    if not isinstance(options, dict):
        return palus
    return palus | {"env_options": {"kick_point": tree["palus"]["kick_point"]} | options}


def _in_behavior(at: KeyPath, behavior: Tree, warnings: list[Fault]) -> Tree:
    if "framework" in behavior:
        warnings.append(Fault((*at, "framework"), "ignored; PyTorch is the only framework"))
        behavior = {key: value for key, value in behavior.items() if key != "framework"}
    network = behavior.get("network_settings")
    if isinstance(network, dict):
        path = (*at, "network_settings")
        warnings += [Fault((*path, key), f"old word; {use}") for key, use in NETWORK.items() if key in network]
        hyper = behavior.get("hyperparameters") or {}
        if "shared_critic" in network and isinstance(hyper, dict):
            hyper = {"shared_critic": network["shared_critic"]} | hyper
            behavior = behavior | {"hyperparameters": hyper}
        behavior = behavior | {"network_settings": modern_network(network)}
    signals = behavior.get("reward_signals")
    if isinstance(signals, dict):
        path = (*at, "reward_signals")
        retired = {name: _in_signal((*path, name), signal, warnings) for name, signal in signals.items()}
        behavior = behavior | {"reward_signals": retired}
    return behavior


def modern_network(network: Tree) -> Tree:
    """Settings of a network in today's keys; `shared_critic` is left out, its place is not here."""
    modern = {key: value for key, value in network.items() if key not in NETWORK}
    if "encoder" in network:
        modern["vis_encode_type"] = network["encoder"]
    if network.get("core") == "none":
        return modern | {"memory": None}
    if not any(key.startswith("core") for key in network):
        return modern
    memory: Tree = modern["memory"] if isinstance(modern.get("memory"), dict) else {}
    kind = network.get("core", memory.get("kind", "gru"))
    if "core" in network:
        memory = memory | {"kind": kind}
    if "core_layers" in network:
        memory = memory | {"num_layers": network["core_layers"]}
    if "core_size" in network or kind == "lstm":
        memory = memory | {"memory_size": _floats_of(network.get("core_size", memory.get("memory_size", 512)), kind)}
    return modern | {"memory": memory}


def _floats_of(size: object, kind: object) -> object:
    """memory_size of that many units: an lstm keeps two floats for each."""
    if kind != "lstm":
        return size
    try:
        return 2 * float(str(size))
    except ValueError:
        return size  # not a number: the model says so


def _in_signal(at: KeyPath, signal: object, warnings: list[Fault]) -> object:
    """`memory` has no place in a signal's network, and `encoding_size` was the old name of its width."""
    if not isinstance(signal, dict):
        return signal
    network = signal.get("network_settings")
    if isinstance(network, dict) and network.get("memory") is not None:
        warnings.append(Fault((*at, "network_settings", "memory"), "ignored; the networks of reward signals have none"))
        signal = signal | {"network_settings": network | {"memory": None}}
    if signal.get("encoding_size") is not None:
        taken = "network_settings" in signal
        outcome = "ignored beside network_settings" if taken else "used as network_settings.hidden_units"
        warnings.append(Fault((*at, "encoding_size"), f"old word for network_settings.hidden_units; {outcome}"))
        if not taken:
            signal = signal | {"network_settings": {"hidden_units": signal["encoding_size"]}, "encoding_size": None}
    return signal
