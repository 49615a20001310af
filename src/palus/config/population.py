"""`behaviors.NAME.population`: population-based training, in Sample Factory's numbers; any trainer has it."""

from __future__ import annotations

from pydantic import Field

from palus.config.section import Count, CountOrZero, Float, Fraction, NotNegative, Section


class Population(Section):
    """Population-based training: policies that replace and mutate one another. The section's presence turns it on."""

    size: Count = Field(default=8, description="Policies. They share the matches of a rollout.")
    period: Count = Field(default=5000000, description="Trainer steps of a policy between its updates.")
    start: CountOrZero = Field(default=20000000, description="Trainer steps before the first update.")
    replace_fraction: Fraction = Field(default=0.3, description="Share of the best and of the worst, rounded up.")
    mutation_rate: Fraction = Field(default=0.15, description="Chance of each number to change.")
    replace_gap: NotNegative = Field(default=0.1, description="Relative lead that replacing a policy takes.")
    replace_gap_absolute: NotNegative = Field(default=1e-6, description="Absolute lead that it takes as well.")
    perturb_min: Float = Field(default=1.1, ge=1, description="Smallest factor of a change.")
    perturb_max: Float = Field(default=1.5, ge=1, description="Largest factor of a change.")
    optimize_gamma: bool = Field(default=False, description="Mutate the discount too.")
    mix_in_game: bool = Field(
        default=True, description="Agents of one game may follow different policies; in self-play a team never does."
    )
