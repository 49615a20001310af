"""A learner in a run, and what is remembered of it: its last episodes, and what happened since the last summary."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from palus.config import Behavior
from palus.config.league import Role
from palus.export.policy_file import PolicyFile
from palus.learn.learner import Learner
from palus.nn.network import Network
from palus.rollout.rollout import Episode
from palus.types import GameSpec

RECENT_EPISODES = 100
"""Episodes that means are taken over: for lines, best checkpoints and populations."""
_OF_ROLLOUTS = ("/Entropy", " Value Estimate", " Baseline Estimate")
"""Ends of tags that tell of a rollout, not of what was learned from it."""


class PolicyRecord:
    """Figures of one learner. splits_rewards: group rewards are told apart from the agents' own (MA-POCA).

    length_unit: engine frames of a decision where a learner counts those; None counts an episode's decisions as
    ML-Agents does, one less than there were. strength: factor on the game's rewards.
    """

    def __init__(self, splits_rewards: bool, length_unit: int | None, strength: float) -> None:
        self.splits_rewards, self.length_unit, self.strength = splits_rewards, length_unit, strength
        self.recent: deque[Episode] = deque(maxlen=RECENT_EPISODES)
        self.episodes: list[Episode] = []
        self.counted: list[float] = []
        """Of each, the step after which it ended; 0 for those of before the latest update."""
        self.updates: list[dict[str, float]] = []
        self.mean_reward: float | None = None

    def add(
        self, episodes: Sequence[Episode], stats: Mapping[str, float], entropy: float, at: Sequence[float] | None = None
    ) -> None:
        """Take in one update. stats: TensorBoard tag -> number, {} where nothing was learned; entropy: nats. at: the
        step after which each episode ended, in ascending order."""
        self.recent.extend(episodes)
        self.episodes.extend(episodes)
        self.counted = [0.0] * (len(self.episodes) - len(episodes)) + list(at or [0.0] * len(episodes))
        if stats:
            self.updates.append({"Policy/Entropy": entropy, **stats})

    def mean(self, name: str) -> float | None:
        """Mean of a figure (`Episode.number`) over the last episodes; None before there are any that have it."""
        return _mean(self.recent, name)

    @property
    def rewards(self) -> list[float]:
        """Of the episodes since the last summary."""
        return [self.reward_of(e) for e in self.episodes]

    def reward_of(self, episode: Episode) -> float:
        """What a summary counts as the reward of an episode: of groups, what the agent itself was paid."""
        return episode.reward if self.splits_rewards else episode.reward + episode.group_reward

    @property
    def group_rewards(self) -> list[float]:
        """What groups were paid, told by the agents that saw their group's end: others know a part of it."""
        return [e.group_reward for e in self.episodes if not e.left_early] if self.splits_rewards else []

    def summarize(self) -> dict[str, float]:
        """Tag -> number since the last summary."""
        values: dict[str, float] = {}
        for tag in dict.fromkeys(tag for stats in self.updates for tag in stats):  # some are rarer than updates
            numbers = [stats[tag] for stats in self.updates if tag in stats]
            values[tag] = max(numbers) if tag.endswith(" Max") else float(np.mean(numbers))
        if not self.episodes:
            return values
        values["Environment/Cumulative Reward"] = float(np.mean(self.rewards))
        lengths = [e.length * self.length_unit if self.length_unit else e.length - 1 for e in self.episodes]
        values["Environment/Episode Length"] = float(np.mean(lengths))
        paid = float(np.mean([e.reward + e.group_reward for e in self.episodes]))
        values["Policy/Extrinsic Reward"] = paid * self.strength
        if self.group_rewards:
            values["Environment/Group Cumulative Reward"] = float(np.mean(self.group_rewards))
        for name in sorted({name for e in self.episodes for name in e.stats}):
            tag = "True Objective" if name == "true_objective" else name
            values[f"Environment/{tag}"] = _mean(self.episodes, name) or 0.0
        return values

    def numbers_of(self, tag: str) -> int:
        """How many numbers a figure of `summarize` is the mean of: updates, or episodes; 1 for what is none."""
        updates = sum(tag in stats for stats in self.updates)
        if updates or not (tag.startswith("Environment/") or tag == "Policy/Extrinsic Reward"):
            return updates or 1
        if tag == "Environment/Group Cumulative Reward":
            return len(self.group_rewards)
        name = tag.removeprefix("Environment/")
        told = sum(name in e.stats for e in self.episodes)
        return told or len(self.episodes) or 1

    def split_off(self, step: int, *, losses: bool) -> PolicyRecord:
        """What a summary at a step tells: the episodes until then, and the updates' losses where it is to have them."""
        part, n = PolicyRecord(self.splits_rewards, self.length_unit, self.strength), bisect_right(self.counted, step)
        part.recent, part.episodes = self.recent, self.episodes[:n]
        part.updates = [{t: stats[t] for t in stats if losses or t.endswith(_OF_ROLLOUTS)} for stats in self.updates]
        self.episodes, self.counted = self.episodes[n:], self.counted[n:]
        self.updates = [] if losses else self.updates
        if part.episodes:
            self.mean_reward = float(np.mean(part.rewards))
        return part

    def state_dict(self) -> dict[str, Any]:
        """Everything, as plain values."""
        return {
            "recent": [_plain(e) for e in self.recent],
            "episodes": [_plain(e) for e in self.episodes],
            "updates": [dict(stats) for stats in self.updates],
            "mean_reward": self.mean_reward,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.recent = deque((Episode(**e) for e in state["recent"]), RECENT_EPISODES)
        self.episodes = [Episode(**e) for e in state["episodes"]]
        self.counted = [0.0] * len(self.episodes)
        self.updates = [dict(stats) for stats in state["updates"]]
        self.mean_reward = state["mean_reward"]


@dataclass
class Trainee:
    """A learner in a run. name: of its behavior; kind: the same in the game, "" where the game has one without a name.

    acting: what plays for it, its learner's network, or a `Network.twin` that follows it where games are played while
    it learns. number: among the learners of its behavior, from 0; role: its. label: how lines call it. step: trainer
    steps so far; best: the best score of its recent episodes. in_league: learners of its behavior are compared by
    points, its share of those in the league, None before there are any. plays_only: it learns nothing, and played so
    many steps.
    """

    policy: int
    name: str
    kind: str
    label: str
    behavior: Behavior
    learner: Learner
    folder: Path
    record: PolicyRecord
    acting: Network
    step: int = 0
    best: float = float("-inf")
    number: int = 0
    role: Role = "main"
    in_league: bool = False
    plays_only: bool = False
    played: int = 0
    points: float | None = None

    def publish(self) -> None:
        """Play on with what it has learned."""
        if self.acting is not self.learner.network:
            self.acting.follow(self.learner.network)

    def count(self, steps: int) -> None:
        """So many steps were played; only those that may be learned from move it on."""
        if self.plays_only:
            self.played += steps
        else:
            self.step += steps

    @property
    def shown_step(self) -> int:
        """What summaries count: its steps, and those that it only played."""
        return self.step + self.played

    @property
    def progress(self) -> float:
        """Share of its max_steps that it has done."""
        return self.step / self.behavior.max_steps if self.behavior.max_steps else 1.0

    @property
    def metric(self) -> str | None:
        """The figure of episodes that picks the best policy; None where none does."""
        own: str | None = getattr(self.behavior, "best_metric", None)
        return own or (None if self.in_league or self.behavior.population is None else "true_objective")

    @property
    def score(self) -> float | None:
        """What the best learner of a behavior is picked by; None before there is anything, and for exploiters."""
        if self.in_league:
            return self.points if self.role == "main" else None
        return self.record.mean(self.metric) if self.metric else None

    @property
    def unit(self) -> str:
        """What its steps are called."""
        return "frames" if self.learner.counts_frames else "steps"

    def policy_file(self, game: GameSpec, snapshot: int | None = None) -> PolicyFile:
        """The policy as it is now. snapshot: its id in the league."""
        return PolicyFile.of(self.learner.network, game, self.name, self.step, self.score, snapshot)


def _mean(episodes: Sequence[Episode] | deque[Episode], name: str) -> float | None:
    numbers = [number for number in (episode.number(name) for episode in episodes) if number is not None]
    return float(np.mean(numbers)) if numbers else None


def _plain(episode: Episode) -> dict[str, Any]:
    return {**asdict(episode), "stats": {name: float(value) for name, value in episode.stats.items()}}
