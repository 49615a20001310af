"""The collector over Unity games: agents are born, end and ask for decisions when they please.

All games are heard, then everybody who decides in any of them with the same policy is served by one forward pass. A
match is one game (an executable, or the Editor) with all its agents: who plays a behavior id plays it in the whole
game. It is over when all its agents ended in one message; where that does not happen for `EXCHANGES` messages, who
plays changes within episodes, as in ML-Agents. Agents of a policy that learns from groups are kept with their group.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from palus.config.environment import Value
from palus.config.run_file import EDITOR, EnvSettings
from palus.envs.game import draw_actions, points_of
from palus.errors import EnvError, LostGameError, ProtocolError, WorkerError
from palus.nn.distributions import Draw, sample
from palus.rollout.acting import Policies, Policy, memories
from palus.rollout.rollout import FROZEN, Cast, Collected, Episode, FinishedMatch, Seat
from palus.rollout.stretches import Decisions, Stretch, build
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, GameSpec
from palus.unity.news import News, Steps, TalkingGame
from palus.unity.side_channels import MOST_RECENT, SUM

EXCHANGES = 1000
"""Messages after which who plays in a game may change within episodes."""
IDLE = 10_000
"""Messages without a decision of any learner after which a game counts as one that has nobody to train."""


Meet = Callable[[str, BehaviorSpec], str | None]
"""Behavior id and what its agents see and do, of one that appears in mid-run -> why nobody learns it; None where the
collector has been told of a learner (`ExchangeCollector.admit`)."""


class Demand(NamedTuple):
    """What a learner asks of rollouts. rows: decisions of one; horizon: those of a stretch at most; grouped: it learns
    from groups; whole: it wants as many of each agent as a stretch may have, however many agents there are."""

    rows: int
    horizon: int
    grouped: bool
    whole: bool = False


@dataclass
class _Agent:
    """One that waits for what comes of its decision. row: of the decision in the learner's record, -1 where nobody
    learns from it; state: its memory after it. The sums are of the running episode. group: of its decision, 0: none."""

    state: F32
    row: int = -1
    length: int = 0
    reward: float = 0.0
    group_reward: float = 0.0
    group: int = 0


@dataclass
class _Played:
    """One game. seats: by behavior id. agents: that wait, by behavior id and id. age: messages since it was cast. met:
    behavior ids that it has spoken of."""

    env: TalkingGame
    seats: dict[str, Seat] = field(default_factory=dict)
    agents: dict[tuple[str, int], _Agent] = field(default_factory=dict)
    decisions: Mapping[str, Steps] = field(default_factory=dict)
    age: int = 0
    met: set[str] = field(default_factory=set)


class ExchangeCollector:
    """A `palus.rollout.rollout.Collector`: rollouts that hold what some learner needs for an update."""

    def __init__(
        self,
        games: Sequence[TalkingGame],
        start: Callable[[int], TalkingGame],
        spec: GameSpec,
        settings: EnvSettings,
        demands: Mapping[int, Demand],
        *,
        seed: int,
        learners: Mapping[int, tuple[str, Policy]],
        cast: Cast,
        load: Callable[[int], Policy],
        members: Mapping[int, tuple[str, Policy]],
        draws: Mapping[str, Draw],
        meet: Meet,
    ) -> None:
        """games: started, never reset. start: another one in the place of one that was lost. spec: its agents are
        named by the behavior ids. demands: by learner. draws: by behavior, where actions are not sampled."""
        everybody = {**learners, **members}
        self.policies = Policies({policy: acting for policy, (_, acting) in everybody.items()}, load)
        self._games, self._start = [_Played(env) for env in games], start
        self._settings, self._seed, self._meet = settings, seed, meet
        self._draws = dict(draws)
        self._sizes: dict[str, int] = {}
        self._demands: dict[int, Demand] = {}
        self._behavior: dict[int, str] = {}
        self._records: dict[int, Decisions] = {}
        self._open: dict[int, dict[tuple[int, str, int], Stretch]] = {}
        self._done: dict[int, list[Stretch]] = {}
        self._learn(spec, demands, learners, memories(everybody), cast)
        self._parameters: Mapping[str, Value] = {}
        self._untold = False
        self._lost: deque[float] = deque()
        self._lost_ever, self._idle = 0, 0
        self._complaints: list[str] = []
        self._strange: set[str] = set()
        self._statistics: dict[str, float] = {}
        self._heard: dict[tuple[str, int], list[float]] = {}
        self._episodes: list[Episode] = []
        self._matches: list[FinishedMatch] = []
        self._ghosts: dict[str, int] = {}
        self.tick, self._resets, self._started = 0, 0, False

    def _learn(
        self,
        spec: GameSpec,
        demands: Mapping[int, Demand],
        learners: Mapping[int, tuple[str, Policy]],
        sizes: Mapping[str, int],
        cast: Cast,
    ) -> None:
        """Take in what the game has, and who learns it. sizes: floats of memory by behavior."""
        self._spec, self._cast = spec, cast
        self._kinds = {agent.name: spec.behavior(agent.behavior) for agent in spec.agents}
        self._places = {agent.name: place for place, agent in enumerate(spec.agents)}
        self._sizes |= {b.name: sizes.get(b.name, 0) for b in spec.behaviors if b.name not in self._sizes}
        self._demands |= demands
        for policy, (behavior, _) in learners.items():
            self._behavior[policy], self._open[policy], self._done[policy] = behavior, {}, []
            self._records[policy] = Decisions(spec.behavior(behavior), self._sizes[behavior])

    def admit(
        self,
        spec: GameSpec,
        demands: Mapping[int, Demand],
        learners: Mapping[int, tuple[str, Policy]],
        cast: Cast,
        draws: Mapping[str, Draw],
    ) -> None:
        """Go on with a game of which more is known, at any time. spec: with the agents of before in their places.
        demands, learners: the new ones; cast, draws: for all."""
        for policy, (_, acting) in learners.items():
            self.policies.publish(policy, acting)
        self._learn(spec, demands, learners, memories(learners), cast)
        self._draws.update(draws)
        for k, game in enumerate(self._games):
            seats = {agent.name: seat for agent, seat in zip(spec.agents, cast(k), strict=True)}
            game.seats = seats | game.seats

    # -- rollouts -------------------------------------------------------------------------------------------------

    def collect(self) -> Collected:
        """Play on for one rollout. Raises WorkerError when games are lost faster than they may be replaced,
        ProtocolError when one breaks the protocol, EnvError when nobody asks for a learner's decision."""
        self._episodes, self._matches, self._ghosts = [], [], dict.fromkeys(self._sizes, 0)
        self._heard = {}
        if not self._started:
            self._started = True
            for k in range(len(self._games)):
                self._guarded(k, self._begin)
        while all(record.known < self._wanted(policy) for policy, record in self._records.items()):
            self._exchange()
            if self._idle > IDLE:
                raise EnvError(
                    f"{self._spec.env_id}: {IDLE} messages, and no agent of {' or '.join(self._behavior.values())} "
                    "asked for a decision; check its Behavior Name and that its Behavior Type is Default"
                )
        rollouts, entropies = {}, {}
        for policy, record in self._records.items():
            cut = [stretch.cut(record) for stretch in self._open[policy].values()]
            whole = [stretch for stretch in (*self._done[policy], *cut) if stretch.steps]
            has_values = policy not in self.policies.without_values
            behavior = self._spec.behavior(self._behavior[policy])
            rollouts[policy], entropies[policy] = build(record, whole, behavior, has_values)
            self._forget(policy)
        self.policies.forget(self.in_play)
        return Collected(rollouts, entropies, self._episodes, self._matches, self._ghosts)

    def _wanted(self, policy: int) -> int:
        """Decisions that make a rollout of a learner."""
        rows, horizon, _, whole = self._demands[policy]
        return max(rows, horizon * len(self._open[policy])) if whole else rows

    def _forget(self, policy: int) -> None:
        """Keep of a record only what stretches that go on refer to."""
        record = self._records[policy]
        self._done[policy] = []
        self._open[policy] = {key: stretch for key, stretch in self._open[policy].items() if stretch.steps}
        steps = [step for stretch in self._open[policy].values() for step in stretch.steps]
        numbers = record.keep(sorted(row for step in steps for row in step.values()))
        for step in steps:
            step.update({member: numbers[row] for member, row in step.items()})
        for game in self._games:
            for (name, _), agent in game.agents.items():
                if game.seats[name] == (policy, True):
                    agent.row = numbers.get(agent.row, -1)

    def release(self) -> None:
        """Nothing to do: rollouts are copies."""

    # -- playing --------------------------------------------------------------------------------------------------

    def _begin(self, k: int) -> None:
        """Let a game begin anew."""
        game = self._games[k]
        self._give_up(k)
        self._seat(k)
        self._resets += 1
        game.env.reset(self._parameters, self._seed + self._resets)

    def _give_up(self, k: int) -> None:
        """What waits for its outcome in a game will never have one."""
        self._close_stretches(k, self._places)
        self._games[k].agents, self._games[k].decisions = {}, {}

    def _seat(self, k: int) -> None:
        """Who plays in a game from now on; where somebody changes, memories begin anew."""
        game, before = self._games[k], self._games[k].seats
        seats = tuple(self._cast(k))
        game.seats = {agent.name: seat for agent, seat in zip(self._spec.agents, seats, strict=True)}
        game.age = 0
        for seat in seats:
            self.policies[seat.policy]  # have it at hand
        changed = {name for name, seat in before.items() if seat != game.seats[name]}
        for (name, _), agent in game.agents.items():
            if name in changed:
                agent.row, agent.state = -1, np.zeros_like(agent.state)
        self._close_stretches(k, changed)

    def _close_stretches(self, k: int, names: Container[str]) -> None:
        """No more decisions follow on those of these behavior ids in a game."""
        for policy, stretches in self._open.items():
            for key in [key for key in stretches if key[0] == k and key[1] in names]:
                self._done[policy].append(stretches.pop(key).cut(self._records[policy]))

    def _guarded(self, k: int, talk: Callable[[int], None]) -> None:
        """Talk to a game; put another one in its place when it is lost."""
        try:
            talk(k)
        except LostGameError as error:
            self._replace(k, error)

    def _replace(self, k: int, error: LostGameError) -> None:
        told, now = self._settings, time.monotonic()
        self._games[k].env.kill()
        self._give_up(k)
        self._lost_ever += 1
        self._lost.append(now)
        while now - self._lost[0] > told.restarts_rate_limit_period_s:
            self._lost.popleft()
        for limit, count, key in (
            (told.max_lifetime_restarts, self._lost_ever, "max_lifetime_restarts"),
            (told.restarts_rate_limit_n, len(self._lost), "restarts_rate_limit_n"),
        ):
            if 0 <= limit < count:
                raise WorkerError(f"game {k}: {error}. It is not started again: env_settings.{key} is {limit}")
        if told.env_path == EDITOR:
            raise WorkerError(f"game {k}: {error}. Press Play in the Editor and continue with --resume")
        self._complaints.append(f"game {k}: {error}. Another one is started in its place; training goes on.")
        self._games[k].env = self._start(k)
        self._games[k].met = set()
        self._begin(k)

    def _exchange(self) -> None:
        """Hear all games, decide for all of their agents, answer."""
        for k in range(len(self._games)):
            self._guarded(k, self._hear)
        answers = self._decide()
        parameters = self._parameters if self._untold else {}
        self._untold = False
        for k, game in enumerate(self._games):
            if game.env.waits:  # not one that was replaced just now

                def answer(k: int) -> None:
                    self._games[k].env.send(answers[k], parameters, self._seed)

                self._guarded(k, answer)

    def _hear(self, k: int) -> None:
        """Take in what came of the decisions in a game."""
        game = self._games[k]
        game.decisions = {}
        news = game.env.receive()
        game.age += 1
        for name in sorted(news.decisions.keys() - game.met):
            game.met.add(name)
            self._greet(k, name)
        for told in news.statistics:
            if told.aggregation != MOST_RECENT or k == 0:
                self._heard.setdefault((told.name, told.aggregation), []).append(told.value)
        waited = bool(game.agents)
        self._end(k, news)
        for name, steps in news.decisions.items():
            for i, agent in self._known(game, name, steps):
                self._pay(k, name, agent, steps, i)
        if waited and not game.agents:
            self._finish(k, news)
            self._seat(k)
        elif game.age >= EXCHANGES:
            self._seat(k)
        game.decisions = news.decisions

    def _greet(self, k: int, name: str) -> None:
        """A behavior id speaks in a game for the first time."""
        spec = self._games[k].env.discovery.behaviors[name]
        if name not in self._kinds and name not in self._strange:
            reason = self._meet(name, spec)
            if reason is not None:
                self._strange.add(name)
                self._complaints.append(reason)
        if self._kinds.get(name, spec) != spec:
            raise ProtocolError(
                f"game {k}: {name} sees or does other things than before; expected the same in every game"
            )

    def _known(self, game: _Played, name: str, steps: Steps) -> list[tuple[int, _Agent]]:
        """Those that have decided before: their place in the message, and they themselves."""
        found = ((i, game.agents.get((name, agent))) for i, agent in enumerate(steps.agent.tolist()))
        return [(i, agent) for i, agent in found if agent is not None]

    def _pay(self, k: int, name: str, agent: _Agent, steps: Steps, i: int) -> None:
        """What an agent got since its latest decision."""
        reward, group_reward = float(steps.reward[i]), float(steps.group_reward[i])
        agent.reward += reward
        agent.group_reward += group_reward
        if agent.row >= 0:
            self._records[self._games[k].seats[name].policy].pay(agent.row, reward, group_reward)

    def _end(self, k: int, news: News) -> None:
        """Episodes that are over. One without a decision leaves no trace."""
        game, over = self._games[k], list[tuple[int, Episode]]()
        for name, ends in news.ends.items():
            for i, agent in self._known(game, name, ends):
                self._pay(k, name, agent, ends, i)
                seat, row = game.seats[name], agent.row
                if row >= 0 and ends.truncated[i]:
                    record = self._records[seat.policy]
                    last = {name: array[i : i + 1] for name, array in ends.observations.items()}
                    record["followed"][row] = record.add(1, {**record.seen(last), "states": agent.state})[0]
                elif row >= 0:
                    self._records[seat.policy]["terminated"][row] = True
                paid = agent.reward, agent.group_reward
                over.append((agent.group, Episode(k, self._places[name], *seat, agent.length, *paid)))
                number, group = int(ends.agent[i]), int(ends.group[i])
                del game.agents[name, number]
                if row >= 0:
                    key = self._key(seat.policy, k, name, number, group)
                    self._open[seat.policy][key].members.pop(number)  # its place is free
        there = {agent.group for agent in game.agents.values() if agent.group}
        self._episodes += [replace(episode, left_early=group in there) for group, episode in over]

    def _finish(self, k: int, news: News) -> None:
        """All agents ended at once: whose side got more in the end is ahead, as in ML-Agents' rating."""
        scores = dict.fromkeys(self._spec.sides, 0.0)
        for name, ends in news.ends.items():
            if name in self._places:
                side = self._spec.agents[self._places[name]].team
                scores[side] += float((ends.reward + ends.group_reward).mean())
        seats = tuple(self._games[k].seats[agent.name] for agent in self._spec.agents)
        self._matches.append(FinishedMatch(k, points_of(list(scores.values())), seats))

    # -- deciding -------------------------------------------------------------------------------------------------

    def _decide(self) -> list[dict[str, F32]]:
        """Actions for everybody who asked, by game and behavior id."""
        answers: list[dict[str, F32]] = [{} for _ in self._games]
        asked: dict[tuple[int, str], list[tuple[int, str, Steps]]] = {}
        self._idle += 1
        for k, game in enumerate(self._games):
            for name, steps in game.decisions.items():
                if name in game.seats:
                    policy = game.seats[name].policy
                    asked.setdefault((policy, self._kinds[name].name), []).append((k, name, steps))
                else:
                    answers[k][name] = self._improvise(game, name, steps)
        for (policy, kind), batch in asked.items():
            actions = self._act(policy, kind, batch)
            ends = np.cumsum([len(steps) for *_, steps in batch])[:-1]
            for (k, name, _), own in zip(batch, np.split(actions, ends), strict=True):
                answers[k][name] = own
        return answers

    def _improvise(self, game: _Played, name: str, steps: Steps) -> F32:
        """Random actions for a behavior that nobody learns."""
        generator = np.random.default_rng((self._seed, self.tick))
        self.tick += 1
        spec = game.env.discovery.behaviors[name].actions
        return draw_actions(spec, len(steps), steps.observations.get(MASKS), generator)

    def _act(self, policy: int, kind: str, batch: Sequence[tuple[int, str, Steps]]) -> F32:
        """One forward pass. Returns the actions [n, A] of the whole batch; what is learned from is recorded."""
        spec, S = self._spec.behavior(kind).actions, self._sizes[kind]
        deciding: list[_Agent] = []
        for k, name, steps in batch:
            agents = self._games[k].agents
            for number, group in zip(steps.agent.tolist(), steps.group.tolist(), strict=True):
                agent = agents.setdefault((name, number), _Agent(np.zeros(S, np.float32)))
                if S and self._is_grouped(policy) and group and not self._follows(policy, k, name, group, agent.row):
                    agent.state = np.zeros(S, np.float32)  # as the learner will have it
                deciding.append(agent)
        names = batch[0][2].observations
        seen: dict[str, AnyArray] = {
            name: np.concatenate([steps.observations[name] for *_, steps in batch]) for name in names
        }
        states = np.stack([agent.state for agent in deciding])
        ids = np.full(len(deciding), policy, np.int32)
        parameters, values, after, versions = self.policies.act(seen, states, ids, spec.parameters)
        numbers = np.arange(len(ids), dtype=np.int64)
        draw = self._draws.get(kind, sample)
        actions, log_probs, entropies = draw(parameters, spec, self._seed, self.tick, numbers)
        self.tick += 1
        first = 0
        for k, name, steps in batch:
            own, first = slice(first, first + len(steps)), first + len(steps)
            rows = np.full(len(steps), -1, np.int64)
            if self._games[k].seats[name].learns:
                record = self._records[policy]
                rows = record.add(len(steps), {
                    **record.seen({name: array[own] for name, array in seen.items()}), "states": states[own],
                    "actions": actions[own], "log_probs": log_probs[own], "parameters": parameters[own],
                    "values": values[own], "entropies": entropies[own], "versions": versions[own],
                })  # fmt: skip
                self._continue(policy, k, name, steps, rows.tolist())
                self._idle = 0
            elif any(seat.learns for seat in self._games[k].seats.values()):
                self._ghosts[kind] = self._ghosts.get(kind, 0) + len(steps)
            for agent, row, state in zip(deciding[own], rows.tolist(), after[own], strict=True):
                agent.row, agent.state = row, state.copy()
                agent.length += 1
            for agent, group in zip(deciding[own], steps.group.tolist(), strict=True):
                agent.group = group
        return self.policies.told(actions, ids, spec)

    def _follows(self, policy: int, k: int, name: str, group: int, row: int) -> bool:
        """Whether a decision of a group's member is of the step before the one that begins."""
        stretch = self._open[policy].get((k, name, -group)) if policy in self._open else None
        return stretch is not None and bool(stretch.steps) and row in stretch.steps[-1].values()

    def _is_grouped(self, policy: int) -> bool:
        return policy in self._demands and self._demands[policy].grouped

    def _key(self, policy: int, k: int, name: str, agent: int, group: int) -> tuple[int, str, int]:
        """Of the stretch of an agent, or of its group, whose numbers are made negative."""
        return k, name, -group if group > 0 and self._is_grouped(policy) else agent

    def _continue(self, policy: int, k: int, name: str, steps: Steps, rows: Sequence[int]) -> None:
        """Add decisions to the stretches of their agents, or of their groups."""
        stretches, touched = self._open[policy], dict[tuple[int, str, int], Stretch]()
        for agent, group, row in zip(steps.agent.tolist(), steps.group.tolist(), rows, strict=True):
            key = self._key(policy, k, name, agent, group)
            stretch = stretches.setdefault(key, Stretch())
            if key not in touched:
                touched[key] = stretch
                stretch.steps.append({})
            stretch.steps[-1][stretch.place(agent)] = row
        for stretch in touched.values():
            if len(stretch.steps) > self._demands[policy].horizon:
                self._done[policy].append(stretch.cut(self._records[policy]))

    # -- the rest of the contract ---------------------------------------------------------------------------------

    @property
    def in_play(self) -> set[int]:
        """Ids of frozen policies that a running game needs."""
        return {seat.policy for game in self._games for seat in game.seats.values() if seat.policy >= FROZEN}

    def set_parameters(self, parameters: Mapping[str, Value]) -> None:
        """Tell all games with the next exchange. What a game does not read, it ignores."""
        self._parameters, self._untold = parameters, True

    def restart(self) -> None:
        """Reset all games before the next rollout."""
        self._started = False

    def shape_rewards(self, policy: int, numbers: Sequence[float]) -> None:
        """Never called: a Unity game tells of no numbers that may be tuned."""

    def performance(self) -> Mapping[str, float]:
        """The game's own statistics, of the latest rollout that had any, and games that were lost."""
        for (name, aggregation), values in self._heard.items():
            total = float(np.sum(values))
            self._statistics[name] = values[-1] if aggregation == MOST_RECENT else total
            if aggregation not in (MOST_RECENT, SUM):
                self._statistics[name] = total / len(values)
        return {**self._statistics, "Sampling/Crashed": float(self._lost_ever)}

    def describe(self) -> list[str]:
        """Games and behaviors."""
        found = ", ".join(agent.name for agent in self._spec.agents)
        return [f"{len(self._games)} games of {self._spec.env_id} with {found}, one forward pass for all of them"]

    def complaints(self) -> Sequence[str]:
        """That games were lost, and who appeared too late."""
        told, self._complaints = self._complaints, []
        return told

    def save(self) -> dict[str, Any]:
        """Draws go on where they were; games cannot be saved, and go on too."""
        return {"tick": self.tick, "resets": self._resets}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue where `save` was called, with games that begin anew."""
        self.tick, self._resets = int(state["tick"]), int(state["resets"])

    def close(self) -> None:
        """End all games."""
        for game in self._games:
            game.env.close()
