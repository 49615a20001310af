"""A sampler in a few lines for tests of the APPO learner: vectorised toy games, one process, pages of T x B."""

from __future__ import annotations

import numpy as np
import torch
from palus.nn.actor_critic import ActorCritic
from palus.rollout.trajectories import Trajectories

from palus.config import load_run
from palus.config.trainer import AppoBehavior
from palus.envs.game import GameStep
from palus.nn.distributions import sample
from palus.types import ActionSpec, Discrete, GameSpec, ObservationSpec

LENGTH = 4
RECALL = GameSpec.alike("recall", (ObservationSpec("obs", (3,)),), ActionSpec((Discrete(2),)))
"""One of two cues is shown at first; LENGTH - 1 decisions later the agent is paid for naming it. Chance: 0.5."""
SETTINGS = [
    "hyperparameters.learning_rate=0.01", "hyperparameters.num_epoch=2", "hyperparameters.buffer_size=1024",
    "hyperparameters.batch_size=512", "time_horizon=8", "network_settings.hidden_units=16",
    "network_settings.num_layers=1", "network_settings.memory.memory_size=16",
]  # fmt: skip


def appo_behavior(*more: str) -> AppoBehavior:
    overrides = ["behaviors.SoccerTwos.trainer_type=appo", "behaviors.SoccerTwos.network_settings=null"]
    overrides += [f"behaviors.SoccerTwos.{s}" for s in (*SETTINGS, *more)]
    behavior = load_run("debug", overrides).behaviors["SoccerTwos"]
    assert isinstance(behavior, AppoBehavior)
    return behavior


class RecallSampler:
    """B games side by side, out of step from the start; `collect` plays T decisions."""

    def __init__(self, policy: ActorCritic, rows: int = 128, horizon: int = 8, seed: int = 0) -> None:
        self.policy, self.B, self.T, self.seed = policy, rows, horizon, seed
        self.rng = np.random.default_rng(seed)
        self.age, self.cue = np.arange(rows) % LENGTH, self.rng.integers(0, 2, rows)
        self.states, self.tick = np.zeros((rows, policy.state_size), np.float32), 0

    def observe(self) -> np.ndarray:
        seen = np.zeros((self.B, 3), np.float32)
        seen[np.arange(self.B), self.cue] = self.age == 0
        seen[:, 2] = self.age == LENGTH - 1
        return seen

    def collect(self) -> tuple[Trajectories, float]:
        """A page, and the mean reward of the episodes that ended in it."""
        T, B = self.T, self.B
        observations, first = np.zeros((T + 1, B, 3), np.float32), self.states.copy()
        actions, parameters = np.zeros((T, B, 1), np.float32), np.zeros((T, B, 2), np.float32)
        log_probs, values, rewards = np.zeros((3, T, B), np.float32)
        ended = np.zeros((T, B), np.bool_)
        for t in range(T):
            observations[t] = self.observe()
            found = self.policy.act({"obs": torch.from_numpy(observations[t])}, torch.from_numpy(self.states))
            parameters[t], values[t], self.states = (x.numpy().copy() for x in found)
            actions[t], log_probs[t], _ = sample(parameters[t], RECALL.actions, self.seed, self.tick, np.arange(B))
            self.tick += 1
            ended[t] = self.age == LENGTH - 1
            rewards[t] = ended[t] & (actions[t, :, 0] == self.cue)
            self.states[ended[t]] = 0.0
            self.cue = np.where(ended[t], self.rng.integers(0, 2, B), self.cue)
            self.age = np.where(ended[t], 0, self.age + 1)
        observations[T] = self.observe()
        nothing = np.zeros((T, B), np.float32)
        page = Trajectories(
            {"obs": observations}, first, self.states.copy(), actions, parameters, log_probs, values, rewards, ended,
            np.zeros((T, B), np.bool_), nothing, np.ones((T, B), np.bool_),
            np.full((T, B), self.policy.version, np.int32), T * B,
        )  # fmt: skip
        return page, float(rewards[ended].mean())


class RecallGame:
    """The same game for the real sampler, one instance at a time; several agents, each a side, all see one cue.

    pay: what naming it brings, to be tuned.
    """

    def __init__(self, length: int = LENGTH, agents: int = 1, pay: float = 1.0) -> None:
        self.spec = GameSpec.alike(RECALL.env_id, RECALL.observations, RECALL.actions, agents, shaping=(("pay", pay),))
        self.shaping = np.full((agents, 1), pay)
        self.active, self.length = np.ones(agents, np.bool_), length

    def reset(self, seed: int) -> None:
        self.age, self.cue = 0, int(np.random.default_rng(seed).integers(2))

    def observe(self, out: dict[str, np.ndarray]) -> None:
        out["obs"][:] = 0.0
        out["obs"][:, self.cue] = self.age == 0
        out["obs"][:, 2] = self.age == self.length - 1

    observe_final = observe

    def step(self, actions: np.ndarray) -> GameStep:
        over = self.age == self.length - 1
        paid = over & (actions[:, 0] == self.cue)
        self.age += 1
        ended = np.full_like(self.active, over)
        stats = {k: {"true_objective": float(p), "cue": float(self.cue)} for k, p in enumerate(paid) if over}
        return GameStep((paid * self.shaping[:, 0]).astype(np.float32), ended, np.zeros_like(ended), over, stats)

    def close(self) -> None:
        pass
