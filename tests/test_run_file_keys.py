"""Every key of a run file does something, or says that it does not: for each trainer, each key of the schema.

A key is read, or noted as without effect, or refused, never two of these and never none. In each of a few tiny runs,
which between them have every key, a key that nothing is told of is looked at, or this fails.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import yaml
from pydantic import BaseModel
from typer.testing import CliRunner

from palus.cli import app
from palus.config import RunFile, load_run, notes, schema, unsupported
from palus.config.environment import (
    CompletionCriteria,
    ConstantParameters,
    Curriculum,
    GaussianParameters,
    Lesson,
    MultiRangeUniformParameters,
    UniformParameters,
)
from palus.config.section import Section
from palus.config.trainer import TRAINERS
from palus.config.unread import OF_BEHAVIORS, OF_RUNS, KnownGame, kinds_of
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

EVERY = frozenset({""})
GAMES: dict[str, tuple[list[str], KnownGame | None]] = {
    "in process": (["palus.env=SoccerTwos"], KnownGame(False, ("random",), EVERY, EVERY)),
    "in workers": (["palus.env=SoccerTwos"], KnownGame(True, ("random",), EVERY, EVERY)),
    "executable": (["env_settings.env_path=game"], None),
    "Editor": (["env_settings.env_path=UnityEditor"], None),
    "BaseEnv": (["palus.env=palus.unity.base_env:make"], None),
}
"""Kinds of games: what the file says, and what the game would say."""
NEEDS = {
    "behaviors.X.reward_signals.": "behaviors.X.reward_signals.extrinsic={}",
    "behaviors.X.reward_signals.gail.": "behaviors.X.reward_signals.gail.demo_path=y.demo",
    "behaviors.X.behavioral_cloning.": "behaviors.X.behavioral_cloning.demo_path=y.demo",
    "behaviors.X.hyperparameters.reward_signal_steps_per_update": "behaviors.X.reward_signals={rnd: {}}",
    "palus.league.": "behaviors.X.self_play={}",
    "palus.league.delta": "palus.league.opponents=history",
    "behaviors.X.hyperparameters.advantages": "behaviors.X.hyperparameters.normalize_returns=false",
    "behaviors.X.hyperparameters.vtrace": "behaviors.X.hyperparameters={advantages: vtrace, normalize_returns: false}",
    **dict.fromkeys(
        [f"behaviors.X.hyperparameters.{key}" for key in ("target_kl", "min_learning_rate", "max_learning_rate")],
        "behaviors.X.hyperparameters.adaptive_learning_rate=epoch",
    ),
    "behaviors.X.network_settings.normalize_names": "behaviors.X.network_settings.normalize=true",
    "behaviors.X.network_settings.initial_deviation": "behaviors.X.network_settings.adaptive_deviation=false",
    "behaviors.X.network_settings.range_end": "behaviors.X.network_settings.squash=false",
}
"""What a key needs beside itself: the beginning of its path, and an override."""
OTHER: dict[str, Any] = {
    "hyperparameters.batch_size": 512,
    "hyperparameters.buffer_size": 20480,
    "network_settings.hidden_units": 64,
    "network_settings.memory.memory_size": 64,
    "network_settings.memory.sequence_length": 16,
    "network_settings.normalize_names": ["x"],
    "network_settings.decoder_layers": [8],
    "behavioral_cloning.num_epoch": 3,
    "behavioral_cloning.batch_size": 64,
    "population.perturb_min": 1.2,
    "population.perturb_max": 2.0,
    "time_horizon": 16,
    "env_settings.env_args": ["x"],
    "palus.env": "RescueToy",
    "palus.env_options": {"x": 1},
    "palus.trainers": {"X": "own_trainer:Cosine"},
    "palus.baselines": ["random"],
    "palus.league.change_every": 5,
    "palus.league.members": ["x"],
    "palus.league.runs": {"x": {}},
    "palus.league.evaluation_share": 0.1,
    "vis_encode_type": "convnet_atari",
    "encoding_size": 8,
}
"""By path or by name, where the next or the other value is not one that the file may have."""
AT_LOADING = {
    "behaviors.X.even_checkpoints",
    *(f"behaviors.X.reward_signals.{name}.encoding_size" for name in ("curiosity", "gail", "rnd")),
}
"""Keys whose effect is in the values of others when a run has been loaded (tests/config/test_load.py)."""


def leaves(model: type[BaseModel], at: str = "") -> Iterator[tuple[str, type[BaseModel], str]]:
    """Path, section and name of every key below a section that is not a section itself."""
    for name, field in model.model_fields.items():
        inner = [m for _, branch in schema.branches(field.annotation) if (m := schema.as_model(branch))]
        if inner:
            yield from leaves(inner[0], f"{at}{name}.")
        else:
            yield f"{at}{name}", model, name


def keys(trainer: str) -> dict[str, tuple[type[BaseModel], str]]:
    """The keys of a behavior and those outside of behaviors, but for those of environment parameters.

    The memory of a reward signal is left out: it is dropped with a warning when a file is loaded.
    """
    below = {f"behaviors.X.{path}": (model, name) for path, model, name in leaves(TRAINERS[trainer])}
    del below["behaviors.X.trainer_type"]
    below = {path: key for path, key in below.items() if not (".reward_signals." in path and ".memory." in path)}
    names = [name for name in RunFile.model_fields if name not in ("default_settings", "behaviors")]
    names.remove("environment_parameters")
    return below | {p: (m, n) for p, m, n in leaves(RunFile) if p.split(".")[0] in names}


def other(path: str, model: type[BaseModel], name: str) -> Any:
    """A valid value that is not the default."""
    for known in (path.removeprefix("behaviors.X."), name):
        if known in OTHER:
            return OTHER[known]
    field = model.model_fields[name]
    default = field.get_default(call_default_factory=True, validated_data=model.model_construct().__dict__)
    if get_origin(field.annotation) is Literal:
        return next(choice for choice in get_args(field.annotation) if choice != default)
    if isinstance(default, bool):
        return not default
    if isinstance(default, float):
        return default / 2 if default else 0.5
    return default + 1 if isinstance(default, int) else "x"


def run_with(folder: Path, trainer: str, game: list[str], path: str | None = None, value: Any = None) -> RunFile:
    """A smallest run of the trainer, with that key set."""
    file = folder / "run.yaml"
    file.write_text(json.dumps({"behaviors": {"X": {"trainer_type": trainer}}}))
    if path is None:
        return load_run(file, game)
    needed = [override for start, override in NEEDS.items() if path.startswith(start)]
    return load_run(file, [*game, *needed, f"{path}={json.dumps(value)}"])


def told(lines: list[str], path: str) -> bool:
    """Whether a sentence opens with the key or with a section that holds it."""
    heads = [line.replace(":", " ").split(" ")[0] for line in lines]
    return any(path == head or path.startswith(f"{head}.") for head in heads)


def fate(trainer: str, path: str, kinds: frozenset[str]) -> str:
    """What becomes of a key that is written, by the tables of `palus.config.unread`."""
    entries = [(f"behaviors.X.{entry.key}", entry) for entry in OF_BEHAVIORS] + [
        (entry.key, entry) for entry in OF_RUNS if kinds <= entry.games
    ]
    fates = {
        "refused" if entry.refused else "noted"
        for key, entry in entries
        if trainer in entry.trainers and (path == key or path.startswith(f"{key}."))
    }
    assert len(fates) < 2
    return fates.pop() if fates else "read"


NEVER_ALONE = {("palus.num_matches", "in workers"): "noted"}
"""What becomes of a key whose trainers are not those of every run (`palus.config.idle`), but for sac."""


@pytest.mark.parametrize("kind", GAMES)
@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_key_is_read_or_noted_or_refused(trainer: str, kind: str, tmp_path: Path) -> None:
    game, known = GAMES[kind]
    base = run_with(tmp_path, trainer, game)
    assert kinds_of(base, known) == {kind}
    wrong, count = {}, 0
    for path, (model, name) in keys(trainer).items():
        if path in ("palus.env", "env_settings.env_path") and kind != "in process":
            continue  # it makes the game one of another kind
        run = run_with(tmp_path, trainer, game, path, other(path, model, name))
        noted = told([line for line in notes(run, known) if line not in notes(base, known)], path)
        refused = told([line for line in unsupported(run) if line not in unsupported(base)], path)
        expected = fate(trainer, path, frozenset({kind}))
        expected = expected if trainer == "sac" else NEVER_ALONE.get((path, kind), expected)
        if (noted, refused) != (expected == "noted", expected == "refused"):
            wrong[path] = expected, noted, refused
        count += 1
    assert wrong == {} and count > 100


def lessons(value: str = "1", measure: str = "progress", more: str = "", last: str = "") -> str:
    criteria = f"{{behavior: X, measure: {measure}, threshold: 0.5{more}}}"
    return (
        f"{{curriculum: [{{name: a, value: {value}, completion_criteria: {criteria}}}, {{name: b, value: 1{last}}}]}}"
    )


PARAMETERS: dict[tuple[type[BaseModel], str], tuple[str, str]] = {
    (ConstantParameters, "value"): ("read", "{sampler_type: constant, sampler_parameters: {value: 2}}"),
    (ConstantParameters, "seed"): ("noted", "{sampler_type: constant, sampler_parameters: {seed: 2}}"),
    (UniformParameters, "min_value"): ("read", "{sampler_type: uniform, sampler_parameters: {min_value: 0.5}}"),
    (UniformParameters, "max_value"): ("read", "{sampler_type: uniform, sampler_parameters: {max_value: 2}}"),
    (UniformParameters, "seed"): ("read", "{sampler_type: uniform, sampler_parameters: {seed: 2}}"),
    (GaussianParameters, "mean"): ("read", "{sampler_type: gaussian, sampler_parameters: {mean: 2}}"),
    (GaussianParameters, "st_dev"): ("read", "{sampler_type: gaussian, sampler_parameters: {st_dev: 2}}"),
    (GaussianParameters, "seed"): ("read", "{sampler_type: gaussian, sampler_parameters: {seed: 2}}"),
    (MultiRangeUniformParameters, "intervals"): (
        "read",
        "{sampler_type: multirangeuniform, sampler_parameters: {intervals: [[0, 2]]}}",
    ),
    (MultiRangeUniformParameters, "seed"): (
        "read",
        "{sampler_type: multirangeuniform, sampler_parameters: {seed: 2}}",
    ),
    (Curriculum, "curriculum"): ("read", lessons()),
    (Lesson, "name"): ("read", lessons()),  # a label for messages about the lesson
    (Lesson, "value"): ("read", lessons(value="2")),
    (Lesson, "completion_criteria"): ("noted", lessons(last=", completion_criteria: {behavior: X}")),
    (CompletionCriteria, "behavior"): ("read", lessons()),  # the only one that the file has, which is checked
    (CompletionCriteria, "measure"): ("read", lessons(measure="reward")),
    (CompletionCriteria, "threshold"): ("read", lessons()),
    (CompletionCriteria, "min_lesson_length"): ("read", lessons(more=", min_lesson_length: 5")),
    (CompletionCriteria, "signal_smoothing"): ("noted", lessons(more=", signal_smoothing: false")),
    (CompletionCriteria, "require_reset"): ("read", lessons(more=", require_reset: true")),
}
"""Key of an environment parameter -> what becomes of it, and a parameter where it says something else than usual."""


def test_every_key_of_an_environment_parameter_is_read_or_noted_or_refused(tmp_path: Path) -> None:
    models = {model for model, _ in PARAMETERS}
    assert {(model, name) for model in models for name in model.model_fields} == set(PARAMETERS)
    at = "environment_parameters.ball_touch"
    for (_, name), (outcome, parameter) in PARAMETERS.items():
        for trainer in TRAINERS:
            run = run_with(tmp_path, trainer, GAMES["in process"][0], at, yaml.safe_load(parameter))
            found = told(notes(run), at), told(unsupported(run), at)
            assert found == (outcome == "noted", outcome == "refused"), (name, parameter)


TINY = [
    "behaviors.X.hyperparameters={batch_size: 64, buffer_size: 128}",
    "behaviors.X.network_settings={hidden_units: 8, num_layers: 1}",
    "behaviors.X.max_steps=300", "behaviors.X.checkpoint_interval=150", "behaviors.X.summary_freq=128",
    "behaviors.X.time_horizon=16", "env_settings.seed=1", "palus.max_minutes=5", "palus.threads=1",
    "palus.matmul=highest",
]  # fmt: skip
SOCCER = [
    "palus.env=SoccerTwos", "palus.num_matches=4", "palus.baselines=[ball-chaser]", "palus.baseline_pairs=1",
    "palus.baseline_interval=300", "palus.env_options.max_steps=50",
    "behaviors.X.self_play={save_steps: 100, swap_steps: 50}",
    "palus.league={opponents: history, delta: 0.5, roles: {main_exploiter: 1, league_exploiter: 1}}",
]  # fmt: skip
UNAIDED = ["palus.env=sampled:RecallGame"]
RECALL_SPEC = BehaviorSpec("X", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)))
RECALL = [*UNAIDED, "behaviors.X.network_settings.memory={memory_size: 8}"]
COUNTING = [
    "palus.env=counting_game:CountingGame",
    "palus.env_options.side=40",
    "behaviors.X.network_settings={image_units: 8}",
]
COMMON = [
    SOCCER,
    [
        *RECALL,
        "palus.sampling={workers: 1, asynchronous: true}",
        "palus.env_options.agents=2",
        "behaviors.X.self_play={save_steps: 100}",
    ],
    [
        *COUNTING,
        "palus.sampling.workers=0",
        "behaviors.X.population={size: 2, period: 50, start: 50}",
        "behaviors.X.network_settings.memory={memory_size: 8}",
        "behaviors.X.network_settings.adaptive_deviation=false",
    ],
]
IMITATING = [
    *UNAIDED, "palus.sampling.workers=0", "behaviors.X.reward_signals={extrinsic: {}, curiosity: {}, rnd: {}}",
    "behaviors.X.reward_signals.gail={demo_path: DEMO, use_vail: true}",
    "behaviors.X.behavioral_cloning={demo_path: DEMO}",
]  # fmt: skip
"""DEMO stands for a file."""
SELDOM = "behaviors.X.hyperparameters.steps_per_update=30"
RUNS = {
    **{trainer: [*COMMON, IMITATING] for trainer in ("ppo", "poca")},
    "sac": [
        [*IMITATING, SELDOM],
        [*SOCCER, SELDOM],
        [
            *RECALL,
            SELDOM,
            "palus.sampling={workers: 1, asynchronous: true}",
            "palus.env_options.agents=2",
            "behaviors.X.self_play={save_steps: 100}",
        ],
        [
            *COUNTING,
            SELDOM,
            "palus.sampling.workers=0",
            "behaviors.X.network_settings.adaptive_deviation=false",
            "behaviors.X.population={size: 2, period: 50, start: 50}",
        ],
    ],
    "appo": [
        *COMMON,
        [
            *RECALL,
            "palus.sampling.workers=0",
            "behaviors.X.hyperparameters.adaptive_learning_rate=epoch",
            "behaviors.X.save_best_after=50",
        ],
        [
            *RECALL,
            "palus.sampling.workers=0",
            "behaviors.X.hyperparameters.advantages=vtrace",
            "behaviors.X.hyperparameters.normalize_returns=false",
        ],
    ],
}
"""Small runs that between them use everything that a trainer can do, where that is more than in COMMON."""


def section_of(run: RunFile, path: str) -> Section | None:
    """The section that a key stands in; None where the run does without."""
    here: Any = run
    for word in path.split(".")[:-1]:
        here = here.get(word) if isinstance(here, dict) else getattr(here, word)
        if here is None:
            return None
    return here


@pytest.mark.parametrize(
    "trainer",
    # What PPO reads MA-POCA reads, too, and most of what APPO does.
    [pytest.param(trainer, marks=pytest.mark.slow if trainer in ("ppo", "appo") else ()) for trainer in TRAINERS],
)
def test_a_key_is_looked_at_in_every_run_that_tells_nothing_of_it(
    trainer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: set[tuple[type, str]] = set()
    command, training = (importlib.import_module(f"palus.{name}") for name in ("cli.train", "train"))
    looking, games = True, list[KnownGame | None]()

    def look(self: Section, name: str) -> Any:
        if looking:
            touched.add((type(self), name))
        return object.__getattribute__(self, name)

    def aside(function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose own looks do not count: it judges the file."""

        def call(*given: Any, **named: Any) -> Any:
            nonlocal looking
            looking = False
            try:
                return function(*given, **named)
            finally:
                looking = True

        return call

    def heard(run: RunFile, game: KnownGame | None) -> list[str]:
        games.append(game)
        return notes(run, game)

    def sentences(run: RunFile) -> list[str]:
        return [*notes(run, games[-1]), *unsupported(run)]

    def is_told(words: list[str], usual: list[str], path: str, value: Any) -> bool:
        """Whether a run with these words, and that key set, says that the key has no effect, or does not start.

        usual: what it says without the key.
        """
        lines = sentences(load_run(file, [*words, f"{path}={json.dumps(value)}"]))
        return told([line for line in lines if line not in usual], path)

    monkeypatch.setattr(command, "load_run", aside(load_run))
    monkeypatch.setattr(training, "notes", aside(heard))
    demo = tmp_path / "expert.demo"
    rows = np.eye(3, dtype=np.float32), np.float32([[0], [1], [1]]), None, *np.ones((2, 3), np.float32)
    write_demonstrations(demo, RECALL_SPEC, "X", [ExpertEpisode({"obs": rows[0]}, *rows[1:], False)])
    there, silent = set(), []
    for number, overrides in enumerate(RUNS[trainer]):
        name = "SoccerTwos" if SOCCER[0] in overrides else "X"
        file = tmp_path / f"tiny{number}.yaml"
        file.write_text(f"behaviors: {{{name}: {{trainer_type: {trainer}}}}}")
        words = [word.replace("behaviors.X", f"behaviors.{name}") for word in [*TINY, *overrides]]
        words = [word.replace("DEMO", str(demo)) for word in words]
        folder = ["--run-id", f"r{number}", "--results-dir", str(tmp_path)]
        folder += ["--trust", "sampled", "--trust", "counting_game"]
        touched.clear()
        with pytest.MonkeyPatch.context() as patch:  # not for what follows, which it would slow down
            patch.setattr(Section, "__getattribute__", look, raising=False)
            result = CliRunner().invoke(app, ["train", str(file), *words, *folder])
        assert result.exit_code == 0, result.output
        run = load_run(file, words)
        usual = sentences(run)
        for path, (model, key) in keys(trainer).items():
            own = path.replace("behaviors.X", f"behaviors.{name}")
            if section_of(run, own) is None:
                continue
            there.add(path)
            unseen = (model, key) not in touched and path not in AT_LOADING
            if unseen and not is_told(words, usual, own, other(path, model, key)):
                silent.append((number, path))
    assert silent == []
    assert keys(trainer).keys() - there <= {
        path for path in keys(trainer) if fate(trainer, path, frozenset()) != "read"
    }
