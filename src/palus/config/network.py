"""The sections that the trainers of ML-Agents and APPO build upon: networks, and what all hyperparameters have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from palus.config.section import Count, EvenCount, Positive, Section

Schedule = Literal["constant", "linear"]


class Memory(Section):
    """Recurrent memory of a network."""

    sequence_length: Count = Field(default=64, description="Steps per sequence fed to the memory while training.")
    memory_size: EvenCount = Field(
        default=128, description="Floats of memory per agent; half hidden state, half cell state, so it is even."
    )


class NetworkSettings(Section):
    """Size and form of a network."""

    normalize: bool = Field(default=False, description="Normalise vector observations by running mean and variance.")
    hidden_units: Count = Field(default=128, description="Width of each hidden layer.")
    num_layers: Count = Field(default=2, description="Number of hidden layers.")
    vis_encode_type: Literal["fully_connected", "match3", "simple", "nature_cnn", "resnet"] = Field(
        default="simple", description="Encoder of visual observations."
    )
    memory: Memory | None = Field(default=None, description="Recurrent memory; null means none.")
    goal_conditioning_type: Literal["hyper", "none"] = Field(
        default="hyper", description="How a goal observation enters the policy; without one it has no effect."
    )
    deterministic: bool = Field(default=False, description="Collect data with the likeliest action, not a sampled one.")


class Hyperparameters(Section):
    """What every trainer has."""

    batch_size: Count = Field(default=1024, description="Rows of one gradient step (a minibatch).")
    buffer_size: Count = Field(default=10240, description="Rows collected before each update.")
    learning_rate: Positive = Field(default=3e-4, description="Step size of the optimiser.")
    learning_rate_schedule: Schedule = Field(
        default="linear", description="`linear` falls towards 0 at max_steps, `constant` stays."
    )
