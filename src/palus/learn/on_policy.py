"""What PPO and MA-POCA share: settings by schedule, epochs of shuffled minibatches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from palus.config.trainer import OnPolicyBehavior
from palus.learn.learner import Learner, Part, means
from palus.rollout.rollout import Rollout
from palus.types import I64


@dataclass(frozen=True)
class Schedules:
    """Learning rate, clip range and entropy weight at one trainer step."""

    learning_rate: float
    epsilon: float
    beta: float

    def tags(self) -> dict[str, float]:
        """As TensorBoard shows them."""
        return {"Policy/Learning Rate": self.learning_rate, "Policy/Epsilon": self.epsilon, "Policy/Beta": self.beta}


class OnPolicy(Learner):
    """A learner whose data comes from its newest weights, by PPO's rules."""

    behavior: OnPolicyBehavior

    def schedules(self, step: int) -> Schedules:
        """Linear ones fall to 1e-10, 0.1 and 1e-5 at max_steps: ML-Agents' minima."""
        minima = (("learning_rate", 1e-10), ("epsilon", 0.1), ("beta", 1e-5))
        return Schedules(*(self.scheduled(key, step, minimum) for key, minimum in minima))

    def sequence_length(self, rollout: Rollout) -> int:
        """Decisions of a sequence: 1 without memory."""
        if not self.network.state_size:
            return 1
        memory = self.behavior.network_settings.memory
        wanted = memory.sequence_length if memory is not None else None
        return min(wanted or len(rollout.active), len(rollout.active))

    def epochs(
        self,
        items: I64,
        size: int,
        part: Callable[[I64, I64], Part],
        rate: float,
        study: Callable[[I64], dict[str, float]],
    ) -> dict[str, float]:
        """Passes over shuffled items in minibatches of `size`, the remainder dropped; means over the minibatches.

        part: (items of a part, items of the minibatch) -> Part; called from several threads at once. study: lets what
        else learns learn from the same minibatch. The policy loss is reported by its size, as ML-Agents does.
        """
        size = max(1, min(size, len(items)))
        found: list[dict[str, float]] = []
        for _ in range(self.behavior.hyperparameters.num_epoch):
            order = items[torch.randperm(len(items), generator=self.generator).numpy()]
            for first in range(0, len(items) - size + 1, size):
                minibatch = order[first : first + size]
                parts = self.parallel.map(lambda piece: part(piece, minibatch), self.parallel.split(minibatch))  # noqa: B023
                self.descend([each.gradient for each in parts], rate)
                total = {tag: sum(each.means[tag] for each in parts) for tag in parts[0].means}
                found.append(total | {"Losses/Policy Loss": abs(total["Losses/Policy Loss"])} | study(minibatch))
        return means(found)
