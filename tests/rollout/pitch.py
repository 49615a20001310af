"""A game that writes down what is done to it, and policies that say who they are: each always plays its own action."""

from __future__ import annotations

import numpy as np
import torch

from palus.rollout.rollout import FROZEN
from palus.types import AgentSpec, BehaviorSpec, GameSpec, Step

ACTIONS = 8
TEAMS = (0, 1, 0, 1)


class Pitch:
    """Two teams of two by default, taking turns in the list of agents. An observation names its moment and its agent.

    Observation, 4 floats: slot, agent, number of the match in the slot, decisions played in it.
    lengths: decisions per match of each slot. cut_off: slots whose matches are truncated instead of terminated.
    leaves: agents that leave after the first decision of every match.
    rewards: agent p gets `pay` x (p + 1) for every decision; at the end team 0's group gets +1 and team 1's -1.
    played: the actions [N, P] of each step, a copy. matches: the number of each slot's match in that step.
    """

    def __init__(self, lengths, *, cut_off=(), leaves=(), teams=TEAMS, groups=None) -> None:
        agents = tuple(
            AgentSpec(f"agent {i}", team, group, "Pitch")
            for i, (team, group) in enumerate(zip(teams, groups or teams, strict=True))
        )
        self.spec = GameSpec("Pitch", (BehaviorSpec.of_vectors("Pitch", (4,), (ACTIONS,)),), agents, max(lengths))
        self.num_matches = len(lengths)
        self.lengths, self.cut_off, self.leaves = np.array(lengths), list(cut_off), list(leaves)
        self.active = np.ones((len(lengths), len(agents)), np.bool_)
        self.pay = 1
        self.poison = dict.fromkeys(("reward", "group reward", "observation"), 0.0)  # added to every such number
        self.played: list[np.ndarray] = []
        self.matches: list[np.ndarray] = []

    def reset(self, seeds) -> None:
        self.match, self.decision = np.zeros((2, self.num_matches), np.int64)

    def _view(self) -> np.ndarray:
        N, P = self.active.shape
        slots, agents = np.meshgrid(np.arange(N), np.arange(P), indexing="ij")
        moment = [np.broadcast_to(x[:, None], (N, P)) for x in (self.match, self.decision)]
        return np.stack([slots, agents, *moment], -1).astype(np.float32) + np.float32(self.poison["observation"])

    def observe(self, behavior, rows, out) -> None:
        wanted = self.active & (rows >= 0)
        out["obs_0"][rows[wanted]] = self._view()[wanted]

    def observe_final(self, behavior, rows, out) -> None:
        wanted = self.ended & (rows >= 0)
        out["obs_0"][rows[wanted]] = self.last[wanted]

    def step(self, actions) -> Step:
        self.played.append(actions[0][:, :, 0].copy())
        self.matches.append(self.match.copy())
        acted = self.active.copy()
        self.decision += 1
        over = self.decision == self.lengths
        cut = np.zeros(self.num_matches, np.bool_)
        cut[self.cut_off] = True
        gone = np.zeros_like(acted)
        gone[:, self.leaves] = self.decision[:, None] == 1
        self.last = self._view()
        self.ended = acted & (gone | over[:, None])
        truncated = self.ended & ~gone & cut[:, None]
        goal = np.where(np.array([a.team for a in self.spec.agents]) == 0, 1.0, -1.0)
        step = Step(
            (self.pay * (np.arange(acted.shape[1]) + 1) * acted + self.poison["reward"]).astype(np.float32),
            (goal * (acted & over[:, None]) + self.poison["group reward"]).astype(np.float32),
            self.ended & ~truncated,
            truncated,
            over,
            self._points(cut),
        )
        self.active &= ~self.ended
        self.active[over] = True
        self.match += over
        self.decision[over] = 0
        return step

    def _points(self, cut) -> np.ndarray:
        """Team 0 wins, unless the match is cut off."""
        sides = len(self.spec.sides)
        won = np.tile([1.0] + [0.0] * (sides - 1), (self.num_matches, 1))
        return np.where(cut[:, None], 0.5, won).astype(np.float32)


class Always:
    """A policy that plays one action with near certainty and remembers what it was shown; without `certain` any."""

    version, state_size, squash = 0, 0, False

    def __init__(self, action: int, certain: bool = True) -> None:
        self.action, self.certain = action, certain
        self.seen: list[np.ndarray] = []

    def act(self, observations, states, masks=None):
        seen = observations["obs_0"]
        self.seen.append(seen.numpy().copy())
        logits = torch.zeros(len(seen), ACTIONS)
        logits[:, self.action] = 60.0 * self.certain
        return logits, None, states

    def who(self, call: int = -1) -> list[tuple[int, int]]:
        """(slot, agent) of each row of a call."""
        return [(int(slot), int(agent)) for slot, agent in self.seen[call][:, :2]]


class Book:
    """Frozen policies by id: snapshot k always plays action k + 1, so that action 0 is the learner's."""

    def __init__(self) -> None:
        self.policies: dict[int, Always] = {}

    def __call__(self, policy: int) -> Always:
        return self.policies.setdefault(policy - FROZEN, Always(policy - FROZEN + 1))
