"""One behavior's decisions: pages of T decisions of B rows, half in shared memory (what games say), half here (what
policies said), and what the next decision of each row needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from palus.errors import EnvError
from palus.nn.distributions import Draw, sample
from palus.rollout.acting import Policies, widened
from palus.rollout.layout import BehaviorRows, Table
from palus.rollout.rollout import Rollout, Seat
from palus.types import F32, F64, I64, MASKS, AnyArray, Bool

Place = tuple[int, int, slice | I64]
"""An index into arrays [pages, T, B]: rows at one decision, a slice where they are neighbours."""
NOBODY = -1
UNWATCHED = -2
"""In the place of a learner's id: nobody learns from the row; nobody from any row of its match."""


class _Cut(NamedTuple):
    """Truncated episodes of one decision: their last observations and the memory then. All [K, ...]."""

    decisions: I64
    rows: I64
    observations: Mapping[str, AnyArray]
    states: F32


class Buffer:
    """A page is written by the collector alone, read by the learner alone, in turns.

    states, policies, learners: [B], of the decision that comes next.
    """

    def __init__(
        self,
        env_id: str,
        roster: BehaviorRows,
        table: Table,
        state_size: int,
        keys: I64,
        draw: Draw = sample,
    ) -> None:
        """keys: [B], of the draws. draw: how actions follow from distributions."""
        self._draw = draw
        n, T, B = table.rewards.shape
        actions = roster.behavior.actions
        self.roster, self.table = roster, table
        self.numbers, self._keys = np.arange(B), keys
        self.policies, self.learners = np.zeros(B, np.int32), np.full(B, NOBODY, np.int32)
        self.states = np.zeros((B, state_size), np.float32)
        self._env_id = env_id
        floats, ids = ((n, T, B), np.float32), ((n, T, B), np.int32)
        self._actions = np.zeros((n, T, B, actions.columns), np.float32)
        self._log_probs = np.zeros((n, T, B, actions.columns), np.float32)
        self._parameters = np.zeros((n, T, B, actions.parameters), np.float32)
        self._values, self._entropies, self._versions = np.zeros(*floats), np.zeros(*floats), np.zeros(*ids)
        self._learners = np.full((n, T + 1, B), NOBODY, np.int32)
        self._lost = np.zeros((n, B), np.bool_)
        self._states, self._last_states = (np.zeros((n, B, state_size), np.float32) for _ in range(2))
        self._cuts: list[list[_Cut]] = [[] for _ in range(n)]

    def seat(self, game: int, seats: Sequence[Seat], policies: Policies, shaping: Mapping[int, F64]) -> None:
        """Who decides in a game that begins, and what pays them: policy id -> numbers, where not the game's own."""
        own = [seats[agent] for agent in self.roster.agents]
        size = max(policies[seat.policy].state_size for seat in own)
        self.states, self._states, self._last_states = (
            widened(states, size) for states in (self.states, self._states, self._last_states)
        )
        rows = self.roster.rows(range(game, game + 1))
        self.policies[rows] = [seat.policy for seat in own]
        nobody = NOBODY if any(seat.learns for seat in seats) else UNWATCHED
        self.learners[rows] = [seat.policy if seat.learns else nobody for seat in own]
        self.table.shaping[rows] = [shaping[seat.policy] for seat in own]

    def open(self, page: int, rows: slice, fresh: bool) -> None:
        """Carry the latest observations and states to the beginning of a page. fresh: they lie aside."""
        table = self.table
        for name, array in table.observations.items():
            array[page, 0, rows] = table.aside[name][rows] if fresh else array[page - 1, -1, rows]
        table.active[page, 0, rows] = table.active_aside[rows] if fresh else table.active[page - 1, -1, rows]
        self._states[page, rows] = self.states[rows]

    def decide(self, policies: Policies, at: Place, rows: slice | I64, seed: int, tick: int) -> None:
        """Decide for a batch and give its actions to the games. seed, tick: of the key of its draws.

        Raises EnvError on an observation that is not finite.
        """
        spec = self.roster.behavior.actions
        acted = policies.act(self._seen(at, rows), self.states[rows], self.policies[rows], spec.parameters)
        self._parameters[at], self._values[at], self.states[rows], self._versions[at] = acted
        actions, log_probs, entropies = self._draw(acted[0], spec, seed, tick, self._keys[rows])
        self._actions[at], self._log_probs[at], self._entropies[at] = actions, log_probs, entropies
        self._learners[at] = self.learners[rows]
        self.table.actions[rows] = policies.told(actions, self.policies[rows], spec)

    def settle(self, at: Place, rows: slice | I64) -> tuple[Bool, F32, F32, Bool]:
        """Draw the consequences of a decision that was played. Raises EnvError on a reward that is not finite.

        Returns, [R] each: who took it, rewards, group rewards, whose episode ended.
        """
        table = self.table
        active, rewards, group_rewards = table.active[at], table.rewards[at], table.group_rewards[at]
        for what, paid in (("reward", rewards), ("group reward", group_rewards)):
            if not (finite := np.isfinite(paid)).all():
                self._refuse(~finite, at, rows, f"the {what}")
        truncated = table.truncated[at]
        ended = truncated | table.terminated[at]
        if truncated.any():
            page, t, _ = at
            cut = self.numbers[rows][truncated]
            last = {name: array[cut] for name, array in table.aside.items() if name != MASKS}
            self._cuts[page].append(_Cut(np.full(len(cut), t), cut, last, self.states[cut]))
        if ended.any():
            self.states[self.numbers[rows][ended]] = 0.0
        return active, np.where(active, rewards, 0), np.where(active, group_rewards, 0), active & ended

    def close(self, page: int, rows: slice) -> None:
        """Keep what follows the last decision of a page."""
        self._last_states[page, rows] = self.states[rows]
        self._learners[page, -1, rows] = self.learners[rows]

    def lose(self, page: int, decided: int, rows: slice) -> int:
        """Give up these rows of a page after `decided` decisions; returns how many of them would have been samples."""
        self._lost[page, rows] = True
        return int(self.table.active[page, :decided, rows].sum())

    def clear(self, page: int) -> None:
        """Make ready for new decisions what they do not overwrite by themselves."""
        self._lost[page] = False
        self._cuts[page].clear()

    def is_empty(self, page: int) -> bool:
        """Whether nobody's decisions are left."""
        return not (self.table.active[page, :-1] & ~self._lost[page]).any()

    def ghost_steps(self, page: int) -> int:
        """Decisions that nobody learns from, in matches that somebody learns from."""
        return int((self.table.active[page, :-1] & ~self._lost[page] & (self._learners[page, :-1] == NOBODY)).sum())

    def rollout(self, page: int, learner: int, state_size: int, with_values: bool) -> tuple[Rollout, float]:
        """A page as a policy may learn from it, and the mean entropy of its decisions in nats, 0 when it took none.

        state_size: floats of its memory; others who decide here may have more. Views, except for rewards, truncations
        and activity.
        """
        table = self.table
        present = table.active[page] & ~self._lost[page] & (self._learners[page] == learner)
        active = present[:-1]
        truncated = table.truncated[page] & active
        finals, final_states = self._finals(page, truncated, state_size)
        observations = {name: array[page] for name, array in table.observations.items()}
        rollout = Rollout(
            masks=observations.pop(MASKS, None),
            observations=observations,
            states=self._states[page, :, :state_size],
            last_states=self._last_states[page, :, :state_size],
            actions=self._actions[page],
            log_probs=self._log_probs[page],
            parameters=self._parameters[page],
            values=self._values[page] if with_values else None,
            rewards=np.where(active, table.rewards[page], np.float32(0.0)),
            group_rewards=np.where(active, table.group_rewards[page], np.float32(0.0)),
            terminated=table.terminated[page],
            truncated=truncated,
            active=active,
            last_active=present[-1],
            final_observations=finals,
            final_states=final_states,
            group_size=self.roster.group_size,
            versions=self._versions[page],
        )
        return rollout, float(self._entropies[page][active].mean()) if active.any() else 0.0

    def _finals(self, page: int, truncated: Bool, state_size: int) -> tuple[dict[str, AnyArray], F32]:
        """Last observations of truncated episodes and the memory then, in the order of `np.argwhere(truncated)`."""
        cuts = self._cuts[page]
        if not truncated.any():
            none = {name: array[:0] for name, array in self.table.aside.items() if name != MASKS}
            return none, self.states[:0, :state_size]
        decisions, rows = (np.concatenate([getattr(cut, name) for cut in cuts]) for name in ("decisions", "rows"))
        # Splits come in any order; what is learned from them must not depend on it.
        order = np.lexsort((rows, decisions))
        order = order[truncated[decisions[order], rows[order]]]
        names = cuts[0].observations
        finals = {name: np.concatenate([cut.observations[name] for cut in cuts])[order] for name in names}
        return finals, np.concatenate([cut.states[:, :state_size] for cut in cuts])[order]

    def _seen(self, at: Place, rows: slice | I64) -> dict[str, AnyArray]:
        """What a batch sees, [R, *shape] each."""
        seen = {}
        for name, array in self.table.observations.items():
            seen[name] = array[at]
            if array.dtype == np.float32 and not (finite := np.isfinite(seen[name])).all():
                self._refuse(~finite.reshape(len(finite), -1).all(1), at, rows, f"observation {name}")
        return seen

    def _refuse(self, bad: Any, at: Place, rows: slice | I64, what: str) -> None:
        """EnvError for the first agent with a number that is not finite, unless it is not there (inactive)."""
        bad = bad & self.table.active[at]
        if bad.any():
            game, place = divmod(int(self.numbers[rows][bad][0]), len(self.roster.agents))
            raise EnvError(
                f"{self._env_id}: {what} of agent {self.roster.agents[place]} in game {game} is NaN or infinite; "
                "a game must give finite numbers"
            )
