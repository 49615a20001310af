"""In-process batched collection: N matches of one batched game, learners and frozen opponents of any behavior.

What learners see is written straight into their rollouts. Everybody else's rows are ordered so that each policy's are
one contiguous block; the order changes only when a match ends, never within one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch

from palus.config.environment import Value
from palus.envs.arena_game import BotAct
from palus.envs.drawing import MatchParameters
from palus.envs.protocol import MultiAgentEnv, Room, room_for
from palus.nn.distributions import Draw, sample
from palus.nn.place import CPU, Placement
from palus.rollout.acting import Policies, Policy, memories
from palus.rollout.episodes import Episodes
from palus.rollout.plan import Share
from palus.rollout.players import Learning, Others
from palus.rollout.rollout import ENDLESS, FROZEN, Cast, Collected, Episode, FinishedMatch, Seat
from palus.types import F32, F64, I64, Bool


class InProcessCollector:
    """A `palus.rollout.rollout.Collector`: plays N matches and hands out rollouts of `rollout_steps` decisions.

    Draws are keyed by (seed, tick, match and seat, column), learners' at twice the decision's number, all others' at
    one more; games by seeds of their own. Matches are numbered over all ranks (`Share`): a rank plays its part of the
    matches of one process, to the bit.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        learners: Mapping[int, tuple[str, Policy]],
        cast: Cast,
        rollout_steps: int,
        seed: int,
        rows_per_match: Mapping[int, int],
        load: Callable[[int], Policy],
        threads: int = 1,
        members: Mapping[int, tuple[str, Policy]] | None = None,
        scripts: Mapping[int, BotAct] | None = None,
        draws: Mapping[str, Draw] | None = None,
        share: Share = Share(),  # noqa: B008  # frozen
        room: Room = room_for,
        place: Placement = CPU,
    ) -> None:
        """learners: policy id -> behavior and policy. rows_per_match: the most agents of a match that learn for each.

        load: the policy of a frozen id that nobody published. threads: with two or more, everybody else decides while
        the learners do, on the CPU; the result is the same. members: as learners, those that never learn and are there
        from the start. scripts: by policy id, players that read the game itself. draws: by behavior, where actions are
        not sampled. share: which matches of the run these are. room: makes arrays for observations.
        place: of all policies.
        """
        everybody = {**learners, **(members or {})}
        self.env, self.cast, self.rollout_steps, self.seed = env, cast, rollout_steps, seed
        spec, N, draws = env.spec, env.num_matches, draws or {}
        self._first, self._total = share.first(N), share.size * N
        self.policies = Policies({policy: acting for policy, (_, acting) in everybody.items()}, load)
        self._episodes = Episodes(spec, N, self._first)
        self._on_device, helps = not place.compiled, threads > 1 and place.compiled
        self._helper = ThreadPoolExecutor(1, "others", torch.set_num_threads, (1,)) if helps else None
        sizes = memories({k: (spec.behavior(name).name, own) for k, (name, own) in everybody.items()})
        # Actions per behavior [N, P_b, A]; learners and the others write their own rows.
        self._actions: list[F32] = []
        self._others: list[Others] = []
        for behavior in spec.behaviors:
            P_b, A = len(spec.agents_of(behavior.name)), behavior.actions.columns
            self._actions.append(np.zeros((N, P_b, A), np.float32))
            numbers = (self._first + np.arange(N))[:, None]
            keys = numbers * spec.num_agents + np.array(spec.agents_of(behavior.name))
            draw, size = draws.get(behavior.name, sample), sizes.get(behavior.name, 0)
            self._others.append(Others(env, behavior, size, keys, self._actions[-1], scripts or {}, draw, room, place))
        self._learning: dict[int, Learning] = {}
        for policy, (name, acting) in learners.items():
            behavior = spec.behavior(name)
            actions = self._actions[spec.behaviors.index(behavior)]
            draw = draws.get(behavior.name, sample)
            self._learning[policy] = Learning(
                env, behavior, acting.state_size, rows_per_match[policy], rollout_steps, actions, draw, room
            )
        places = np.cumsum([0, *(rows.per_match for rows in self._learning.values())])
        for rows, place in zip(self._learning.values(), places[:-1], strict=True):
            rows.key((self._first + np.arange(N)) * places[-1] + place)
        shape = (N, spec.num_agents)
        self._seats: list[tuple[Seat, ...]] = [()] * N
        self._decides: I64 = np.zeros(shape, np.int64)  # policy ids
        self._learns: Bool = np.zeros(shape, np.bool_)
        self._age: I64 = np.zeros(N, np.int64)  # decisions since the match was cast
        self._recast: Bool = np.zeros(N, np.bool_)  # it was cast anew while it ran
        self._numbers: dict[int, Sequence[float]] = {}
        self._parameters = MatchParameters(env, self._first)
        self.tick = 0
        self._started, self._restarts = False, 0

    # -- who plays where ------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin all matches, with seeds that follow from the run's and the number of restarts."""
        self._started, N = True, self.env.num_matches
        self._parameters.begin(range(N))
        first = self._first + self._restarts * self._total
        self.env.reset(np.arange(first, first + N, dtype=np.int64) + (np.int64(self.seed) << 20))
        self._episodes.forget(slice(None))
        for states in (*(r.states for r in self._learning.values()), *(o.states for o in self._others)):
            states[:] = 0.0
        self._assign(np.arange(N))

    def _assign(self, matches: I64) -> None:
        """Cast the matches that begin in these slots."""
        spec = self.env.spec
        self._age[matches], self._recast[matches] = 0, False
        for n in matches.tolist():
            seats = self._seats[n] = tuple(self.cast(self._first + n))
            for p, (agent, seat) in enumerate(zip(spec.agents, seats, strict=True)):
                learner = self._learning.get(seat.policy)
                if seat.learns and (learner is None or learner.behavior.name != agent.behavior):
                    raise ValueError(
                        f"match {n}: {agent.name} has {seat}; no learner of {agent.behavior!r} has that id"
                    )
                self._decides[n, p], self._learns[n, p] = seat
                if seat.policy in self._numbers:
                    self.env.shaping[n][p] = self._numbers[seat.policy]  # type: ignore[attr-defined]  # it has numbers
        self._place(matches)

    def _cast_anew(self, matches: I64) -> None:
        """Change who plays in matches that go on and on; where somebody changes, memories begin anew."""
        before, recast = [self._seats[n] for n in matches.tolist()], self._recast[matches]
        self._assign(matches)
        changed = matches[[self._seats[n] != seats for n, seats in zip(matches.tolist(), before, strict=True)]]
        self._recast[matches] = recast
        self._recast[changed] = True
        self._episodes.forget(changed, partial=True)
        for states in (*(r.states for r in self._learning.values()), *(o.states for o in self._others)):
            states.reshape(self.env.num_matches, -1)[changed] = 0.0

    def _place(self, matches: I64) -> None:
        """Give the agents of these matches rows, and all others' rows a new order."""
        for policy, rows in self._learning.items():
            columns = rows.agents
            own = self._learns[matches[:, None], columns] & (self._decides[matches[:, None], columns] == policy)
            rows.place(matches, own)
        for others in self._others:
            others.place(self._decides[:, others.agents], self._learns[:, others.agents])

    @property
    def in_play(self) -> set[int]:
        """Ids of frozen policies that a running match needs."""
        return set(np.unique(self._decides[self._decides >= FROZEN]).tolist())

    # -- playing --------------------------------------------------------------------------------------------------

    def collect(self) -> Collected:
        """Play T decisions with the policies as they are. What it gives holds until the next call."""
        if not self._started:
            self._start()
        if not self.env.spec.max_decisions and (self._age >= ENDLESS).any():
            self._cast_anew(np.flatnonzero(self._age >= ENDLESS))
        self._age += self.rollout_steps
        for rows in self._learning.values():
            rows.begin()
        for others in self._others:
            others.begin()
        episodes: list[Episode] = []
        matches: list[FinishedMatch] = []
        for t in range(self.rollout_steps):
            active = self.env.active.copy()
            self._act(t)
            step = self.env.step(self._actions)
            self.tick += 1
            for rows in self._learning.values():
                rows.take(t, step)
            for others in self._others:
                others.forget(step, active)
                others.count(active & self._learns.any(1, keepdims=True))
            episodes += self._episodes.add(
                slice(None), active, step.reward, step.group_reward, step.terminated | step.truncated,
                self._seats, step.stats, t,
            )  # fmt: skip
            if step.match_over.any():
                over = np.flatnonzero(step.match_over)
                for n, points in zip(over.tolist(), step.points[over], strict=True):
                    verdict = () if self._recast[n] or np.isnan(points).any() else tuple(points.tolist())
                    matches.append(FinishedMatch(self._first + n, verdict, self._seats[n], t))
                self._parameters.begin(over.tolist())
                self._assign(over)
                self._age[over] = self.rollout_steps - 1 - t
        self.policies.forget(self.in_play)
        rollouts = {policy: rows.rollout() for policy, rows in self._learning.items()}
        entropies = {policy: rows.entropy for policy, rows in self._learning.items()}
        ghost_steps = {others.behavior.name: others.decisions for others in self._others}
        return Collected(rollouts, entropies, episodes, matches, ghost_steps)

    def beside(self) -> AbstractContextManager[None]:
        """Nothing to do: matches of one process are quickest on all its threads, before or after the learner."""
        return nullcontext()

    def release(self) -> None:
        """Nothing to do: arrays are written again only by `collect`."""

    def _act(self, t: int) -> None:
        """Let everybody decide, the others beside the learners where there is a thread for them. A device is asked for
        all, the learners first, before an answer is waited for."""
        if self._on_device:
            self._ask(t, keep=True)
        waiting = [others for others in self._others if others.blocks]
        for others in waiting:
            others.look()
            others.ask(self.policies)

        def decide() -> None:
            for others in waiting:
                others.act(self.policies, self.seed, 2 * self.tick + 1)

        result = self._helper.submit(decide).result if self._helper is not None and waiting else decide
        if not self._on_device:
            self._ask(t)
        for policy, rows in self._learning.items():
            rows.act(t, self.policies[policy], self.seed, 2 * self.tick)
        result()

    def _ask(self, t: int, keep: bool = False) -> None:
        """Let all learners look, and ask their policies. keep: see `Learning.ask`."""
        for policy, rows in self._learning.items():
            rows.look(t)
            rows.ask(t, self.policies[policy], keep)

    # -- the game -------------------------------------------------------------------------------------------------

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Change numbers of the game. Raises EnvError for names that it does not have."""
        self._parameters.change(parameters)

    def restart(self) -> None:
        """Give up all matches that run."""
        self._restarts += self._started
        self._started = False

    def shape_rewards(self, policy: int, numbers: Sequence[float]) -> None:
        """Pay a policy by these numbers, those of the game's `GameSpec.shaping`, in matches that begin from now on."""
        self._numbers[policy] = numbers

    def performance(self) -> Mapping[str, float]:
        """Nothing is lost or waited for here."""
        return {}

    def describe(self) -> list[str]:
        """Matches, learning agents and decisions."""
        N, T = self.env.num_matches, self.rollout_steps
        sizes: dict[str, list[int]] = {}
        for rows in self._learning.values():
            sizes.setdefault(rows.behavior.name, []).append(rows.count // N)
        return [
            f"{N} matches x {L} learning agents x {T} decisions = {N * L * T} steps per update"
            + (f", shared by {len(others) + 1} learners" if others else "")
            for L, *others in sizes.values()
        ]

    def complaints(self) -> Sequence[str]:
        """Nothing is repaired here: what a game raises ends the run."""
        return ()

    def close(self) -> None:
        """Free the game and the helping thread."""
        if self._helper is not None:
            self._helper.shutdown()
        self.env.close()

    # -- resume ---------------------------------------------------------------------------------------------------

    def save(self) -> dict[str, Any]:
        """Everything that the next decision depends on. A game that cannot be saved starts anew with the next rollout,
        here and where this is loaded."""
        env = self.env.get_state() if self._started else None
        if env is None:
            self.restart()
        running = {} if env is None else {name: array.copy() for name, array in self._running().items()}
        return {
            "env": env,
            "tick": self.tick,
            "restarts": self._restarts,
            "parameters": self._parameters.state_dict(),
            **running,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue where `save` was called."""
        self.tick, self._restarts = int(state["tick"]), int(state["restarts"])
        if "parameters" in state:  # not in those of older versions, whose runs had none to draw
            self._parameters.load_state_dict(state["parameters"])
        self._started = state["env"] is not None
        if not self._started:
            return
        self.env.set_state(state["env"])
        for others in self._others:  # may have met who remembers more than those that are known at the start
            others.give_room(state[f"states {others.behavior.name}"].shape[1])
        for name, array in self._running().items():
            if name != "partial" or name in state:  # not in those of older versions
                array[:] = state[name]
        for n in range(self.env.num_matches):
            learns: list[bool] = self._learns[n].tolist()
            self._seats[n] = tuple(map(Seat, self._decides[n].tolist(), learns))
        self._place(np.arange(self.env.num_matches))

    def _running(self) -> dict[str, I64 | Bool | F32 | F64]:
        """What there is to know of the running matches beside the game's own state."""
        return {
            "decides": self._decides,
            "learns": self._learns,
            "age": self._age,
            "recast": self._recast,
            "length": self._episodes.length,
            "reward": self._episodes.reward,
            "group_reward": self._episodes.group_reward,
            "partial": self._episodes.partial,
            **{f"states {policy}": rows.states for policy, rows in self._learning.items()},
            **{f"states {others.behavior.name}": others.states for others in self._others},
        }
