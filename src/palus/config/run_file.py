"""The whole run file: `RunFile`, and its sections besides the behaviors.

Everything outside `palus` is ML-Agents' trainer file, key by key; `palus` holds what ML-Agents has no word for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from palus.config.appo import Sampling
from palus.config.environment import Curriculum, EnvironmentParameter, Lesson
from palus.config.league import LeagueSettings, Role, Roles
from palus.config.section import Count, CountOrMinusOne, CountOrZero, NotNegative, PortOrZero, Positive, Section
from palus.config.trainer import AnyBehavior
from palus.types import BASE_ENV, DEFAULT_GAME

EDITOR = "UnityEditor"
"""`env_settings.env_path` of a game in Unity's Editor."""
BEHAVIORS_OF = {DEFAULT_GAME: ("SoccerTwos",), "StrikersVsGoalie": ("Striker", "Goalie")}
"""ML-Agents' games that palus has built in, by name: a run file with one of their behaviors needs to name none."""


class EnvSettings(Section):
    """Where the game runs. Built-in games use `seed` alone."""

    env_path: str | None = Field(
        default=None,
        description="Unity executable, or `UnityEditor` for the Editor on port 5004; null means a built-in game.",
    )
    env_args: tuple[str, ...] | None = Field(default=None, description="Arguments for the executable.")
    base_port: PortOrZero = Field(
        default=5005, description="Port of worker 0; worker i adds i. 0 takes any that are free."
    )
    num_envs: Count = Field(default=1, description="Executables side by side.")
    num_areas: Count = Field(default=1, description="Training areas inside an executable.")
    timeout_wait: Count = Field(default=60, description="Seconds to wait for an answer of the executable.")
    seed: CountOrMinusOne = Field(default=-1, le=2**31 - 1, description="Seed of the run; -1 draws one.")
    max_lifetime_restarts: CountOrMinusOne = Field(
        default=10, description="Restarts of a crashed executable over the run; -1 means no limit."
    )
    restarts_rate_limit_n: CountOrMinusOne = Field(
        default=1, description="Restarts within restarts_rate_limit_period_s; -1 means no limit."
    )
    restarts_rate_limit_period_s: Count = Field(default=60, description="Seconds for restarts_rate_limit_n.")


class EngineSettings(Section):
    """How a Unity executable renders and runs. Built-in games ignore it."""

    width: Count = Field(default=84, description="Window width, pixels.")
    height: Count = Field(default=84, description="Window height, pixels.")
    quality_level: CountOrZero = Field(default=5, description="Unity's quality level.")
    time_scale: Positive = Field(default=20.0, description="Speed of the simulation's clock.")
    target_frame_rate: CountOrMinusOne = Field(default=-1, description="Frames per second; -1: no limit.")
    capture_frame_rate: CountOrZero = Field(default=60, description="Simulated frames per second.")
    no_graphics: bool = Field(default=False, description="Run without graphics.")
    no_graphics_monitor: bool = Field(default=False, description="The same, but worker 0 keeps graphics.")


class CheckpointSettings(Section):
    """The run's folder, and what happens to the one that is there already."""

    run_id: str = Field(default="ppo", min_length=1, description="Name of the run and of its folder.")
    initialize_from: str | None = Field(default=None, description="Run id to take the first weights from.")
    load_model: bool = Field(default=False, description="Old word for resume.")
    resume: bool = Field(default=False, description="Continue the run of this id.")
    force: bool = Field(default=False, description="Replace the run of this id; not one that --run-id names.")
    train_model: bool = Field(default=False, description="Old word without effect.")
    inference: bool = Field(default=False, description="Play without learning.")
    results_dir: str = Field(default="results", min_length=1, description="Folder of all runs.")


OWN_CLASS = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"


class TorchSettings(Section):
    """Where PyTorch computes."""

    device: str | None = Field(
        default=None, description="`cpu`, `cuda`, `cuda:1`, ... or `mps`; null means the CPU. See docs/gpu.md."
    )


class PalusSettings(Section):
    """palus's own options."""

    env: str | None = Field(
        default=None,
        description="Built-in game, or module:attribute of a module that --trust names; null: SoccerTwos "
        "where there is a behavior of that name and no env_path, StrikersVsGoalie where Striker or Goalie is.",
    )
    env_options: dict[str, Any] = Field(default_factory=dict, description="Keywords for the game's factory.")
    trainers: dict[str, Annotated[str, StringConstraints(pattern=OWN_CLASS)]] = Field(
        default_factory=dict,
        description="By behavior, module:Class of your own, made from the class of its trainer_type, of a module that "
        "--trust names.",
    )
    sampling: Sampling = Field(default_factory=Sampling, description="How games of palus are stepped.")
    league: LeagueSettings = Field(default_factory=LeagueSettings, description="Who meets whom in self-play.")
    num_matches: CountOrZero = Field(
        default=0, description="Matches simulated side by side; 0 means automatic. In worker processes, of sac alone."
    )
    matmul: Literal["auto", "highest", "medium", "bf16", "int16"] = Field(
        default="auto",
        description="Precision of matrix products; `auto` measures at the start which is fastest. `int16`: whole "
        "numbers of 13 bits where a learner multiplies, for CPUs without units for bf16.",
    )
    acting: Literal["auto", "exact"] = Field(
        default="auto",
        description="`auto`: beside weights in fp32, in one process, large encoders of pictures act in int8 where that "
        "is faster; they learn in fp32. `exact`: policies act as they learn.",
    )
    threads: CountOrZero = Field(default=0, description="Threads; 0 means the number of physical cores.")
    baselines: tuple[str, ...] | None = Field(
        default=None, description="Fixed opponents for the win rate; null: those that the game declares, if any."
    )
    baseline_interval: CountOrZero = Field(
        default=500000,
        description="Trainer steps between win rates against the baselines, more where they would take over 5 % of the "
        "time; 0 means never.",
    )
    baseline_pairs: Count = Field(default=50, description="Mirrored pairs of matches per win rate.")
    max_minutes: NotNegative = Field(default=0.0, description="Stop after this wall time; 0 means no limit.")


class RunFile(Section):
    """A run, fully resolved: every default filled in, every derived value computed."""

    default_settings: AnyBehavior | None = Field(
        default=None,
        description="Settings that every behavior starts from, and those of the game's behaviors that are not in "
        "`behaviors`; same keys as a behavior.",
    )
    behaviors: dict[str, AnyBehavior] = Field(default_factory=dict, description="Trainer settings by behavior name.")
    env_settings: EnvSettings = Field(default_factory=EnvSettings, description="Where the game runs.")
    engine_settings: EngineSettings = Field(default_factory=EngineSettings, description="How Unity renders and runs.")
    environment_parameters: dict[str, EnvironmentParameter] | None = Field(
        default=None, description="Numbers the game reads: constant, sampled, or a curriculum."
    )
    checkpoint_settings: CheckpointSettings = Field(default_factory=CheckpointSettings, description="The run's folder.")
    torch_settings: TorchSettings = Field(default_factory=TorchSettings, description="Where PyTorch computes.")
    debug: bool = Field(default=False, description="Log in detail.")
    palus: PalusSettings = Field(default_factory=PalusSettings, description="palus's own options.")

    @property
    def talks(self) -> bool:
        """Whether the game talks in messages (`palus.unity.news.TalkingGame`): one of Unity, or made as if for it."""
        return self.env_settings.env_path is not None or self.palus.env == BASE_ENV

    @property
    def env_id(self) -> str | None:
        """The game: `palus.env`, else the one of `BEHAVIORS_OF` that the behaviors say; None for one that talks."""
        if self.talks:
            return None
        if self.palus.env is not None:
            return self.palus.env
        return next((game for game, names in BEHAVIORS_OF.items() if not self.behaviors.keys().isdisjoint(names)), None)

    def learners_of(self, name: str) -> tuple[Role, ...]:
        """The role of each learner of a behavior: those of its population, else by `palus.league.roles`."""
        behavior, main = self.behaviors[name], Roles().learners
        if behavior.population is not None:
            return main * behavior.population.size
        return main if behavior.self_play is None else self.palus.league.roles.learners

    def lessons(self) -> dict[str, tuple[Lesson, ...]]:
        """The lessons of every environment parameter; a plain value is one lesson, called like the parameter.

        Seeds of -1 are the run's seed + k, where k counts the values without a seed in the order of the file.
        """
        numbers, found = count(max(self.env_settings.seed, 0)), dict[str, tuple[Lesson, ...]]()
        for name, parameter in (self.environment_parameters or {}).items():
            if isinstance(parameter, Curriculum):
                lessons = parameter.curriculum
            else:
                lessons = (Lesson(name=name, value=parameter),)
            found[name] = tuple(_with_seed(lesson, numbers) for lesson in lessons)
        return found

    def completed(self, behaviors: Iterable[str]) -> RunFile:
        """The run with `default_settings` for those of its game's behaviors that it leaves out."""
        if self.default_settings is None:
            return self
        missing = {name: self.default_settings for name in behaviors if name and name not in self.behaviors}
        return self.changed(behaviors=self.behaviors | missing)


def _with_seed(lesson: Lesson, numbers: Iterator[int]) -> Lesson:
    """The lesson, its value with a seed; plain numbers need none, but count."""
    if isinstance(lesson.value, int | float):
        next(numbers)
        return lesson
    if lesson.value.sampler_parameters.seed != -1:
        return lesson
    return lesson.changed(value={"sampler_parameters": {"seed": next(numbers)}})
