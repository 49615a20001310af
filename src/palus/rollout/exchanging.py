"""The collector over Unity games: agents are born, end and ask for decisions when they please.

All games are heard, then everybody who decides in any of them with the same policy is served by one forward pass. A
policy plays a behavior id in a whole game (an executable, or the Editor), however many matches it holds
(`palus.unity.squads` tells which are over, and with which verdict). Who plays changes when all agents ended in one
message; where that does not happen for `EXCHANGES` messages, within episodes, as in ML-Agents: matches that both played
have no verdict. Agents of a policy that learns from groups are kept with their group.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from palus.config.environment import Value
from palus.config.run_file import EnvSettings
from palus.envs.game import draw_actions, points_of
from palus.errors import EnvError, LostGameError, ProtocolError, StoppedEarly
from palus.nn.distributions import Draw, sample
from palus.rollout.acting import Policies, Policy
from palus.rollout.game_statistics import GameStatistics
from palus.rollout.learner_stretches import Demand, LearnerStretches
from palus.rollout.restarts import Restarts
from palus.rollout.rollout import FROZEN, Cast, Collected, Episode, FinishedMatch, Seat
from palus.types import F32, MASKS, AnyArray, BehaviorSpec, GameSpec
from palus.unity.news import News, Steps, TalkingGame, never
from palus.unity.squads import Ended, Meeting, meetings, squad_of

EXCHANGES = 1000
"""Messages after which who plays in a game may change within episodes."""
IDLE = 10_000
"""Messages without a decision of any learner after which a game counts as one that has nobody to train."""

Meet = Callable[[str, BehaviorSpec], str | None]
"""Behavior id and what its agents see and do, of one that appears in mid-run -> why nobody learns it; None where the
collector has been told of a learner (`ExchangeCollector.admit`)."""


@dataclass
class _Agent:
    """One that waits for what comes of its decision. row: of the decision in the learner's record, -1 where nobody
    learns from it; state: its memory after it, as wide as that of whoever decides. The sums are of the running episode.
    group: of its decision, 0: none. casts: the game's when its episode began."""

    state: F32
    row: int = -1
    length: int = 0
    reward: float = 0.0
    group_reward: float = 0.0
    group: int = 0
    casts: int = 0


@dataclass
class _Played:
    """One game. seats: by behavior id. agents: that wait, by behavior id and id. age: messages since it was cast.
    casts: how often somebody else took a seat. met: behavior ids that it has spoken of."""

    env: TalkingGame
    seats: dict[str, Seat] = field(default_factory=dict)
    agents: dict[tuple[str, int], _Agent] = field(default_factory=dict)
    decisions: Mapping[str, Steps] = field(default_factory=dict)
    age: int = 0
    casts: int = 0
    met: set[str] = field(default_factory=set)


class ExchangeCollector:
    """A `palus.rollout.rollout.Collector`: rollouts end when some learner has what it needs for an update; the others'
    are empty then."""

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
        self.stopped: Callable[[], bool] = never
        self._games, self._start = [_Played(env) for env in games], start
        self._restarts, self._seed, self._meet = Restarts(settings), seed, meet
        self._draws = dict(draws)
        self._records: dict[int, LearnerStretches] = {}
        self._learn(spec, demands, learners, cast)
        self._parameters: Mapping[str, Value] = {}
        self._untold = False
        self._idle = 0
        self._complaints: list[str] = []
        self._strange: set[str] = set()
        self.statistics = GameStatistics()
        self._episodes: list[Episode] = []
        self._matches: list[FinishedMatch] = []
        self._ghosts: dict[str, int] = {}
        self.tick, self._resets, self._started = 0, 0, False

    def _learn(
        self,
        spec: GameSpec,
        demands: Mapping[int, Demand],
        learners: Mapping[int, tuple[str, Policy]],
        cast: Cast,
    ) -> None:
        """Take in what the game has, and who learns it."""
        self._spec, self._cast = spec, cast
        self._kinds = {agent.name: spec.behavior(agent.behavior) for agent in spec.agents}
        self._places = {agent.name: place for place, agent in enumerate(spec.agents)}
        for policy, (behavior, acting) in learners.items():
            self._records[policy] = LearnerStretches(demands[policy], spec.behavior(behavior), acting.state_size)

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
        self._learn(spec, demands, learners, cast)
        self._draws.update(draws)
        for k, game in enumerate(self._games):
            seats = {agent.name: seat for agent, seat in zip(spec.agents, cast(k), strict=True)}
            game.seats = seats | game.seats

    # -- rollouts -------------------------------------------------------------------------------------------------

    def collect(self) -> Collected:
        """Play on for one rollout. Raises WorkerError when games are lost faster than they may be replaced,
        ProtocolError when one breaks the protocol, EnvError when nobody asks for a learner's decision, StoppedEarly
        when `stopped` says so: games may take minutes for one."""
        self._episodes, self._matches, self._ghosts = [], [], {b.name: 0 for b in self._spec.behaviors}
        if not self._started:
            self._started = True
            for k in range(len(self._games)):
                self._guarded(k, self._begin)
        while not any(record.enough for record in self._records.values()):
            if self.stopped():
                raise StoppedEarly
            self._exchange()
            if self._idle > IDLE:
                behaviors = " or ".join(record.behavior.name for record in self._records.values())
                raise EnvError(
                    f"{self._spec.env_id}: {IDLE} messages, and no agent of {behaviors} "
                    "asked for a decision; check its Behavior Name and that its Behavior Type is Default"
                )
        rollouts, entropies = {}, {}
        for policy, record in self._records.items():
            has_values = policy not in self.policies.without_values
            if not record.enough:  # its agents decide more rarely: what there is stays until it fills a rollout
                rollouts[policy], entropies[policy] = record.nothing(has_values)
                continue
            rollouts[policy], entropies[policy] = record.rollout(has_values)
            numbers = record.forget()
            for game in self._games:
                for (name, _), agent in game.agents.items():
                    if game.seats[name] == (policy, True):
                        agent.row = numbers.get(agent.row, -1)
        self.policies.forget(self.in_play)
        return Collected(rollouts, entropies, self._episodes, self._matches, self._ghosts)

    def beside(self) -> AbstractContextManager[None]:
        """Nothing to do: games that talk wait for actions."""
        return nullcontext()

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
        game.casts += bool(changed)
        for (name, _), agent in game.agents.items():
            if name in changed:
                agent.row, agent.state = -1, self._empty_memory(game.seats[name].policy)
        self._close_stretches(k, changed)

    def _empty_memory(self, policy: int) -> F32:
        """Of an agent that this policy decides for."""
        return np.zeros(self.policies[policy].state_size, np.float32)

    def _close_stretches(self, k: int, names: Container[str]) -> None:
        """No more decisions follow on those of these behavior ids in a game."""
        for record in self._records.values():
            record.close(k, names)

    def _guarded(self, k: int, talk: Callable[[int], None]) -> None:
        """Talk to a game; put another one in its place when it is lost."""
        while True:
            try:
                talk(k)
                return
            except LostGameError as error:
                self._games[k].env.kill()
                self._give_up(k)
                self._restarts.take(k, error)
                self._complaints.append(f"game {k}: {error}. Another one is started in its place; training goes on.")
            talk = self._renew

    def _renew(self, k: int) -> None:
        game = self._games[k]
        game.env, game.met = self._start(k), set()
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
        news = game.env.receive(self.stopped)
        game.age += 1
        for channel in news.strange:
            if channel not in self._strange:
                self._strange.add(channel)
                self._complaints.append(f"Unknown side channel data received. Channel type: {channel}.")
        for name in sorted(news.decisions.keys() - game.met):
            game.met.add(name)
            self._greet(k, name)
        self.statistics.hear(k, news.statistics, self._records)
        waited = bool(game.agents)
        ended = self._end(k, news)
        for name, steps in news.decisions.items():
            for i, agent in self._known(game, name, steps):
                self._pay(k, name, agent, steps, i)
        self._finish(k, ended)
        if (waited and not game.agents) or game.age >= EXCHANGES:
            self._seat(k)
        game.decisions = news.decisions

    def _greet(self, k: int, name: str) -> None:
        """A behavior id speaks in a game for the first time."""
        spec = self._games[k].env.behaviors[name]
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

    def _end(self, k: int, news: News) -> list[Ended]:
        """Episodes that are over. One without a decision leaves no trace."""
        game, over, ended = self._games[k], list[tuple[int, Episode]](), list[Ended]()
        for name, ends in news.ends.items():
            for i, agent in self._known(game, name, ends):
                self._pay(k, name, agent, ends, i)
                seat = game.seats[name]
                if seat.learns:
                    self._records[seat.policy].end(k, name, ends, i, agent.row, agent.state)
                paid = agent.reward, agent.group_reward
                over.append((agent.group, Episode(k, self._places[name], *seat, agent.length, *paid)))
                number = int(ends.agent[i])
                del game.agents[name, number]
                squad, last = squad_of(self._team(name), number, agent.group), ends.reward[i] + ends.group_reward[i]
                ended.append(Ended(squad, number, float(last), agent.length, agent.casts == game.casts))
        there = {agent.group for agent in game.agents.values() if agent.group}
        self._episodes += [replace(episode, left_early=group in there) for group, episode in over]
        return ended

    def _finish(self, k: int, ended: Sequence[Ended]) -> None:
        """The verdicts of matches that are over. Where all agents end at once, and not as many squads of every team,
        it is one match: whose side got more in the end is ahead, as in ML-Agents' rating."""
        game, sides = self._games[k], self._spec.sides
        there = {squad_of(self._team(name), number, agent.group) for (name, number), agent in game.agents.items()}
        found = meetings(ended, there, sides) if len(sides) > 1 else None
        if found is None and ended and not game.agents:
            paid = {side: [one.paid for one in ended if one.squad[0] == side] for side in sides}
            scores = [float(np.mean(own)) if own else 0.0 for own in paid.values()]
            found = [Meeting(points_of(scores), 0, all(one.fresh for one in ended))]
        seats = tuple(game.seats[agent.name] for agent in self._spec.agents)
        self._matches += [FinishedMatch(k, one.points, seats) for one in found or () if one.fresh]

    def _team(self, name: str) -> int:
        """Of a behavior id."""
        return self._spec.agents[self._places[name]].team

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
        spec = game.env.behaviors[name].actions
        return draw_actions(spec, len(steps), steps.observations.get(MASKS), generator)

    def _act(self, policy: int, kind: str, batch: Sequence[tuple[int, str, Steps]]) -> F32:
        """One forward pass. Returns the actions [n, A] of the whole batch; what is learned from is recorded."""
        spec = self._spec.behavior(kind).actions
        record, deciding = self._records.get(policy), list[_Agent]()
        grouped = record is not None and record.demand.grouped
        for k, name, steps in batch:
            agents, casts = self._games[k].agents, self._games[k].casts
            for number, group in zip(steps.agent.tolist(), steps.group.tolist(), strict=True):
                agent = agents.setdefault((name, number), _Agent(self._empty_memory(policy), casts=casts))
                if grouped and agent.length and group != agent.group:  # it goes on in a row of another group
                    agent.state = self._empty_memory(policy)
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
            if record is not None and self._games[k].seats[name].learns:
                rows = record.add(k, name, steps, {name: array[own] for name, array in seen.items()}, {
                    "states": states[own], "actions": actions[own], "log_probs": log_probs[own],
                    "parameters": parameters[own], "values": values[own], "entropies": entropies[own],
                    "versions": versions[own],
                })  # fmt: skip
                self._idle = 0
            elif any(seat.learns for seat in self._games[k].seats.values()):
                self._ghosts[kind] = self._ghosts.get(kind, 0) + len(steps)
            told = zip(deciding[own], rows.tolist(), after[own], steps.group.tolist(), strict=True)
            for agent, row, state, group in told:
                agent.row, agent.state, agent.group = row, state.copy(), group
                agent.length += 1
        return self.policies.told(actions, ids, spec)

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
        """Games that were lost."""
        return {"Sampling/Crashed": float(self._restarts.count)}

    def describe(self) -> list[str]:
        """Games and behaviors."""
        found = ", ".join(agent.name for agent in self._spec.agents)
        games = "1 game" if len(self._games) == 1 else f"{len(self._games)} games"
        return [f"{games} of {self._spec.env_id} with {found}, one forward pass for all of them"]

    def complaints(self) -> Sequence[str]:
        """That games were lost, who appeared too late, and which side channels nobody listens to."""
        told, self._complaints = self._complaints, []
        return told

    def save(self) -> dict[str, Any]:
        """Draws go on where they were; games cannot be saved, and go on too."""
        largest = {policy: record.largest for policy, record in self._records.items()}
        return {"tick": self.tick, "resets": self._resets, "largest_groups": largest}

    def load(self, state: Mapping[str, Any]) -> None:
        """Continue where `save` was called, with games that begin anew."""
        self.tick, self._resets = int(state["tick"]), int(state["resets"])
        largest = state.get("largest_groups", {})  # not in those of older versions
        for policy, record in self._records.items():
            record.largest = int(largest.get(policy, 1))

    def close(self) -> None:
        """End all games."""
        for game in self._games:
            game.env.close()
