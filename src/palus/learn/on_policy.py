"""What PPO and MA-POCA share: settings by schedule, epochs of shuffled minibatches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from palus.config.trainer import OnPolicyBehavior
from palus.learn.device_steps import Descent, Held
from palus.learn.learner import SEEN, Learner, Part, flat, means
from palus.learn.returns import normalized
from palus.learn.sequences import Sequences
from palus.learn.strata import Strata
from palus.nn.encoders import VECTORS
from palus.nn.network import Inputs
from palus.rollout.rollout import Rollout
from palus.types import F32, I64, AnyArray, Bool

DECISIONS = "decisions"
"""Under it a device holds what is read of a decision, side by side."""
Counts = tuple[int, ...]
"""Numbers of a minibatch that means are taken over."""


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

    def normalize(self, advantages: F32, usable: Bool, strata: Strata) -> None:
        """Give those of usable decisions zero mean and unit deviation, of all ranks together; both [T, B], in place."""
        rows, columns = np.nonzero(usable)
        places = [(rows[own], columns[own]) for own in strata.split(columns)]
        for place, own in zip(places, normalized([advantages[place] for place in places], self.total), strict=True):
            advantages[place] = own

    def epochs(
        self,
        strata: Strata,
        sequences: Sequences,
        size: int,
        part: Callable[[I64, Counts], Part],
        count: Callable[[I64], Counts],
        rate: float,
        study: Callable[[I64], dict[str, float]],
    ) -> dict[str, float]:
        """Passes over shuffled sequences in minibatches of `size`, the remainder dropped; means over the minibatches.

        part: (numbers of a part, what counts in the minibatch) -> Part; called from several threads at once. count:
        what counts in sequences; minibatches of all ranks are added up. study: lets what else learns learn from the
        same minibatch. The policy loss is reported by its size, as ML-Agents does.
        """
        numbers, columns = sequences.numbers, sequences.usable.shape[1]
        width = int(strata.bounds[-1]) // columns  # agents of a column: 1, or a whole group
        items = [numbers[own] for own in strata.split(numbers % columns, width)]
        there = int(self.total([len(own) for own in items]))
        size = max(1, min(size, there))
        found, told = list[dict[str, float]](), list[dict[str, float]]()
        for _ in range(self.behavior.hyperparameters.num_epoch):
            order = strata.shuffled(items, self.generator)
            dealt = list(strata.dealt(order, there // size, (size, there)))
            counts = self.ranks.gather([count(np.concatenate(pieces)) for pieces in dealt])
            for pieces, *own in zip(dealt, *counts, strict=True):
                whole: Counts = tuple(map(sum, zip(*own, strict=True)))
                if not any(whole):
                    continue
                shares = self.parallel.split(pieces[0]) if strata.count == 1 else [own for own in pieces if len(own)]
                parts = self.parallel.map(lambda piece: part(piece, whole), shares)  # noqa: B023
                self.descend([each.gradient for each in parts], rate)
                found.append({tag: sum(each.means[tag] for each in parts) for tag in (parts[0].means if parts else ())})
                told.append(study(np.concatenate(pieces)) if self.learned_signals else {})
        losses = [_added(own) for own in zip(*self.ranks.gather(found), strict=True)]
        return means([loss | other for loss, other in zip(losses, told, strict=True)])

    def _minibatches(self, items: I64, size: int) -> Iterator[I64]:
        """`size` items each, or all where there are fewer; shuffled anew in every epoch."""
        size = max(1, min(size, len(items)))
        for _ in range(self.behavior.hyperparameters.num_epoch):
            order = items[torch.randperm(len(items), generator=self.generator).numpy()]
            for first in range(0, len(items) - size + 1, size):
                yield order[first : first + size]

    # -- on a device ------------------------------------------------------------------------------------------------

    tags: ClassVar[tuple[str, ...]]
    """Of what `objective` reports."""

    @abstractmethod
    def objective(self, held: Held) -> Descent:
        """The gradient that `update`'s parts take, as one pure function of tensors of fixed shapes, and the means of
        `tags`. What does not count weighs 0; nothing is picked out."""

    def device_epochs(
        self,
        rollout: Rollout,
        sequences: Sequences,
        size: int,
        decisions: Sequence[F32],
        arrays: Mapping[str, AnyArray],
        now: Schedules,
        study: Callable[[I64], dict[str, float]],
    ) -> dict[str, float]:
        """`epochs` of the same minibatches on the learner's device. rollout: resident; size: sequences in a minibatch.

        decisions: [T B, ...] each, which `objective` finds side by side under DECISIONS; arrays: what it reads besides.
        """
        minibatches = list(self._minibatches(sequences.numbers, size))
        if not minibatches:
            return {}
        # [length, steps x n] -> [steps, length, n]
        whole = sequences.decisions(np.concatenate(minibatches))
        index, counts = (np.stack(np.split(own, len(minibatches), 1)) for own in whole)
        shares = counts / np.maximum(counts.sum((1, 2), dtype=np.float32, keepdims=True), 1.0)
        plan = {"numbers": np.stack(minibatches), "index": index, "shares": shares}
        masks = {} if rollout.masks is None else {"masks": rollout.masks.reshape(-1, rollout.masks.shape[2])}
        bounds = {"epsilon": np.array(now.epsilon, np.float32), "beta": np.array(now.beta, np.float32)}
        seen = {name: flat(x) for name, x in rollout.seen.items()}
        vectors = {SEEN + name: x for name, x in self.network.inputs.vectors(seen).items()}  # scaled once for all steps
        joined = np.concatenate([x.reshape(len(x), -1) for x in decisions], 1, dtype=np.float32)
        self.device_steps.hold({DECISIONS: joined, **arrays, **masks, **bounds, **vectors})
        studied: list[dict[str, float]] = []
        found = self.device_steps.run(
            self.objective, self.tags, plan, now.learning_rate,
            lambda k: studied.append(study(minibatches[k]) if self.learned_signals else {}),
        )  # fmt: skip
        return found | means(studied)

    def inputs_of(self, held: Held, places: Tensor) -> tuple[Inputs, Tensor | None]:
        """What the network reads of some decisions that are held, and their masks. places: [R], numbers t B + b."""
        there = {name.removeprefix(SEEN): x for name, x in held.items() if name.startswith(SEEN)}
        seen = {name: x if name == VECTORS else x.flatten(0, 1) for name, x in there.items()}
        return self.network.inputs(seen, places), held["masks"][places] if "masks" in held else None


def _added(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What the ranks found of one minibatch, some perhaps nothing."""
    total = {tag: sum(own.get(tag, 0.0) for own in found) for tag in dict.fromkeys(tag for own in found for tag in own)}
    return total | {"Losses/Policy Loss": abs(total["Losses/Policy Loss"])}
