"""The sections of an `appo` behavior, asynchronous PPO, and `palus.sampling`, which all trainers have.

Words of ML-Agents where it has them, so `lambd`, `epsilon`, `beta`; defaults of Sample Factory 2.1.1 where it has a
counterpart (docs/from-sample-factory.md lists both names).
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from palus.config.network import ClippedHyperparameters, Memory, NetworkSettings
from palus.config.section import Count, CountOrMinusOne, CountOrZero, Decay, NotNegative, Positive, Section
from palus.processes import FORKLESS


def _off(value: object) -> object:
    """YAML 1.1 reads `off` without quotes as false."""
    return "off" if value is False else value


def _startable(workers: int) -> int:
    """Workers are handed open files of the process that starts them, which Windows does not know: there are none."""
    if sys.platform == "win32" and workers > 0:
        text = "a worker process {needs}; 0 steps all games in one process"
        raise PydanticCustomError("no_workers", text, {"needs": FORKLESS})
    return 0 if sys.platform == "win32" else workers


class AppoHyperparameters(
    ClippedHyperparameters,
    buffer_size=1024,
    learning_rate=1e-4,
    learning_rate_schedule="constant",
    beta=3e-3,
    epsilon=0.1,
    num_epoch=1,
    beta_schedule="constant",
):
    """APPO."""

    adaptive_learning_rate: Annotated[Literal["off", "minibatch", "epoch"], BeforeValidator(_off)] = Field(
        default="off", description="How often the rate follows the KL: / 1.5 above twice target_kl, x 1.5 below half."
    )
    target_kl: Positive = Field(default=0.008, description="KL per update that adaptive_learning_rate aims at.")
    min_learning_rate: Positive = Field(default=1e-6, description="Lower end of adaptive_learning_rate.")
    max_learning_rate: Positive = Field(default=1e-2, description="Upper end of adaptive_learning_rate.")
    exploration_loss: Literal["entropy", "symmetric_kl"] = Field(
        default="entropy", description="Entropy bonus, or KL to and from the uniform policy (discrete actions only)."
    )
    value_coefficient: NotNegative = Field(default=0.5, description="Weight of the value loss.")
    value_epsilon: Positive = Field(default=1.0, description="Absolute clip of a value's change, in normalised units.")
    kl_coefficient: NotNegative = Field(default=0.0, description="Weight of KL(new policy, acting policy).")
    advantages: Literal["gae", "vtrace"] = Field(
        default="gae", description="GAE on the acting policy's values, or V-trace against policy lag."
    )
    vtrace_rho: Positive = Field(default=1.0, description="Truncation of V-trace's importance weights.")
    vtrace_c: Positive = Field(default=1.0, description="Truncation of V-trace's trace coefficients.")
    normalize_returns: bool = Field(default=True, description="Train the critic on returns of mean 0 and variance 1.")
    bootstrap_truncated: bool = Field(
        default=True, description="An episode cut off by a time limit counts the value of its last observation."
    )
    reward_clip: Positive = Field(default=1000.0, description="Absolute clip of a reward, after strength.")
    shuffle: bool = Field(default=False, description="Shuffle the rows of an epoch; otherwise in order of arrival.")
    max_policy_lag: Count = Field(default=1000, description="Decisions of weights older than this many steps drop out.")
    max_grad_norm: NotNegative = Field(default=4.0, description="L2 norm that gradients are cut to; 0 means no limit.")
    adam_epsilon: Positive = Field(default=1e-6, description="Adam's epsilon.")
    adam_beta1: Decay = Field(default=0.9, description="Adam's decay of the first moment.")
    adam_beta2: Decay = Field(default=0.999, description="Adam's decay of the second moment.")
    shared_critic: bool = Field(default=True, description="Policy and value share the network body.")


class AppoMemory(Memory, sequence_length=None, memory_size=512, kind="gru"):
    """Recurrent memory, with the defaults of `appo`."""


class AppoNetworkSettings(
    NetworkSettings,
    normalize=True,
    hidden_units=512,
    vis_encode_type="convnet_simple",
    encoding="apart",
    image_units=512,
    activation="elu",
    initialization="orthogonal",
    adaptive_deviation=True,
):
    """The network, with the defaults of `appo`, which are Sample Factory's."""

    memory: AppoMemory | None = Field(default_factory=AppoMemory, description="Recurrent memory; null means none.")


class Sampling(Section):
    """`palus.sampling`: how games are stepped."""

    collector: Literal["auto", "in_process", "workers"] = Field(
        default="auto",
        description="Where: many matches in one call of this process, or in worker processes; `auto` takes what the "
        "game is made for. The other keys speak of workers.",
    )
    workers: Annotated[CountOrMinusOne, AfterValidator(_startable)] = Field(
        default=-1,
        validate_default=True,
        description="Processes; 0 steps games in the main process, -1 means one per physical core, of sac one: more "
        "would be more games, and so a rollout of another length. On Windows always 0.",
    )
    games_per_worker: CountOrZero = Field(
        default=0,
        description="Games of each process; 0 means as many as buffer_size / time_horizon needs, of sac one for each "
        "split.",
    )
    splits: CountOrZero = Field(
        default=0,
        description="Groups of a worker's games: one steps while another is decided for, or all are decided for at "
        "once on several threads. 0 means 2 where the games divide so, but 1 on a CPU whose cores a learner fills "
        "meanwhile (`asynchronous`): one large batch costs less than two.",
    )
    asynchronous: Literal["auto", True, False] = Field(
        default="auto",
        description="Play the next rollout while the learner learns from the one before, so with weights that are one "
        "update older; runs repeat exactly either way. `auto`: where all learners are appo and games in workers.",
    )
    affinity: bool = Field(
        default=True,
        description="Pin each worker to a core, where all cores get equally many; with policies on a device, one core "
        "may be left.",
    )
    decorrelate: bool = Field(default=True, description="Start games out of step, by random decisions.")
    timeout: Positive = Field(default=60.0, description="Seconds after which a silent worker is replaced.")
    max_restarts: CountOrZero = Field(
        default=20, description="Replacements within ten minutes, or before a rollout is complete, that a run survives."
    )
