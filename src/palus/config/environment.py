"""`environment_parameters`: numbers that the game reads, constant, drawn at random, or advancing with the learner."""

from __future__ import annotations

from typing import Annotated, Any, Literal, LiteralString

from pydantic import (
    AfterValidator,
    Discriminator,
    Field,
    Tag,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from palus.config.section import CountOrZero, Float, Int, NotNegative, Section


def _check_order(low: float, high: float, text: LiteralString) -> None:
    if low > high:
        raise PydanticCustomError("range", text, {"low": low, "high": high})


class _Parameters(Section):
    seed: Int = Field(default=-1, description="Seed of the draws; -1 means derived from the run's seed.")


class ConstantParameters(_Parameters):
    """Parameters of `constant`."""

    value: Float = Field(default=0.0, description="The value.")


class UniformParameters(_Parameters):
    """Parameters of `uniform`."""

    min_value: Float = Field(default=0.0, description="Smallest value.")
    max_value: Float = Field(default=1.0, description="Largest value.")

    @model_validator(mode="after")
    def _ordered(self) -> UniformParameters:
        _check_order(self.min_value, self.max_value, "min_value {low} is greater than max_value {high}; exchange them")
        return self


class GaussianParameters(_Parameters):
    """Parameters of `gaussian`."""

    mean: Float = Field(default=1.0, description="Mean.")
    st_dev: NotNegative = Field(default=1.0, description="Standard deviation.")


def _ordered_interval(interval: tuple[float, float]) -> tuple[float, float]:
    _check_order(*interval, "{low} is greater than {high}; exchange them")
    return interval


Interval = Annotated[tuple[Float, Float], AfterValidator(_ordered_interval)]


class MultiRangeUniformParameters(_Parameters):
    """Parameters of `multirangeuniform`."""

    intervals: tuple[Interval, ...] = Field(
        default=((0.0, 1.0),), min_length=1, description="Intervals [min, max]; drawn in proportion to their length."
    )


class ConstantSampler(Section):
    """Always the same value."""

    sampler_type: Literal["constant"]
    sampler_parameters: ConstantParameters

    def __str__(self) -> str:
        return text_of(self.sampler_parameters.value)


class UniformSampler(Section):
    """Uniform in an interval."""

    sampler_type: Literal["uniform"]
    sampler_parameters: UniformParameters

    def __str__(self) -> str:
        own = self.sampler_parameters
        return f"Uniform sampler: min={own.min_value}, max={own.max_value}"


class GaussianSampler(Section):
    """Normally distributed."""

    sampler_type: Literal["gaussian"]
    sampler_parameters: GaussianParameters

    def __str__(self) -> str:
        own = self.sampler_parameters
        return f"Gaussian sampler: mean={own.mean}, stddev={own.st_dev}"


class MultiRangeUniformSampler(Section):
    """Uniform in a union of intervals."""

    sampler_type: Literal["multirangeuniform"]
    sampler_parameters: MultiRangeUniformParameters

    def __str__(self) -> str:
        return f"MultiRangeUniform sampler: intervals={list(self.sampler_parameters.intervals)}"


def text_of(value: object) -> str:
    """A parameter's value in ML-Agents' words."""
    return f"Float: value={value}" if isinstance(value, int | float) else str(value)


def _form(value: Any) -> str | None:
    """Which of the forms a parameter or a lesson's value has."""
    if isinstance(value, dict):
        return "curriculum" if "curriculum" in value else "sampler" if "sampler_type" in value else None
    if isinstance(value, Section):
        return "curriculum" if isinstance(value, Curriculum) else "sampler"
    return None if value is None or isinstance(value, list) else "number"


def _by_form(expected: str) -> Discriminator:
    return Discriminator(_form, custom_error_type="form", custom_error_message=f"expected {expected}")


def _as_written(value: Any, number: ValidatorFunctionWrapHandler) -> float:
    """A whole number stays one, to be told as it stands in the file."""
    found: float = number(value)
    return value if type(value) is int else found


Number = Annotated[Float, WrapValidator(_as_written)]
Sampler = Annotated[
    ConstantSampler | UniformSampler | GaussianSampler | MultiRangeUniformSampler, Field(discriminator="sampler_type")
]
NumberOrSampler = Annotated[
    Annotated[Number, Tag("number")] | Annotated[Sampler, Tag("sampler")],
    _by_form("a number or {sampler_type, sampler_parameters}"),
]


class CompletionCriteria(Section):
    """When a lesson is learned."""

    behavior: str = Field(description="Behavior whose reward or progress counts.")
    measure: Literal["reward", "progress"] = Field(
        default="reward", description="Mean episode reward, or share of max_steps done."
    )
    min_lesson_length: CountOrZero = Field(default=0, description="Episodes in this lesson before the first test.")
    signal_smoothing: bool = Field(default=True, description="Average the measure with its last value (0.75 new).")
    threshold: Float = Field(default=0.0, description="The lesson is learned when the measure exceeds this.")
    require_reset: bool = Field(default=False, description="Restart all matches when the lesson changes.")


class Lesson(Section):
    """One value of a parameter, and when to move on."""

    name: str = Field(description="Name shown in logs.")
    value: NumberOrSampler = Field(description="A number or a sampler.")
    completion_criteria: CompletionCriteria | None = Field(
        default=None, description="When to go to the next lesson; required in all but the last."
    )


class Curriculum(Section):
    """Lessons in order."""

    curriculum: tuple[Lesson, ...] = Field(min_length=1, description="The lessons, in order.")


Value = float | ConstantSampler | UniformSampler | GaussianSampler | MultiRangeUniformSampler
"""What a parameter is in a lesson."""
EnvironmentParameter = Annotated[
    Annotated[Number, Tag("number")] | Annotated[Sampler, Tag("sampler")] | Annotated[Curriculum, Tag("curriculum")],
    _by_form("a number, {sampler_type, sampler_parameters} or {curriculum: [lessons]}"),
]
