"""The trainer settings of one behavior, section by section, in ML-Agents' words, defaults and export order.

Facts: ML-Agents 1.1.0. A default that depends on another key is a `default_factory` of the values before it, so that
`model_fields_set` still tells a derived value from a written one (`palus.config.advice.notes` prints the reasons).
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from palus.config.appo import AppoHyperparameters, AppoNetworkSettings
from palus.config.network import (
    ClippedHyperparameters,
    Hyperparameters,
    NetworkSettings,
    Schedule,
    SignalNetworkSettings,
    as_learning_rate,
)
from palus.config.population import Population
from palus.config.section import Count, CountOrZero, Float, Fraction, Int, NotNegative, Positive, Section


class OnPolicyHyperparameters(ClippedHyperparameters):
    """What PPO and MA-POCA share."""

    epsilon_schedule: Schedule = Field(
        default_factory=as_learning_rate, description="Schedule of epsilon; default: as learning_rate_schedule."
    )


class PpoHyperparameters(OnPolicyHyperparameters):
    """PPO."""

    shared_critic: bool = Field(default=False, description="Policy and value share the network body.")


class PocaHyperparameters(OnPolicyHyperparameters):
    """MA-POCA."""


class SacHyperparameters(Hyperparameters, batch_size=128, buffer_size=50000, learning_rate_schedule="constant"):
    """SAC."""

    buffer_init_steps: CountOrZero = Field(default=0, description="Trainer steps before the first gradient step.")
    tau: Fraction = Field(
        default=0.005, description="Share of the online network entering the target network per update."
    )
    steps_per_update: Positive = Field(default=1.0, description="Agent steps per gradient step.")
    save_replay_buffer: bool = Field(
        default=False,
        description="Keep the replay buffer in the checkpoint; without it, a resumed run begins with an empty one.",
    )
    init_entcoef: Positive = Field(default=1.0, description="Entropy coefficient at the start.")
    reward_signal_steps_per_update: Positive = Field(
        default_factory=lambda values: values["steps_per_update"],
        description="Agent steps per update of the reward signals; default: as steps_per_update.",
    )


class OnPolicyNetworkSettings(NetworkSettings, range_end=3.0):
    """The network, with the defaults of `ppo` and `poca`."""


class SacNetworkSettings(NetworkSettings, adaptive_deviation=True, squash=True):
    """The network, with the defaults of `sac`."""


class RewardSignal(Section):
    """What every reward signal has."""

    gamma: Fraction = Field(default=0.99, description="Discount per decision.")
    strength: Float = Field(default=1.0, description="Factor on this signal's rewards.")
    network_settings: SignalNetworkSettings = Field(
        default_factory=SignalNetworkSettings, description="Network of the signal, where it has one."
    )


class Extrinsic(RewardSignal):
    """The game's own reward."""


class LearnedSignal(RewardSignal):
    """What the signals that learn have."""

    learning_rate: Positive = Field(default=3e-4, description="Step size of the signal's optimiser.")
    encoding_size: Count | None = Field(default=None, description="Old word for network_settings.hidden_units.")


class Curiosity(LearnedSignal):
    """Reward for surprise: the error of a learned forward model (ICM)."""


class Gail(LearnedSignal):
    """Reward for looking like the demonstrations."""

    demo_path: str = Field(description="Demonstration file or folder.")
    use_actions: bool = Field(default=False, description="The discriminator sees actions too.")
    use_vail: bool = Field(default=False, description="Variational bottleneck in the discriminator.")


class Rnd(LearnedSignal, learning_rate=1e-4):
    """Reward for novelty: the error of predicting a random network."""


class RewardSignals(Section):
    """The rewards that are added up. A map without `extrinsic` drops the game's own reward."""

    extrinsic: Extrinsic | None = Field(default=None, description="The game's own reward.")
    curiosity: Curiosity | None = Field(default=None, description="Reward for surprise (ICM).")
    gail: Gail | None = Field(default=None, description="Reward for looking like the demonstrations.")
    rnd: Rnd | None = Field(default=None, description="Reward for novelty (RND).")


class BehavioralCloning(Section):
    """Imitation of demonstrations beside reinforcement learning."""

    demo_path: str = Field(description="Demonstration file or folder.")
    steps: CountOrZero = Field(default=0, description="Steps over which the weight falls to 0; 0 means constant.")
    strength: NotNegative = Field(default=1.0, description="Learning rate of imitation relative to the trainer's.")
    samples_per_update: CountOrZero = Field(default=0, description="Most rows of an epoch; 0 means no limit.")
    num_epoch: Count | None = Field(default=None, description="Passes per update; null means 3.")
    batch_size: Count | None = Field(default=None, description="Minibatch rows; null means the trainer's batch_size.")


class SelfPlay(Section):
    """Training against frozen copies of oneself. The section's presence turns it on."""

    save_steps: Count = Field(default=20000, description="Trainer steps between snapshots.")
    team_change: Count = Field(
        default_factory=lambda values: 5 * values["save_steps"],
        description="Trainer steps until another team learns; default: 5 x save_steps.",
    )
    swap_steps: CountOrZero = Field(
        default=2000, description="Steps of the ghost team between changes of its snapshot."
    )
    window: Count = Field(default=10, description="Newest snapshots kept to draw opponents from.")
    play_against_latest_model_ratio: Fraction = Field(
        default=0.5, description="Probability that the opponent is the policy in training instead of a snapshot."
    )
    initial_elo: Float = Field(default=1200.0, description="Rating at the start.")


class Behavior(Section):
    """Everything about training one behavior."""

    mirrors: ClassVar[bool] = False
    """Whether the trainer learns from both sides of a match against itself, or from one side, as ML-Agents does."""
    learns_from_groups: ClassVar[bool] = False
    """Whether the agents of a group have to stay side by side in its rollouts."""
    trainer_type: str = Field(description="The algorithm.")
    hyperparameters: Hyperparameters = Field(description="Its numbers.")
    checkpoint_interval: Count = Field(default=500000, description="Trainer steps between checkpoints.")
    network_settings: NetworkSettings = Field(default_factory=NetworkSettings, description="Policy and critic.")
    reward_signals: RewardSignals = Field(
        default_factory=lambda: RewardSignals(extrinsic=Extrinsic()), description="Rewards; default: extrinsic alone."
    )
    init_path: str | None = Field(default=None, description="Checkpoint (.pt) to take the first weights from.")
    keep_checkpoints: Int = Field(default=5, description="Checkpoints kept; 0 or less keeps all.")
    even_checkpoints: bool = Field(
        default=False, description="Spread keep_checkpoints evenly over max_steps; replaces checkpoint_interval."
    )
    max_steps: CountOrZero = Field(
        default=500000,
        description="Trainer steps of the whole run; 0: it never learns, and in self-play others always play it.",
    )
    time_horizon: Count = Field(
        default=64,
        description="Decisions after which a trajectory is cut and bootstrapped; of sac the most between its updates. "
        "Where all matches step in one process, rollouts end together: with num_matches automatic after about so "
        "many decisions, 80 at most; else when the matches have filled buffer_size.",
    )
    summary_freq: Count = Field(default=50000, description="Trainer steps between summaries.")
    threaded: bool = Field(default=False, description="Train in a thread of its own (ML-Agents only).")
    self_play: SelfPlay | None = Field(default=None, description="Self-play; null means off.")
    behavioral_cloning: BehavioralCloning | None = Field(default=None, description="Imitation; null means off.")
    population: Population | None = Field(default=None, description="Several policies at once; null means one.")

    def rollout_rows(self, at_once: int) -> int:
        """Rows that a learner collects before it learns. at_once: of all matches side by side."""
        return self.hyperparameters.buffer_size

    @property
    def sequence_length(self) -> int:
        """Decisions of a sequence that its memory learns from, out of other data than rollouts; 1 without memory."""
        memory = self.network_settings.memory
        return 1 if memory is None else memory.sequence_length or self.time_horizon

    @property
    def extrinsic(self) -> Extrinsic:
        """The game's own reward; strength 0 when `reward_signals` leaves it out."""
        return self.reward_signals.extrinsic or Extrinsic(strength=0.0)

    def changed(self, **values: Any) -> Self:
        """As of any section; checkpoints that are spread over max_steps follow it."""
        return super().changed(**values)._spread_checkpoints()

    @model_validator(mode="after")
    def _judge(self) -> Self:
        return self._spread_checkpoints()

    def _spread_checkpoints(self) -> Self:
        if self.even_checkpoints and self.keep_checkpoints > 0:
            interval = max(1, self.max_steps // self.keep_checkpoints)
            object.__setattr__(self, "checkpoint_interval", interval)
        return self


class OnPolicyBehavior(Behavior):
    """A behavior trained by PPO or MA-POCA."""

    hyperparameters: OnPolicyHyperparameters = Field(description="Its numbers.")
    network_settings: OnPolicyNetworkSettings = Field(
        default_factory=OnPolicyNetworkSettings, description="Policy and critic."
    )


class PpoBehavior(OnPolicyBehavior):
    """A behavior trained by PPO."""

    trainer_type: Literal["ppo"] = Field(default="ppo", description="The algorithm.")
    hyperparameters: PpoHyperparameters = Field(default_factory=PpoHyperparameters, description="Its numbers.")


class PocaBehavior(OnPolicyBehavior):
    """A behavior trained by MA-POCA."""

    learns_from_groups: ClassVar[bool] = True
    trainer_type: Literal["poca"] = Field(default="poca", description="The algorithm.")
    hyperparameters: PocaHyperparameters = Field(default_factory=PocaHyperparameters, description="Its numbers.")


STEPS_AT_ONCE = 4
"""Gradient steps of SAC after a rollout: with more it would play by older weights, fewer would wait for rollouts."""


class SacBehavior(Behavior):
    """A behavior trained by SAC."""

    trainer_type: Literal["sac"] = Field(default="sac", description="The algorithm.")
    hyperparameters: SacHyperparameters = Field(default_factory=SacHyperparameters, description="Its numbers.")
    network_settings: SacNetworkSettings = Field(default_factory=SacNetworkSettings, description="Policy and critics.")

    def rollout_rows(self, at_once: int) -> int:
        """Whole sequences of every row, as soon as a few gradient steps are due: the buffer holds many rollouts."""
        due, length = math.ceil(STEPS_AT_ONCE * self.hyperparameters.steps_per_update / at_once), self.sequence_length
        return at_once * min(self.time_horizon, -(-due // length) * length)


class AppoBehavior(Behavior):
    """A behavior trained by APPO. max_steps and all other intervals count engine frames."""

    mirrors: ClassVar[bool] = True
    trainer_type: Literal["appo"] = Field(default="appo", description="The algorithm.")
    hyperparameters: AppoHyperparameters = Field(default_factory=AppoHyperparameters, description="Its numbers.")
    network_settings: AppoNetworkSettings = Field(default_factory=AppoNetworkSettings, description="Policy and critic.")
    time_horizon: Count = Field(default=32, description="Decisions per row of a rollout, and of backpropagation.")
    best_metric: str = Field(
        default="true_objective", description="Statistic whose mean over 100 episodes picks the best checkpoint."
    )
    save_best_after: CountOrZero = Field(default=100000, description="Frames before the first best checkpoint.")


AnyBehavior = Annotated[PpoBehavior | PocaBehavior | SacBehavior | AppoBehavior, Field(discriminator="trainer_type")]
TRAINERS: dict[str, type[Behavior]] = {
    behavior.model_fields["trainer_type"].default: behavior for behavior in get_args(get_args(AnyBehavior)[0])
}
HYPERPARAMETERS: dict[str, type[Hyperparameters]] = {
    name: type(behavior.model_fields["hyperparameters"].get_default(call_default_factory=True))
    for name, behavior in TRAINERS.items()
}
