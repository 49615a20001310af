"""Who decides for the agents of one behavior: rows that learn (`Learning`), and all others (`Others`).

Letters: N matches, P_b agents of the behavior in each, B rows of a learner, T decisions, S floats of memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from palus.envs.arena_game import BotAct
from palus.envs.protocol import MultiAgentEnv, Room, room_for
from palus.errors import EnvError
from palus.nn.crowd import Crowd, act_in_step
from palus.nn.distributions import Draw, sample, told
from palus.nn.network import Network
from palus.nn.place import CPU, Placement
from palus.rollout.acting import Answer, Policies, Policy, asked, fetched, kept, widened
from palus.rollout.rollout import Rollout
from palus.types import F32, I32, I64, MASKS, AnyArray, BehaviorSpec, Bool, Step


class Learning:
    """The rows of one learner. Those of match n begin at n * per_match; groups lie one after the other.

    A group has `group_size` rows, one for each of its agents of this behavior; rows that nobody fills are inactive.
    Arrays are allocated once: tens of MB that would be faulted in anew for every rollout.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        behavior: BehaviorSpec,
        state_size: int,
        per_match: int,
        steps: int,
        actions: F32,
        draw: Draw = sample,
        room: Room = room_for,
    ) -> None:
        """per_match: the most agents of a match that learn. draw: how actions follow from distributions. room: makes
        arrays for observations.

        actions: [N, P_b, A], where the game reads them.
        """
        spec, N = env.spec, env.num_matches
        self.env, self.behavior, self._actions = env, behavior, actions.reshape(-1, actions.shape[2])
        self._draw = draw
        self.agents = np.array(spec.agents_of(behavior.name))  # of the game, by column of the behavior's arrays
        groups = np.array([spec.agents[agent].group for agent in self.agents])
        self._order = np.argsort(groups, kind="stable")
        _, self._first, self._group, sizes = np.unique(
            groups[self._order], return_index=True, return_inverse=True, return_counts=True
        )
        self._member = np.arange(len(groups)) - self._first[self._group]
        G = self.group_size = int(sizes.max())
        self.per_match = G * (-(-per_match // G) if (sizes == G).all() else len(sizes))
        T, B = steps, N * self.per_match
        self.count = B
        self._rows: I32 = np.full((N, len(self.agents)), -1, np.int32)
        # Of each row, -1 where nobody fills it: flat indices into [N, P_b] and into [N, P].
        self._seat, self._agent = np.full(B, -1, np.int64), np.full(B, -1, np.int64)
        self._empty: Bool = np.ones(B, np.bool_)
        self._full = False
        self._draws: I64 = np.arange(B)
        self._new_room, self._room = room, room(behavior, T + 1, B)
        self._active: Bool = np.zeros((T + 1, B), np.bool_)
        self._chosen, self._log_probs = (np.zeros((T, B, behavior.actions.columns), np.float32) for _ in range(2))
        self._parameters: F32 = np.zeros((T, B, behavior.actions.parameters), np.float32)
        self._values: F32 | None = None
        self._versions: I32 = np.zeros((T, B), np.int32)
        self._rewards, self._group_rewards = (np.zeros((T, B), np.float32) for _ in range(2))
        self._terminated, self._truncated = (np.zeros((T, B), np.bool_) for _ in range(2))
        self.states: F32 = np.zeros((B, state_size), np.float32)
        self.begin()

    def key(self, firsts: I64) -> None:
        """Set the third part of the key of all draws. firsts: [N], of each match's first row; its others follow."""
        self._draws = (firsts[:, None] + np.arange(self.per_match)).ravel()

    def place(self, matches: I64, own: Bool) -> None:
        """Matches begin. own: [matches, P_b], the agents that learn in them. ValueError for more than there are rows.

        The groups that have any of them take the rows of their match in turn.
        """
        own = own[:, self._order]
        turn = np.cumsum(np.logical_or.reduceat(own, self._first, axis=1), axis=1) - 1
        place = turn[:, self._group] * self.group_size + self._member
        if (own & (place >= self.per_match)).any():
            raise ValueError(f"{self.behavior.name}: more agents of a match learn than its {self.per_match} rows hold")
        rows = np.where(own, matches[:, None] * self.per_match + place, -1)
        self._rows[matches[:, None], self._order] = rows
        for index, width, column in (
            (self._seat, len(self.agents), self._order),
            (self._agent, self.env.spec.num_agents, self.agents[self._order]),
        ):
            index.reshape(-1, self.per_match)[matches] = -1
            index[rows[own]] = (matches[:, None] * width + column)[own]
        self._empty = self._seat < 0
        self._full = not self._empty.any()

    def begin(self) -> None:
        """A rollout begins."""
        self._first_states = self.states.copy()
        self._finals = [self._new_room(self.behavior, 0, masks=False)]
        self._final_states = [self.states[:0]]
        self._entropy_sum, self._entropy_count = 0.0, 0

    def look(self, t: int) -> None:
        """Write what the agents see before decision t."""
        active = self._active[t]
        self._gather(self.env.active, active)
        present = active.all()
        room = {name: array[t] for name, array in self._room.items()}
        for name, array in room.items():
            if name == MASKS:
                array[:] = True
            elif not present:
                array[~active] = 0  # the environment does not write the rows of absent agents
        self.env.observe(self.behavior.name, self._rows, room)

    def ask(self, t: int, policy: Policy, keep: bool = False) -> None:
        """Ask about what was looked at; a device works at it from now on. keep: the answer, although the policy is
        asked again before `act`."""
        rows: slice | I64 = slice(None) if self._full else np.flatnonzero(~self._empty)
        seen, states = {name: array[t][rows] for name, array in self._room.items()}, self.states[rows]
        answer = asked(policy, seen, states) if len(states) else None
        self._answer = rows, kept(answer) if keep and answer is not None else answer

    def act(self, t: int, policy: Policy, seed: int, tick: int) -> None:
        """Decide as the policy, which was asked, says, and hand the actions to the game."""
        active, states, (rows, answer) = self._active[t], self.states, self._answer
        if answer is None:
            return
        parameters, values, after = fetched(answer, states.shape[1])
        actions, log_probs, entropies = self._draw(parameters, self.behavior.actions, seed, tick, self._draws[rows])
        self._parameters[t, rows], self._chosen[t, rows], self._log_probs[t, rows] = parameters, actions, log_probs
        self._versions[t] = policy.version
        if states.size:
            states[rows] = after
            states[~active] = 0.0
        if values is not None:
            if self._values is None:
                self._values = np.zeros(self._rewards.shape, np.float32)
            self._values[t, rows] = values
        self._entropy_sum += float(entropies[active[rows]].sum())
        self._entropy_count += int(active.sum())
        self._actions[self._seat[rows]] = told(actions, self.behavior.actions, policy.squash)

    def take(self, t: int, step: Step) -> None:
        """Write what decision t brought; memories end with their episodes."""
        terminated, truncated = self._terminated[t], self._truncated[t]
        for source, target in (
            (step.reward, self._rewards[t]),
            (step.group_reward, self._group_rewards[t]),
            (step.terminated, terminated),
            (step.truncated, truncated),
        ):
            self._gather(source, target)
        if truncated.any():
            self._keep_finals(truncated)
        self.states[terminated | truncated] = 0.0

    def _gather(self, source: AnyArray, target: AnyArray) -> None:
        """The rows' share of an array [N, P], zero where nobody fills a row."""
        np.take(source.ravel(), self._agent, out=target, mode="clip")
        if not self._full:
            target[self._empty] = 0

    def _keep_finals(self, truncated: Bool) -> None:
        count = int(truncated.sum())
        rows = np.full(self._rows.size, -1, np.int32)
        rows[self._seat[truncated]] = np.arange(count, dtype=np.int32)
        room = self._new_room(self.behavior, count, masks=False)
        self.env.observe_final(self.behavior.name, rows.reshape(self._rows.shape), room)
        self._finals.append(room)
        self._final_states.append(self.states[truncated])

    @property
    def entropy(self) -> float:
        """Mean entropy of the rollout's decisions, nats."""
        return self._entropy_sum / max(self._entropy_count, 1)

    def rollout(self) -> Rollout:
        """The decisions since `begin`. Raises EnvError for a number that is not finite."""
        T = len(self._rewards)
        self.look(T)
        observations = {name: array for name, array in self._room.items() if name != MASKS}
        self._check_finite(observations)
        return Rollout(
            observations=observations,
            masks=self._room.get(MASKS),
            states=self._first_states,
            last_states=self.states.copy(),
            actions=self._chosen,
            log_probs=self._log_probs,
            parameters=self._parameters,
            values=self._values,
            rewards=self._rewards,
            group_rewards=self._group_rewards,
            terminated=self._terminated,
            truncated=self._truncated,
            active=self._active[:T],
            last_active=self._active[T],
            final_observations={name: np.concatenate([room[name] for room in self._finals]) for name in observations},
            final_states=np.concatenate(self._final_states),
            group_size=self.group_size,
            versions=self._versions,
        )

    def _check_finite(self, observations: Mapping[str, AnyArray]) -> None:
        """A game that produces NaN would silently ruin the weights."""
        seen = [("observation", array) for array in observations.values() if array.dtype == np.float32]
        for name, values in (*seen, ("reward", self._rewards), ("group reward", self._group_rewards)):
            if not np.isfinite(values.sum(dtype=np.float64)):
                raise EnvError(f"{self.env.spec.env_id} returned a {name} that is not finite; check_env finds where.")


class Others:
    """The agents of one behavior that nobody learns from: rows in blocks, one for each policy that plays them.

    state_size: floats of memory, the most of any policy that is known; who comes later brings its room. scripts: by
    policy id, who reads the game itself in place of observations.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        behavior: BehaviorSpec,
        state_size: int,
        keys: I64,
        actions: F32,
        scripts: Mapping[int, BotAct],
        draw: Draw = sample,
        room: Room = room_for,
        place: Placement = CPU,
    ) -> None:
        """keys: [N, P_b], the third part of the key of each agent's draws; actions, draw, room: as in `Learning`.

        place: where all policies are that will be asked.
        """
        self._draw, self._place, self._crowds = draw, place, dict[Hashable, Crowd]()
        self._scripts, teams = scripts, env.spec.teams
        self._team_mates = {team: [i for i, other in enumerate(teams) if other == team] for team in env.spec.sides}
        self.env, self.behavior, self._actions = env, behavior, actions.reshape(-1, actions.shape[2])
        self.agents = np.array(env.spec.agents_of(behavior.name))
        self.capacity = env.num_matches * len(self.agents)
        self.blocks: list[tuple[int, int, int]] = []  # policy id, first row, row behind the last
        self._rows: I32 = np.full((env.num_matches, len(self.agents)), -1, np.int32)
        self._seats: I64 = np.zeros(0, np.int64)  # of each row, the flat index into [N, P_b]
        self._draws = keys.ravel()
        self._room = room(behavior, self.capacity)
        self._parameters: F32 = np.zeros((self.capacity, behavior.actions.parameters), np.float32)
        self.states: F32 = np.zeros((self.capacity, state_size), np.float32)  # by agent, not by row
        self.begin()

    def begin(self) -> None:
        """A rollout begins. decisions: as counted since then."""
        self.decisions = 0

    def place(self, decides: I64, learns: Bool) -> None:
        """Order the rows by policy, then match and agent. decides, learns: [N, P_b]."""
        seats = np.flatnonzero(~learns.ravel())
        policies = decides.ravel()[seats]
        order = np.argsort(policies, kind="stable")
        self._seats, policies = seats[order], policies[order]
        self._rows[:] = -1
        self._rows.reshape(-1)[self._seats] = np.arange(len(seats), dtype=np.int32)
        begins = np.ones(len(seats), np.bool_)
        np.not_equal(policies[1:], policies[:-1], out=begins[1:])
        first = np.flatnonzero(begins)
        ends = [*first.tolist(), len(seats)]
        self.blocks = list(zip(policies[first].tolist(), ends[:-1], ends[1:], strict=True))

    def give_room(self, size: int) -> None:
        """Have room for memories of `size` floats."""
        self.states = widened(self.states, size)

    def look(self) -> None:
        """Write what the agents see now."""
        if MASKS in self._room:
            self._room[MASKS][:] = True
        self.env.observe(self.behavior.name, self._rows, self._room)

    def ask(self, policies: Policies) -> None:
        """Ask who plays the rows about what was looked at: a device works at it from now on, a CPU when they act."""
        asked_for = [
            (policies[number], slice(first, end)) for number, first, end in self.blocks if number not in self._scripts
        ]
        self.give_room(max((policy.state_size for policy, _ in asked_for), default=0))
        self._acting = self.states[self._seats]
        self._answers = self._asked_here(asked_for) if self._place.compiled else self._asked_there(asked_for)

    def act(self, policies: Policies, seed: int, tick: int) -> None:
        """Take the answers of those that were asked, and hand the actions to the game."""
        count, states = len(self._seats), self._acting
        for block, answer in self._answers:
            self._parameters[block], _, states[block] = fetched(answer, states.shape[1])
        spec = self.behavior.actions
        actions, _, _ = self._draw(self._parameters[:count], spec, seed, tick, self._draws[self._seats])
        if not spec.is_discrete:
            for number, first, end in self.blocks:
                if number not in self._scripts:
                    actions[first:end] = told(actions[first:end], spec, policies[number].squash)
        self._actions[self._seats], self.states[self._seats] = actions, states
        for number, first, end in self.blocks:
            if number in self._scripts:
                self._follow(self._scripts[number], self._seats[first:end])

    def _of_kinds(self, asked_for: Sequence[tuple[Policy, slice]]) -> list[list[tuple[Policy, slice]]]:
        """Those that can act together, together."""
        kinds: dict[Hashable, list[tuple[Policy, slice]]] = {}
        for policy, block in asked_for:
            kind = policy.kind if isinstance(policy, Network) else None
            kinds.setdefault(kind or id(policy), []).append((policy, block))
        return list(kinds.values())

    def _asked_here(self, asked_for: Sequence[tuple[Policy, slice]]) -> Iterator[tuple[slice, Answer]]:
        """What policies say of their blocks of rows, asked when their turn comes."""
        for members in self._of_kinds(asked_for):
            policies, blocks = map(list, zip(*members, strict=True))
            if len(members) > 1:
                yield from self._shared(blocks, act_in_step(policies, blocks, self._room))
            else:
                yield from self._alone(members)

    def _alone(self, members: Sequence[tuple[Policy, slice]]) -> Iterator[tuple[slice, Answer]]:
        for policy, block in members:
            seen = {name: array[block] for name, array in self._room.items()}
            yield block, asked(policy, seen, self._acting[block])

    def _shared(self, blocks: Sequence[slice], parameters: Tensor) -> Iterator[tuple[slice, Answer]]:
        there = parameters.cpu()
        yield from ((block, (there[block], None, torch.from_numpy(self._acting[block]))) for block in _joined(blocks))

    def _asked_there(self, asked_for: Sequence[tuple[Policy, slice]]) -> Iterator[tuple[slice, Answer]]:
        """The same on a device, which is asked for all now."""
        alone, together = list[tuple[Policy, slice]](), list[tuple[list[slice], Tensor]]()
        for members in self._of_kinds(asked_for):
            policies, blocks = map(list, zip(*members, strict=True))
            kind = policies[0].kind if isinstance(policies[0], Network) else None
            if kind is None:
                alone += members
                continue
            if kind not in self._crowds:
                self._crowds[kind] = Crowd(policies[0])
            together.append((blocks, self._crowds[kind].act(policies, blocks, self._room)))
        told = list(self._alone(alone))
        return itertools.chain(told, *(self._shared(*each) for each in together))

    def _follow(self, act: BotAct, seats: I64) -> None:
        """Do what a script says in these seats; it speaks for whole teams."""
        matches, columns = np.divmod(seats, len(self.agents))
        agents = self.agents[columns]
        for team, mates in self._team_mates.items():
            own = np.isin(agents, mates)
            if own.any():
                asked, place = np.unique(matches[own], return_inverse=True)
                choices = act(self.env, team, asked)
                self._actions[seats[own]] = choices[place, np.searchsorted(mates, agents[own])]

    def count(self, active: Bool) -> None:
        """Count a decision of the rows' agents among these, [N, P]."""
        self.decisions += int(np.count_nonzero(active[:, self.agents].ravel()[self._seats]))

    def forget(self, step: Step, active: Bool) -> None:
        """Memories end with their episodes. active: [N, P] before the step."""
        if self.states.size:
            gone = step.terminated | step.truncated | ~active
            self.states[gone[:, self.agents].ravel()] = 0.0


def _joined(blocks: Sequence[slice]) -> list[slice]:
    """Rising blocks of rows, those that touch as one."""
    ends = [k for k, (a, b) in enumerate(itertools.pairwise(blocks), 1) if a.stop != b.start]
    return [
        slice(blocks[first].start, blocks[end - 1].stop) for first, end in itertools.pairwise([0, *ends, len(blocks)])
    ]
