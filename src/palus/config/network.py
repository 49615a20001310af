"""The sections that every trainer has: its network, and what all hyperparameters share.

All trainers have the same keys of a network, under ML-Agents' words where it has one; their defaults differ.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, WithJsonSchema
from pydantic_core import PydanticKnownError

from palus.config.section import Count, CountOrZero, Fraction, NotNegative, Positive, Section

Schedule = Literal["constant", "linear"]
MemoryKind = Literal["lstm", "gru"]
Activation = Literal["swish", "elu", "relu", "tanh"]
Encoding = Literal["joint", "apart"]
Initialization = Literal["mlagents", "orthogonal", "xavier_uniform", "torch"]

VISUAL_ENCODERS = ("fully_connected", "match3", "simple", "nature_cnn", "resnet")
"""ML-Agents' encoders of images."""
OWN_VISUAL_ENCODERS = ("convnet_simple", "convnet_impala", "convnet_atari", "resnet_impala", "resnet_strided")
"""Sample Factory's, and ours."""


def _visual_encoder(name: str) -> str:
    names = [*VISUAL_ENCODERS, *OWN_VISUAL_ENCODERS]
    module, _, attribute = name.partition(":")
    if name not in names and not (module and attribute):
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, [*names, "module:Class"]))})
    return name


_NAMES: dict[str, Any] = {"enum": [*VISUAL_ENCODERS, *OWN_VISUAL_ENCODERS]}
VisualEncoder = Annotated[
    str, AfterValidator(_visual_encoder), WithJsonSchema({"anyOf": [_NAMES, {"type": "string", "pattern": ".:."}]})
]


class Memory(Section):
    """Recurrent memory of a network."""

    sequence_length: Count | None = Field(
        default=64, description="Decisions per sequence fed to the memory while training; null means time_horizon."
    )
    memory_size: Count = Field(
        default=128,
        description="Floats of memory per agent and layer. Of an lstm one half is hidden state, the other cell state, "
        "so it is even; of a gru all is hidden state.",
    )
    kind: MemoryKind = Field(default="lstm", description="What remembers.")
    num_layers: Count = Field(default=1, description="Recurrent layers.")

    @property
    def width(self) -> int:
        """Units of a layer."""
        return self.memory_size // 2 if self.kind == "lstm" else self.memory_size


class SignalNetworkSettings(Section):
    """Size and form of a reward signal's network: ML-Agents' keys."""

    normalize: bool = Field(default=False, description="Normalise observations by running mean and variance.")
    hidden_units: Count = Field(default=128, description="Width of each hidden layer.")
    num_layers: Count = Field(default=2, description="Number of hidden layers.")
    vis_encode_type: VisualEncoder = Field(
        default="simple",
        description="Encoder of images. `resnet_strided` has `resnet_impala`'s blocks with strides, which is cheaper; "
        "module:Class is your own, of a module that --trust names.",
    )
    memory: Memory | None = Field(default=None, description="Recurrent memory; null means none.")
    goal_conditioning_type: Literal["hyper", "none"] = Field(
        default="hyper",
        description="What an observation that the game declares a goal does: `hyper` makes the last hidden layer's "
        "weights from it, with encoding joint; with `none` it is one as any other. No effect without a goal.",
    )
    deterministic: bool = Field(default=False, description="Collect data with the likeliest action, not a sampled one.")


class NetworkSettings(SignalNetworkSettings):
    """Size and form of the network: encoders of observations, memory, decoder, heads."""

    normalize_names: tuple[str, ...] | None = Field(
        default=None, description="The observations that normalize means; null means all."
    )
    encoding: Encoding = Field(
        default="joint",
        description="`joint`: vectors and encoded images together go through the hidden layers, as in ML-Agents; "
        "`apart`: every vector through layers of its own, as in Sample Factory.",
    )
    image_layers: CountOrZero = Field(default=1, description="Fully connected layers after an image's convolutions.")
    image_units: Count = Field(
        default_factory=lambda values: values["hidden_units"],
        description="Width of each of those layers; default: as hidden_units.",
    )
    image_scale: Positive = Field(default=255.0, description="uint8 images are divided by this.")
    decoder_layers: tuple[Count, ...] = Field(default=(), description="Widths of the layers after the memory.")
    activation: Activation = Field(default="swish", description="Activation of all layers; `swish` is x * sigmoid(x).")
    initialization: Initialization = Field(
        default="mlagents",
        description="First weights of linear and convolutional layers; `mlagents` is Kaiming's normal distribution, "
        "and Xavier's with a forget bias of 2 in an lstm. Other memory keeps torch's.",
    )
    initialization_gain: Positive = Field(default=1.0, description="Gain of that initialisation.")
    symmetric: bool = Field(
        default=False,
        description="The policy answers the mirror image of what it sees with that of what it does; what it "
        "learns, it learns for both. Of games that say what their mirror image is, such as SoccerTwos.",
    )
    adaptive_deviation: bool = Field(
        default=False, description="Continuous actions: the network gives the deviation; otherwise it is a vector."
    )
    initial_deviation: Positive = Field(default=1.0, description="The deviation's start, where it is a vector.")
    range_end: NotNegative = Field(
        default=0.0,
        description="Continuous actions of a finite range, without squash: means and deviations are in units of which "
        "so many are half of it, 3 as in ML-Agents; 0 means in the game's own.",
    )
    tanh_scale: NotNegative = Field(default=0.0, description="Squash means to s tanh(m / s); 0 means no squashing.")
    squash: bool = Field(
        default=False,
        description="Continuous actions: the game is told tanh of what is drawn, stretched to its range; otherwise "
        "what is drawn, clipped to it.",
    )


class Hyperparameters(Section):
    """What every trainer has."""

    batch_size: Count = Field(default=1024, description="Rows of one gradient step (a minibatch).")
    buffer_size: Count = Field(
        default=10240, description="Rows collected before each update; of sac, those that the replay buffer holds."
    )
    learning_rate: Positive = Field(default=3e-4, description="Step size of the optimiser.")
    learning_rate_schedule: Schedule = Field(
        default="linear", description="`linear` falls towards 0 at max_steps, `constant` stays."
    )


def as_learning_rate(values: dict[str, Any]) -> Schedule:
    """The default of other schedules."""
    schedule: Schedule = values["learning_rate_schedule"]
    return schedule


class ClippedHyperparameters(Hyperparameters):
    """What PPO, MA-POCA and APPO share."""

    beta: NotNegative = Field(default=5e-3, description="Weight of the entropy bonus, or other exploration loss.")
    epsilon: Positive = Field(
        default=0.2,
        description="Clipping: the probability ratio stays in [1 - e, 1 + e], that of appo in [1 / (1 + e), 1 + e].",
    )
    lambd: Fraction = Field(default=0.95, description="Lambda of the advantage estimate (GAE) and the returns.")
    num_epoch: Count = Field(default=3, description="Passes over the buffer in each update.")
    beta_schedule: Schedule = Field(
        default_factory=as_learning_rate, description="Schedule of beta; default: as learning_rate_schedule."
    )
