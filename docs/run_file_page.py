"""Writes docs/run-file.md from the models: `make docs`."""

from __future__ import annotations

import json
from typing import Any

from palus.config import schema
from palus.config.run_file import RunFile
from palus.config.source import preset_names, read_source
from palus.config.trainer import TRAINERS
from palus.config.unread import ALL, BUILT_IN, EVERY_GAME, OF_BEHAVIORS, OF_RUNS

Schema = dict[str, Any]

INTRO = """\
# The run file

For everyone who trains. This page is generated from the models in `src/palus/config` by
`python docs/run_file_page.py > docs/run-file.md`; a test keeps it current.

A run file is ML-Agents' trainer YAML: files written for `mlagents-learn` load unchanged and mean the same. palus adds
one section, `palus`, for what ML-Agents has no word for. Files are read strictly: an unknown key is an error, and all
faults of a file are reported together before anything starts. `palus train FILE --check` does only that. A key that is
right but that the trainer does not read, or the kind of game has no use for, is refused by name, or told where it
changes nothing: a table below lists these. Keys that other values of the same file leave without effect, and keys that
this very game has no use for, such as an encoder of images where none are seen, are told too.

The values of a run are, later ones first: overrides from the command line (`behaviors.SoccerTwos.max_steps=1e6`), the
file or the preset, `default_settings`, the defaults below. The resolved values are saved as `configuration.yaml` in the
run's folder, which is itself a run file.

A smallest file:

```yaml
behaviors:
  SoccerTwos:
    trainer_type: poca
    self_play: {}
```
"""

DIFFERENCES = """\
## Where palus reads a file differently from ML-Agents

| ML-Agents 1.1.0 | palus | why |
|---|---|---|
| ignores unknown keys in `network_settings`, `memory`, `self_play`, `behavioral_cloning`, `completion_criteria` and \
`torch_settings` | an error everywhere | a slip there is as costly as elsewhere |
| cuts fractions off whole numbers | an error | `batch_size: 2048.5` is a slip |
| takes `1:30` for 90, a number to the base 60 | text, an error where a number is expected | nobody writes numbers so |
| takes any non-empty text for true, even `'false'` | reads it as `true` or `false` | it says so |
| takes an empty value for false (`normalize:`), and a list without lessons for a \
curriculum | an error | something was meant to stand there |
| takes numbers that are outside of any use: `time_horizon: 0` (is 1), \
`num_layers: 0` (is 1), `num_envs: 0`, `learning_rate: 0` | an error that says the range | a slip |
| takes a text for `env_args`, letter by letter: `-batchmode` is ten arguments | an \
error; write a list | no game understands them |
| `default_settings` of one trainer and a behavior of another: all hyperparameters are merged, and those that the \
second does not know are an error | only written hyperparameters that both have are \
merged, likewise of `network_settings` | a default `max_steps` \
should not need a default trainer |
| takes `behaviors: {}` without `default_settings`, and `reward_signals: {}` | an error | nobody would be \
trained, or by nothing |
| takes the last of a key that is there twice | an error | one of the two is a slip |
| takes keys that YAML reads as numbers or as true and false (`1:`, `on:`) as names | an error; quote them | a name \
is text |
| warns of `play_against_latest_model_ratio` above 1 | an error | it is a probability |
| takes a `buffer_size` below `batch_size` | an error | there would be no minibatch |
| takes a curriculum on a behavior that the file does not have | an error | its lesson would never end |
"""

_UNREAD = """\
Set to another value than their default. Games are those of palus, in one process or in worker processes as \
`palus.sampling.collector` and the game have it; executables of Unity and its Editor; and environments of ML-Agents' \
Python interface (`palus.unity.base_env:make`, here BaseEnv).
"""

# Models and their headings, in the order of the page. Trainers share tables, see COLUMNS.
SECTIONS = {
    "RunFile": "Top level",
    "PpoBehavior": "behaviors.NAME, and default_settings",
    "PpoHyperparameters": "behaviors.NAME.hyperparameters",
    "OnPolicyNetworkSettings": "behaviors.NAME.network_settings",
    "Memory": "behaviors.NAME.network_settings.memory",
    "AppoBehavior": "behaviors.NAME of trainer_type appo",
    "Population": "behaviors.NAME.population",
    "RewardSignals": "behaviors.NAME.reward_signals",
    "Extrinsic": "behaviors.NAME.reward_signals.extrinsic",
    "Curiosity": "behaviors.NAME.reward_signals.curiosity",
    "Gail": "behaviors.NAME.reward_signals.gail",
    "Rnd": "behaviors.NAME.reward_signals.rnd",
    "SignalNetworkSettings": "behaviors.NAME.reward_signals.SIGNAL.network_settings",
    "SelfPlay": "behaviors.NAME.self_play",
    "BehavioralCloning": "behaviors.NAME.behavioral_cloning",
    "EnvSettings": "env_settings",
    "EngineSettings": "engine_settings",
    "Curriculum": "environment_parameters.NAME, a curriculum",
    "Lesson": "A lesson",
    "CompletionCriteria": "A lesson's completion_criteria",
    "ConstantParameters": "sampler_parameters of sampler_type constant",
    "UniformParameters": "sampler_parameters of sampler_type uniform",
    "GaussianParameters": "sampler_parameters of sampler_type gaussian",
    "MultiRangeUniformParameters": "sampler_parameters of sampler_type multirangeuniform",
    "CheckpointSettings": "checkpoint_settings",
    "TorchSettings": "torch_settings",
    "PalusSettings": "palus",
    "Sampling": "palus.sampling",
    "LeagueSettings": "palus.league",
    "Roles": "palus.league.roles",
}
OPENINGS = {
    "RunFile": "The sections of a file.",
    "PpoBehavior": "How one behavior is trained.",
    "PpoHyperparameters": "The numbers of the algorithm, with the default of each trainer; `-` where it lacks the key.",
    "OnPolicyNetworkSettings": "Encoders of observations, memory, decoder, heads. All trainers have the same keys.",
    "Memory": "Recurrent memory of the network.",
    "Curriculum": "A parameter is a number, a sampler `{sampler_type, sampler_parameters}`, or a curriculum.",
}


def columns(section: str) -> dict[str, str]:
    """Trainers -> the model that they have below behaviors.NAME, by its dotted path: the columns of its table."""
    trainers: dict[str, list[str]] = {}
    for name, model in TRAINERS.items():
        here: Any = model
        for key in section.split("."):
            [(_, here)] = schema.branches(schema.child(here, key))
        trainers.setdefault(here.__name__, []).append(name)
    return {", ".join(names): model for model, names in trainers.items()}


COLUMNS = {
    "PpoHyperparameters": columns("hyperparameters"),
    "OnPolicyNetworkSettings": columns("network_settings"),
    "Memory": columns("network_settings.memory"),
}
"""Models of which trainers have versions of their own."""


def render() -> str:
    """The page."""
    whole = RunFile.model_json_schema()
    models: dict[str, Schema] = {"RunFile": whole} | whole["$defs"]
    models["PpoBehavior"]["properties"]["trainer_type"]["enum"] = list(TRAINERS)
    parts = [INTRO, _presets()]
    for name, heading in SECTIONS.items():
        opening = OPENINGS.get(name, models[name]["description"])
        columns = {trainer: models[model] for trainer, model in COLUMNS.get(name, {}).items()}
        table = _trainer_table(columns) if columns else _table(models[name], models)
        parts.append(f"## {heading}\n\n{opening}\n\n{table}")
    return "\n".join([*parts, _unread(), DIFFERENCES])


def _unread() -> str:
    """Keys that do nothing for a trainer or a kind of game, and what becomes of a file that sets them."""
    lines = [
        "## Keys that a trainer does not read\n",
        _UNREAD,
        "| keys | trainers | games | a run with one | why |",
        "|---|---|---|---|---|",
    ]
    rows: dict[tuple[str, str, str, str], list[str]] = {}
    for below, entries in (("behaviors.NAME.", OF_BEHAVIORS), ("", OF_RUNS)):
        for entry in entries:
            trainers = "all" if entry.trainers == ALL else ", ".join(t for t in TRAINERS if t in entry.trainers)
            fate = "does not start" if entry.refused else "is told"
            rows.setdefault((trainers, _games(entry.games), fate, entry.why), []).append(f"`{below}{entry.key}`")
    lines += [f"| {', '.join(keys)} | {' | '.join(row)} |" for row, keys in rows.items()]
    return "\n".join(lines) + "\n"


def _games(kinds: frozenset[str]) -> str:
    """Kinds of games, in words."""
    if kinds == EVERY_GAME:
        return "all"
    ours = ["palus"] if kinds >= BUILT_IN else [f"palus ({kind})" for kind in sorted(kinds & BUILT_IN)]
    return ", ".join([*ours, *sorted(kinds - BUILT_IN)])


def _presets() -> str:
    """The presets with the comment that opens each."""
    lines = ["## Presets\n", "| name | what for |", "|---|---|"]
    for name in preset_names():
        comment = [line.lstrip("# ") for line in read_source(name).text.splitlines() if line.startswith("#")]
        lines.append(f"| `{name}` | {' '.join(comment)} |")
    return "\n".join(lines) + "\n"


def _table(model: Schema, models: dict[str, Schema]) -> str:
    lines = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key, value in model["properties"].items():
        default = "required" if key in model.get("required", []) else _default(value)
        section = models.get(value.get("$ref", "").rpartition("/")[2], {})  # its description when the key adds none
        lines.append(f"| `{key}` | {_type(value)} | {default} | {(section | value)['description']} |")
    return "\n".join(lines) + "\n"


def _trainer_table(models: dict[str, Schema]) -> str:
    """One section of several trainers with a column of defaults for each. models: by the column's heading."""
    keys: dict[str, Schema] = {}
    for model in models.values():
        keys = model["properties"] | keys
    order = list(dict.fromkeys(key for model in models.values() for key in model["properties"]))
    lines = [f"| key | type | {' | '.join(models)} | meaning |", f"|---|---|{'---|' * len(models)}---|"]
    for key in order:
        columns = [model["properties"].get(key) for model in models.values()]
        defaults = " | ".join("-" if column is None else _default(column) for column in columns)
        lines.append(f"| `{key}` | {_type(keys[key])} | {defaults} | {keys[key]['description']} |")
    return "\n".join(lines) + "\n"


def _default(value: Schema) -> str:
    if "default" in value:
        return f"`{json.dumps(value['default'])}`"
    return "" if _type(value).startswith("section") else "derived"


_TYPES = {"integer": "whole number", "number": "number", "boolean": "true, false", "string": "text", "null": "null"}


def _type(value: Schema) -> str:
    """A JSON Schema type in words."""
    if "const" in value or "enum" in value:
        words = value.get("enum", [value.get("const")])
        return ", ".join(f"`{json.dumps(word) if isinstance(word, bool) else word}`" for word in words)
    if "anyOf" in value or "oneOf" in value:
        members = value.get("anyOf") or value.get("oneOf") or []
        return " or ".join(dict.fromkeys(_type(member) for member in members))
    if "$ref" in value:
        return "section"
    if value["type"] == "array":
        return f"list of {_type(value['items'])}" if "items" in value else "[number, number]"
    if value["type"] == "object":
        inner = value["additionalProperties"]
        return "map" if inner is True else f"{_type(inner)} by name"
    return _TYPES[value["type"]] + _limits(value)


def _limits(value: Schema) -> str:
    words = {"exclusiveMinimum": "> {}", "minimum": ">= {}", "exclusiveMaximum": "< {}", "maximum": "<= {}"}
    limits = [text.format(f"{value[key]:g}") for key, text in words.items() if key in value]
    return f" {', '.join(limits)}" if limits else ""


if __name__ == "__main__":
    print(render(), end="")
