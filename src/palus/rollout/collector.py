"""In-process batched collection: N matches, one learning team in each, opponents batched by snapshot.

Observations of the learning team are written straight into the rollout's arrays. Opponents' rows are ordered so that
each snapshot's rows are one contiguous block; the order changes only when a match ends, never within one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from palus.envs.protocol import MultiAgentEnv
from palus.errors import EnvError
from palus.rollout.rollout import LATEST, Episode, Matchup, Rollout
from palus.rollout.sampling import sample
from palus.types import F32, I32, I64, Bool

PolicyFunction = Callable[[Tensor], Tensor]
"""Observations [R, D] float32 -> logits [R, sum of branches] float32."""


@dataclass(frozen=True)
class Teams:
    """Which agents of a match learn together. agents: [teams, L] agent indices, the members of a group adjacent."""

    agents: I64
    group_size: int

    @classmethod
    def of(cls, env: MultiAgentEnv, self_play: bool) -> Teams:
        """With self-play one team learns at a time; without it all agents do. EnvError when teams differ in shape."""
        agents = list(enumerate(env.spec.agents))
        team_ids = sorted({a.team for _, a in agents}) if self_play else [None]
        rows = []
        for team in team_ids:
            members = [(a.group, i) for i, a in agents if team is None or a.team == team]
            rows.append([i for _, i in sorted(members)])
        sizes = {len(row) for row in rows}
        groups = [a.group for _, a in agents]
        group_sizes = {groups.count(g) for g in groups}
        if len(sizes) != 1 or len(group_sizes) != 1:
            raise EnvError(
                f"{env.spec.env_id}: symmetric self-play needs teams and groups of equal size; found teams of "
                f"{sorted(sizes)} agents and groups of {sorted(group_sizes)}."
            )
        if self_play and len(rows) < 2:
            raise EnvError(
                f"{env.spec.env_id}: self_play needs at least two teams, the game has one; "
                "remove self_play from the run file."
            )
        return cls(np.array(rows, np.int64), group_sizes.pop())


class Collector:
    """Plays N matches and hands out rollouts of T decisions.

    draw: called for each match slot before the first match and after each one; says who learns against whom.
    threads: with two or more, opponents decide while the learning team does; the result is the same.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        teams: Teams,
        rollout_steps: int,
        seed: int,
        draw: Callable[[int], Matchup],
        threads: int = 1,
    ) -> None:
        if len(env.spec.behaviors) != 1:
            names = ", ".join(b.name for b in env.spec.behaviors)
            raise EnvError(f"{env.spec.env_id}: training handles games with one behavior; this one has {names}.")
        self.env, self.teams, self.rollout_steps, self.seed, self.draw = env, teams, rollout_steps, seed, draw
        self.behavior = env.spec.behaviors[0]
        N, P = env.num_matches, len(env.spec.agents)
        D, A = self.behavior.observation_size, len(self.behavior.branches)
        self._helper = ThreadPoolExecutor(1, "opponents", torch.set_num_threads, (1,)) if threads > 1 else None
        self.rows_per_match = teams.agents.shape[1]
        B = N * self.rows_per_match
        self.num_rows = B
        self._offsets = self.behavior.branch_offsets
        # Allocated once: tens of MB that would be faulted in anew for every rollout.
        T = rollout_steps
        self._observations = np.zeros((T, B, D), np.float32)
        self._last_observations = np.zeros((B, D), np.float32)
        self._chosen, self._log_probs = np.zeros((T, B, A), np.int32), np.zeros((T, B, A), np.float32)
        floats, flags = ((T, B), np.float32), ((T, B), np.bool_)
        self._no_observations = np.zeros((0, D), np.float32)
        # rewards, group rewards, terminated, truncated, active: the order of Rollout
        self._outcomes = tuple(np.zeros(*kind) for kind in (floats, floats, flags, flags, flags))
        self._actions = np.zeros((N, P, A), np.int32)
        self._opponent_observations = np.zeros((N * P - B, D), np.float32)
        self.tick = 0
        self.learning_team = np.zeros(N, np.int64)
        self.opponent = np.full(N, LATEST, np.int64)
        self._episode = {k: np.zeros(B, np.float64) for k in ("length", "reward", "group_reward")}
        self.entropy_sum, self.entropy_count = 0.0, 0
        seeds = np.arange(N, dtype=np.int64) + (np.int64(seed) << 20)
        env.reset(seeds)
        self._assign(np.arange(N))

    # -- who plays where ------------------------------------------------------------------------------------------

    def _assign(self, matches: I64) -> None:
        for n in matches:
            matchup = self.draw(int(n))
            self.learning_team[n], self.opponent[n] = matchup.learning_team, matchup.opponent
        self._map_rows()

    def _map_rows(self) -> None:
        """Row numbers of all agents, from `learning_team` and `opponent`."""
        N, P = self.env.num_matches, len(self.env.spec.agents)
        L = self.rows_per_match
        learners = self.teams.agents[self.learning_team]
        matches = np.arange(N)[:, None]
        self._learner_rows = np.full((N, P), -1, np.int32)
        self._learner_rows[matches, learners] = np.arange(N * L, dtype=np.int32).reshape(N, L)
        self._agent_of_row = (matches * P + learners).ravel()
        self._opponent_rows = np.full((N, P), -1, np.int32)
        self._blocks: list[tuple[int, int, int]] = []
        if P > L:
            order = np.argsort(self.opponent, kind="stable")
            others = np.nonzero(self._learner_rows[order] < 0)[1].reshape(N, P - L)
            self._opponent_rows[order[:, None], others] = np.arange(N * (P - L), dtype=np.int32).reshape(N, P - L)
            self._agent_of_opponent = (order[:, None] * P + others).ravel()
            ids, first = np.unique(self.opponent[order], return_index=True)
            ends = np.append(first[1:], N)
            self._blocks = [
                (int(i), int(a) * (P - L), int(b) * (P - L)) for i, a, b in zip(ids, first, ends, strict=True)
            ]

    @property
    def opponents_in_play(self) -> set[int]:
        """Ids of the snapshots that a running match needs."""
        return {i for i, _, _ in self._blocks} - {LATEST}

    # -- playing --------------------------------------------------------------------------------------------------

    def collect(
        self, policy: PolicyFunction, opponents: Callable[[int], PolicyFunction], policy_version: int = 0
    ) -> tuple[Rollout, list[Episode]]:
        """Play T decisions with frozen weights. opponents: snapshot id -> its policy.

        The rollout's arrays are reused: they hold until the next call.
        """
        rewards, group_rewards, terminated, truncated, active = self._outcomes
        finals: list[F32] = []
        episodes: list[Episode] = []
        for t in range(self.rollout_steps):
            self._act(t, policy, opponents)
            step = self.env.step([self._actions])
            self.tick += 1
            sources = (step.reward, step.group_reward, step.terminated, step.truncated)
            for source, target in zip(sources, (rewards, group_rewards, terminated, truncated), strict=True):
                np.take(source.ravel(), self._agent_of_row, out=target[t])
            if truncated[t].any():
                finals.append(self._final_observations(truncated[t]))
            self._account(t, step.match_over, episodes)
            if step.match_over.any():
                self._assign(np.nonzero(step.match_over)[0])
        self.env.observe(self.behavior.name, self._learner_rows, self._last_observations)
        self._check_finite()
        final_observations = np.concatenate([self._no_observations, *finals])
        last_active = self.env.active.ravel()[self._agent_of_row]
        rollout = Rollout(
            self._observations,
            self._chosen,
            self._log_probs,
            rewards,
            group_rewards,
            terminated,
            truncated,
            active,
            self._last_observations,
            last_active,
            final_observations,
            self.teams.group_size,
            policy_version,
        )
        return rollout, episodes

    def _act(self, t: int, policy: PolicyFunction, opponents: Callable[[int], PolicyFunction]) -> None:
        """Fill row t of the rollout with what the learning agents see and choose, and `_actions` with all choices."""
        observations, active = self._observations[t], self._outcomes[-1][t]
        np.take(self.env.active.ravel(), self._agent_of_row, out=active)
        if not active.all():
            observations[:] = 0.0  # the environment does not write the rows of absent agents
        self.env.observe(self.behavior.name, self._learner_rows, observations)
        decide = self._start_opponents(policy, opponents) if self._blocks else None
        logits = policy(torch.from_numpy(observations)).numpy()
        entropies = sample(logits, self._offsets, self.seed, 2 * self.tick, self._chosen[t], self._log_probs[t])
        self.entropy_sum += float(entropies[active].sum())
        self.entropy_count += int(active.sum())
        flat_actions = self._actions.reshape(-1, self._actions.shape[-1])
        flat_actions[self._agent_of_row] = self._chosen[t]
        if decide is not None:
            flat_actions[self._agent_of_opponent] = decide()

    def _check_finite(self) -> None:
        """A game that produces NaN would silently ruin the weights."""
        seen = (("observation", self._observations), ("reward", self._outcomes[0]), ("group reward", self._outcomes[1]))
        for name, values in seen:
            if not np.isfinite(values.sum(dtype=np.float64)):
                raise EnvError(f"{self.env.spec.env_id} returned a {name} that is not finite; check_env finds where.")

    def _start_opponents(self, policy: PolicyFunction, opponents: Callable[[int], PolicyFunction]) -> Callable[[], I32]:
        """Let the opponents decide, beside the learning team where there is a thread for it.

        Returns a function that gives their choices [rows, A].
        """
        observations = self._opponent_observations
        self.env.observe(self.behavior.name, self._opponent_rows, observations)
        logits = np.empty((len(observations), int(self._offsets[-1])), np.float32)

        def decide() -> I32:
            for snapshot, first, end in self._blocks:
                function = policy if snapshot == LATEST else opponents(snapshot)
                logits[first:end] = function(torch.from_numpy(observations[first:end])).numpy()
            actions = np.zeros((len(observations), len(self.behavior.branches)), np.int32)
            sample(logits, self._offsets, self.seed, 2 * self.tick + 1, actions, np.empty(actions.shape, np.float32))
            return actions

        return self._helper.submit(decide).result if self._helper is not None else decide

    def _final_observations(self, truncated: np.ndarray) -> F32:
        rows = np.full(self._learner_rows.size, -1, np.int32)
        ended = self._agent_of_row[truncated]
        rows[ended] = np.arange(len(ended), dtype=np.int32)
        out = np.zeros((len(ended), self.behavior.observation_size), np.float32)
        self.env.observe_final(self.behavior.name, rows.reshape(self._learner_rows.shape), out)
        return out

    def _account(self, t: int, match_over: Bool, episodes: list[Episode]) -> None:
        """Add decision t to the running episodes and close those that ended."""
        reward, group_reward, terminated, truncated, active = (outcome[t] for outcome in self._outcomes)
        self._episode["length"] += active
        self._episode["reward"] += reward
        self._episode["group_reward"] += group_reward
        ended = terminated | truncated
        if not ended.any():
            return
        G = self.teams.group_size
        group_plays_on = np.repeat((active & ~ended).reshape(-1, G).any(1), G)
        outcomes = np.sign(np.nan_to_num(reward + group_reward))  # NaN is told when the rollout is whole
        told = ~truncated & ~group_plays_on & (np.repeat(match_over, self.rows_per_match) | (outcomes != 0))
        for row in np.nonzero(ended)[0]:
            match = row // self.rows_per_match
            episodes.append(
                Episode(
                    team=int(self.learning_team[match]),
                    opponent=int(self.opponent[match]),
                    result=int(outcomes[row]) if told[row] else None,
                    length=int(self._episode["length"][row]),
                    reward=float(self._episode["reward"][row]),
                    group_reward=float(self._episode["group_reward"][row]),
                    left_early=bool(group_plays_on[row]),
                )
            )
            for sums in self._episode.values():
                sums[row] = 0.0

    def take_entropy(self) -> float:
        """Mean policy entropy (nats, summed over branches) of the learning rows since the last call."""
        mean = self.entropy_sum / max(self.entropy_count, 1)
        self.entropy_sum, self.entropy_count = 0.0, 0
        return mean

    # -- resume ---------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next decision depends on, the environment included."""
        return {
            "env": self.env.get_state(),
            "tick": self.tick,
            "learning_team": self.learning_team.copy(),
            "opponent": self.opponent.copy(),
            "episode": {k: v.copy() for k, v in self._episode.items()},
            "entropy": (self.entropy_sum, self.entropy_count),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.env.set_state(state["env"])
        self.tick = int(state["tick"])
        self.learning_team[:] = state["learning_team"]
        self.opponent[:] = state["opponent"]
        for key, value in state["episode"].items():
            self._episode[key][:] = value
        self.entropy_sum, self.entropy_count = state["entropy"]
        self._map_rows()
