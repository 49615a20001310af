"""Run files from before ML-Agents' present format, translated: what `palus migrate` does.

Three formats: up to 0.16 a flat map of behaviors with a `default`, with samplers and curricula in files of their own;
up to 0.18 `behaviors`, with `parameter_randomization` and `curriculum` beside them; after that, for a while, lessons
that are maps of one key. Between the first two, files had flat behaviors below `behaviors`, each with its curriculum.
Functions take and return plain trees and leave their input as it was.
"""

from __future__ import annotations

from collections.abc import Iterator

from palus.config.run_file import RunFile
from palus.config.schema import keys
from palus.config.source import Tree
from palus.config.trainer import HYPERPARAMETERS, TRAINERS, Behavior

NETWORK = ("normalize", "hidden_units", "num_layers", "vis_encode_type")
MEMORY = ("sequence_length", "memory_size")
HYPER = {key for kind in HYPERPARAMETERS.values() for key in keys(kind)}
FLAT = {"trainer", "use_recurrent", *MEMORY, *NETWORK, *HYPER}
"""Keys that stand in a behavior of the flat format, and in none of today's."""
OLD_PARAMETERS = ("parameter_randomization", "curriculum")
OLD_RATIO = "play_against_current_self_ratio"
"""Of self-play up to 0.15."""
GONE = ("imitation", "offline_bc", "online_bc")
"""Trainers that ML-Agents dropped, in favor of behavioral_cloning."""
CURIOSITY = ("curiosity_strength", "curiosity_enc_size")
"""Keys that stood in a behavior before there were `reward_signals`."""


class Migration:
    """One translation. lines: what was done, `old -> new`, in the order of the file."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._taken: set[str] = set()  # keys of the flat format that some behavior used

    def run(self, tree: Tree, samplers: Tree, curriculum: Tree) -> Tree:
        """The file in today's words. samplers, curriculum: contents of the files beside it; {} for none."""
        flat, found = is_flat(tree), dict(tree)
        inner = {}
        if flat:
            listed = _map(found.pop("behaviors")) if "behaviors" in found else found
            inner = {name: own["curriculum"] for name, own in listed.items() if "curriculum" in _map(own)}
            found = self._sections(listed) | (found if listed is not found else {})
        randomized = {**_map(found.pop("parameter_randomization", {})), **samplers}
        lessons = {**inner, **_map(found.pop("curriculum", {})), **curriculum}
        parameters = self._named(_map(found.get("environment_parameters", {})))
        parameters |= self._lessons(lessons)
        parameters |= self._samplers(randomized)
        if parameters:
            found["environment_parameters"] = parameters
        if not flat and isinstance(found.get("behaviors"), dict):
            found["behaviors"] = {
                name: self._self_play(f"behaviors.{name}", own) if isinstance(own, dict) else own
                for name, own in found["behaviors"].items()
            }
        if isinstance(found.get("default_settings"), dict):
            found["default_settings"] = self._self_play("default_settings", found["default_settings"])
        return found

    def tell(self, old: str, new: str) -> None:
        """One line of the translation."""
        self.lines.append(f"{old} -> {new}")

    # -- behaviors ----------------------------------------------------------------------------------------------------

    def _sections(self, tree: Tree) -> Tree:
        """`behaviors`, or `default_settings` where nothing but a default is there."""
        default = _map(tree.get("default", {}))
        names = [name for name in tree if name != "default"]
        if not names:
            return {"default_settings": self._behavior("default", default, default)}
        if default:
            self.tell("default", "written into every behavior; a behavior that is not listed has today's defaults")
        sections = {name: self._section(tree, name) for name in names}
        found = {name: self._behavior(name, default | own, own) for name, own in sections.items()}
        unused = [key for key in default if key not in self._taken]
        if unused:
            self.tell(f"default.({', '.join(unused)})", "left out; no behavior has a use for them")
        return {"behaviors": found}

    def _section(self, tree: Tree, name: str) -> Tree:
        """A behavior's own keys; a text names the section that it has in common."""
        seen = [name]
        while isinstance(tree.get(seen[-1]), str) and tree[seen[-1]] not in seen:
            seen.append(tree[seen[-1]])
        if len(seen) > 1:
            self.tell(name, f"the keys of {seen[-1]}")
        return _map(tree.get(seen[-1], {}))

    def _behavior(self, name: str, old: Tree, own: Tree) -> Tree:
        """old: all keys that count for the behavior. own: those that it does not have from `default`."""
        old = dict(old)
        at, trainer = f"behaviors.{name}", old.pop("trainer", "ppo")
        if trainer not in tuple(TRAINERS):
            why = "the trainer is gone, use behavioral_cloning" if trainer in GONE else "palus has no such trainer"
            self.tell(f"{name}.trainer {trainer}", f"ppo; {why}")
            trainer = "ppo"
        if "pretraining" in old:
            self.tell(f"{name}.pretraining", f"{at}.behavioral_cloning")
            old["behavioral_cloning"] = old.pop("pretraining")
        if trainer == "sac":
            self._sac_rates(name, old)
        if "reward_signals" not in old:
            self._reward_signals(name, old)
        new: Tree = {"trainer_type": trainer, "hyperparameters": {}, "network_settings": {}}
        self.tell(f"{name}.trainer", f"{at}.trainer_type {trainer}")
        old.pop("curriculum", None)  # told as a lesson of its parameters
        recurrent = old.pop("use_recurrent", False) is True
        self._taken |= {"trainer", "use_recurrent", "train_interval", "num_update", "reward_signal_num_update"}
        hyper, left = keys(HYPERPARAMETERS[trainer]), list[str]()
        for key, value in old.items():
            if key in NETWORK:
                place = new["network_settings"]
            elif key in MEMORY:
                if not recurrent:
                    left.append(key)
                    continue
                place = new["network_settings"].setdefault("memory", {})
            elif key in hyper:
                place = new["hyperparameters"]
            elif key in Behavior.model_fields:
                place = new
            else:
                left.append(key)
                continue
            place[key] = value
            self._taken.add(key)
        for section in ("hyperparameters", "network_settings", "network_settings.memory"):
            inner = new
            for part in section.split("."):
                inner = inner.get(part, {})
            written = [key for key in inner if key != "memory"]
            if written:
                self.tell(f"{name}.({', '.join(written)})", f"{at}.{section}")
        self._tell_left(name, [key for key in left if key in own], trainer)
        return self._self_play(at, {key: value for key, value in new.items() if value != {}}, flat=True)

    def _sac_rates(self, name: str, old: Tree) -> None:
        """`train_interval` steps per `num_update` updates are today's `steps_per_update`."""
        interval = old.pop("train_interval", None)
        for count, new in (
            ("num_update", "steps_per_update"),
            ("reward_signal_num_update", "reward_signal_steps_per_update"),
        ):
            updates = old.pop(count, None)
            if new in old or (updates is None and (interval is None or count != "num_update")):
                continue
            old[new] = float(interval or 1) / float(updates or 1)
            self.tell(f"{name}.train_interval / {count}", f"behaviors.{name}.hyperparameters.{new} {old[new]:g}")

    def _reward_signals(self, name: str, old: Tree) -> None:
        """The rewards of files that had one discount for all, and curiosity beside it."""
        self._taken |= {"use_curiosity", "gamma"}
        at, is_curious = f"behaviors.{name}.reward_signals", old.pop("use_curiosity", False) is True
        discount = {"gamma": old.pop("gamma")} if "gamma" in old else {}
        if discount:
            self.tell(f"{name}.gamma", f"{at}.extrinsic.gamma")
        signals: Tree = {"extrinsic": {"strength": 1.0, **discount}}
        if is_curious:
            written = [key for key in CURIOSITY if key in old]
            signals["curiosity"] = curiosity = dict(discount)
            if "curiosity_strength" in old:
                curiosity["strength"] = old.pop("curiosity_strength")
            if "curiosity_enc_size" in old:
                curiosity["network_settings"] = {"hidden_units": old.pop("curiosity_enc_size")}
            self._taken |= {*written}
            self.tell(f"{name}.({', '.join(['use_curiosity', *written])})", f"{at}.curiosity")
        if discount or is_curious:
            old["reward_signals"] = signals

    def _tell_left(self, name: str, left: list[str], trainer: str) -> None:
        """What a behavior itself has and nothing reads."""
        reasons = dict.fromkeys(MEMORY, "without use_recurrent there is no memory")
        reasons |= dict.fromkeys(CURIOSITY, "without use_curiosity there is no curiosity")
        told: dict[str, list[str]] = {}
        for key in left:
            told.setdefault(reasons.get(key, f"{trainer} does not have them"), []).append(key)
        for why, these in told.items():
            self.tell(f"{name}.({', '.join(these)})", f"left out; {why}")

    def _self_play(self, at: str, behavior: Tree, flat: bool = False) -> Tree:
        play = behavior.get("self_play")
        if not isinstance(play, dict):
            return behavior
        if is_old := OLD_RATIO in play:
            self.tell(f"{at}.self_play.{OLD_RATIO}", "play_against_latest_model_ratio")
            play = {"play_against_latest_model_ratio" if key == OLD_RATIO else key: own for key, own in play.items()}
        if (flat or is_old) and "swap_steps" in play:
            self.lines.append(f"{at}.self_play.swap_steps {play['swap_steps']} stays; it counts the ghost's steps now")
        return behavior | {"self_play": play}

    # -- environment parameters ---------------------------------------------------------------------------------------

    def _samplers(self, old: Tree) -> Iterator[tuple[str, object]]:
        for name, value in old.items():
            kind = value.get("sampler-type", value.get("sampler_type")) if isinstance(value, dict) else None
            if kind is None:
                self.tell(name, "left out; it is no sampler")
                continue
            kind = "multirangeuniform" if kind == "multirange_uniform" else kind
            inner = {key: own for key, own in value.items() if key not in ("sampler-type", "sampler_type")}
            self.tell(f"{name}: {kind}", f"environment_parameters.{name}")
            yield name, {"sampler_type": kind, "sampler_parameters": inner.get("sampler_parameters", inner)}

    def _lessons(self, old: Tree) -> Iterator[tuple[str, object]]:
        """Thresholds and lists of values, by behavior, as lessons of each parameter."""
        for behavior, own in old.items():
            own = _map(own)
            thresholds, parameters = own.get("thresholds", []), _map(own.get("parameters", {}))
            if not parameters:
                self.tell(behavior, "left out; it is no curriculum")
            for name, values in parameters.items():
                self.tell(f"{behavior}: thresholds of {name}", f"environment_parameters.{name}.curriculum")
                lessons: list[Tree] = [{"name": f"Lesson{n}", "value": value} for n, value in enumerate(values)]
                for lesson, threshold in zip(lessons, thresholds, strict=False):
                    lesson["completion_criteria"] = {
                        "behavior": behavior,
                        "measure": own.get("measure", "reward"),
                        "min_lesson_length": own.get("min_lesson_length", 1),
                        "signal_smoothing": own.get("signal_smoothing", False),
                        "threshold": threshold,
                    }
                yield name, {"curriculum": lessons}

    def _named(self, parameters: Tree) -> Tree:
        """Lessons that are maps of one key, with the key as their name."""
        found = dict(parameters)
        for name, parameter in parameters.items():
            if _has_unnamed(parameter):
                self.tell(f"environment_parameters.{name}: lessons as maps of one key", "lessons with a name")
                bodies = [item for lesson in parameter["curriculum"] for item in lesson.items()]
                found[name] = parameter | {"curriculum": [{"name": key, **body} for key, body in bodies]}
        return found


def is_flat(tree: Tree) -> bool:
    """Whether the keys of behaviors stand flat in them, wherever the behaviors stand."""
    if "behaviors" in tree:  # a slip in a file of today is told as such
        return any(len(FLAT & own.keys()) > 2 for own in map(_map, _map(tree["behaviors"]).values()))
    sections = [_map(value) for key, value in tree.items() if key not in RunFile.model_fields]
    return any("trainer" in own or len(FLAT & own.keys()) > 1 for own in sections)


def old_format(tree: Tree) -> str | None:
    """Which versions of ML-Agents wrote files like this one; None for today's."""
    if is_flat(tree):
        return "up to 0.16"
    if any(key in tree for key in OLD_PARAMETERS):
        return "0.16 to 0.18"
    parameters = tree.get("environment_parameters")
    if isinstance(parameters, dict) and any(_has_unnamed(parameter) for parameter in parameters.values()):
        return "0.18 to 0.20"
    return None


def has_old_ratio(tree: Tree) -> bool:
    """Whether a file has the old name of self-play's ratio: in a format of today, it is a key to rename."""
    sections = [*_map(tree.get("behaviors")).values(), tree.get("default_settings")]
    return any(OLD_RATIO in _map(_map(own).get("self_play")) for own in sections)


def _has_unnamed(parameter: object) -> bool:
    """Whether a curriculum's lessons are maps of one key that is their name."""
    lessons = parameter.get("curriculum") if isinstance(parameter, dict) else None
    if not isinstance(lessons, list) or not lessons:
        return False
    return all(isinstance(own, dict) and [isinstance(body, dict) for body in own.values()] == [True] for own in lessons)


def _map(value: object) -> Tree:
    return dict(value) if isinstance(value, dict) else {}
