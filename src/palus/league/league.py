"""Self-play: who sits where in every match, the past selves that learners meet, and what came of it.

The words are those of ML-Agents' ghost trainer, counted in its units: `save_steps` and `team_change` in trainer steps
of the behavior that learns, `swap_steps` in decisions of the behavior that does not. What differs
(docs/differences.md): every match slot draws its own opponent and keeps it until the match ends, team changes wait for
the end of each match, and snapshots, ratings, payoffs and counters survive a restart. `palus.league.counting:
reference` has one opponent per team instead, drawn at ML-Agents' steps. Results are the game's verdicts
(`FinishedMatch.points`), never rewards.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from palus.config.league import LeagueSettings
from palus.errors import ConfigError
from palus.league.draws import Draws
from palus.league.members import Member
from palus.league.opponents import Odds, PayoffTable, is_change_due, opponent_odds
from palus.league.pools import Contender, Pool, Snapshot, next_start, swaps
from palus.league.results import policies_of, results_of, share
from palus.league.roles import RESET, Candidate, is_frozen
from palus.league.strength import kept
from palus.league.turns import Turns
from palus.ratings.elo import expected_score
from palus.rollout.plan import rows_per_match
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat
from palus.types import GameSpec

Save = Callable[[Contender, int], object]
"""Writes a learner's present weights under the id of a snapshot."""


class League:
    """The league of one run. While `cast` is called from another thread, nothing else is.

    pools: by policy id of the learner. snapshots: by id, those that are needed. turns: which team learns. literal:
    counts as ML-Agents does, to the step. resets: learners that have to begin anew since the last `advance`. house: the
    members that it was made with; visitors: snapshots of other runs that are met now.
    """

    def __init__(
        self,
        spec: GameSpec,
        contenders: Sequence[Contender],
        seed: int,
        *,
        settings: LeagueSettings | None = None,
        members: Sequence[Member] = (),
    ) -> None:
        """contenders: learners. Where they have a past, the agents of one team and behavior always follow one.

        Raises ConfigError where a behavior's self-play finds no opponents in the game.
        """
        self.spec, self.seed = spec, seed
        self.settings, self.house = settings or LeagueSettings(), members
        self.visitors: list[Member] = []
        self._leaving: list[Member] = []
        self._learners: dict[str, list[Contender]] = {}
        for contender in contenders:
            self._learners.setdefault(contender.behavior, []).append(contender)
        self.pools = {c.policy: Pool(c, c.self_play, c.self_play.initial_elo) for c in contenders if c.self_play}
        if self.pools and len(spec.sides) < 2:
            raise ConfigError(f"self_play: {spec.env_id} has one side only; remove self_play, or train in another game")
        self._places = [(agent.team, agent.behavior, spec.sides.index(agent.team)) for agent in spec.agents]
        self.turns = Turns(spec, [pool.contender for pool in self.pools.values()], self.settings)
        self.literal = self.turns.literal
        self.payoffs, self.snapshots, self.snapshot_count = PayoffTable(), dict[int, Snapshot](), 0
        self.resets: list[int] = []
        self._guests: dict[int, Snapshot] = {}  # members as they are rated
        self._welcome(members)
        self._odds: dict[tuple[int, ...], Odds] = {}  # as `odds`
        self._drawn: dict[tuple[int, int, str, int], tuple[int, int, int]] = {}  # as `_opponent`: policy, since when
        self._begun: dict[int, int] = {}  # slot -> matches
        self._examined: Counter[int] = Counter()  # policy -> evaluation matches that ended
        self._remembered: set[int] = set()

    def pools_of(self, behavior: str) -> list[Pool]:
        """Of the learners of a behavior."""
        return [pool for pool in self.pools.values() if pool.contender.behavior == behavior]

    @property
    def members(self) -> list[Member]:
        """All who are met and not trained here, and visitors who left but still play."""
        return [*self.house, *self.visitors, *self._leaving]

    def visit(self, visitors: Sequence[Member]) -> None:
        """From now on these snapshots of other runs are met, and no others; a match that runs keeps its own."""
        here = {visitor.policy for visitor in visitors}
        self._leaving = [v for v in (*self._leaving, *self.visitors) if v.policy not in here]
        self.visitors, self._odds = list(visitors), {}
        self._welcome(visitors)

    def _welcome(self, members: Sequence[Member]) -> None:
        """Give members a rating, where somebody may meet them."""
        for m in members:
            if m.policy not in self._guests and (pools := self.pools_of(m.behavior)):
                self._guests[m.policy] = Snapshot(m.policy, m.behavior, 0, pools[0].settings.initial_elo)

    def rows_per_match(self, contender: Contender) -> int:
        """The most agents of a match that learn for this learner."""
        past, mirrors = contender.self_play is not None, contender.mirrors
        return rows_per_match(self.spec, contender.behavior, past=past, mirrors=mirrors, all_teams=self.turns.all_learn)

    # -- who sits where -------------------------------------------------------------------------------------------

    def cast(self, slot: int) -> tuple[Seat, ...]:
        """Who decides for each agent of the match that begins in this slot."""
        begun, share = self._begun.get(slot, 0), self.settings.evaluation_share
        draws, self._begun[slot] = Draws(self.seed, begun, slot), begun + 1
        if share > 0.0 and draws() < share and (examined := self._examination(draws)):
            return examined
        turn, sides = self.turns.of(slot, begun), list(self.turns.played_on)
        learning = {b: draws.one_of(self._open(b)) for b in self.turns.played_on[sides[turn]]}
        shared: dict[str, int] = {}
        teams: dict[tuple[int, str], Seat] = {}
        seats = []
        for team, behavior, side in self._places:
            rival = (side - turn) % len(sides)
            if behavior not in self.turns.learners:
                if behavior not in shared or (self._learners[behavior][0].mixes and len(self._learners[behavior]) > 1):
                    shared[behavior] = draws.one_of(self._learners[behavior]).policy
                seats.append(Seat(shared[behavior], True))
                continue
            if (rival, behavior) not in teams:
                teams[rival, behavior] = self._seat(slot, draws, learning, behavior, team, rival)
            seats.append(teams[rival, behavior])
        return tuple(seats)

    def _seat(
        self, slot: int, draws: Draws, learning: Mapping[str, Contender], behavior: str, side: int, rival: int
    ) -> Seat:
        """Of the agents of one team and behavior. rival: how many teams behind the learning one, 0 for itself."""
        if rival == 0:
            return Seat(learning[behavior].policy, True)
        first = next(iter(learning.values()))
        asking = learning.get(behavior, first)
        if self.literal:
            (pool,) = self.pools_of(behavior)
            return Seat(FROZEN + pool.ghosts[side], False)
        policy = self._opponent(slot, draws, asking, behavior, rival)
        mirrored = (
            asking.mirrors
            and asking.role == "main"
            and any(policy == c.policy for c in self._learners[asking.behavior])
        )
        present = self.turns.all_learn and any(policy == c.policy for c in self.turns.open(self._learners[behavior]))
        return Seat(policy, present or mirrored)

    def _open(self, behavior: str) -> list[Contender]:
        """Its learners that have steps to do, all where none has."""
        return self.turns.open(self._learners[behavior]) or self._learners[behavior]

    def _opponent(self, slot: int, draws: Draws, asking: Contender, behavior: str, rival: int) -> int:
        """The policy that a learner meets in a slot. A draw stays for an interval (`is_change_due`)."""
        key, now = (slot, asking.policy, behavior, rival), self.turns.ghost_steps[behavior]
        pools = self.pools_of(behavior)
        policy, drawn_at, matches = self._drawn.get(key, (-1, now, 0))
        if policy < 0 or is_change_due(self.settings, pools[0].settings, now - drawn_at, matches):
            policy, drawn_at, matches = self._draw(draws, asking, pools), now, 0
        self._drawn[key] = policy, drawn_at, matches + 1
        return policy

    def _draw(self, draws: Draws, asking: Contender, pools: Sequence[Pool]) -> int:
        """An opponent for a learner among the learners of one behavior and their past selves: a policy id."""
        odds = self.odds(asking, pools)
        if draws() < odds.latest:
            return odds.present
        return draws.one_of(odds.others, odds.weights)

    def odds(self, asking: Contender, pools: Sequence[Pool]) -> Odds:
        """Whom a learner meets among the learners of one behavior and their past, as things stood at `advance`."""
        key = (asking.policy, *(pool.contender.policy for pool in pools))
        if key not in self._odds:
            me = self._candidates(self.pools[asking.policy])[-1]
            theirs = pools[0].contender.behavior
            field = self._field([theirs])
            own = None
            if asking.behavior != theirs:
                own = [c for pool in self.pools_of(asking.behavior) for c in self._candidates(pool)]
            self._odds[key] = opponent_odds(self.payoffs, self.settings, pools[0].settings, me, field, own)
        return self._odds[key]

    def _candidates(self, pool: Pool) -> list[Candidate]:
        """The past of a learner, older before newer, and the learner itself."""
        learner, role = pool.contender.policy, pool.contender.role
        past = [Candidate(FROZEN + k, learner, self.snapshots[k].version, role) for k in pool.past]
        return [*past, Candidate(learner, learner, pool.versions, role)]

    def _field(self, behaviors: Collection[str]) -> list[Candidate]:
        """The members, the past and the learners of some behaviors."""
        members = [
            Candidate(m.policy, m.policy if m.learner is None else m.learner, m.version, m.role)
            for m in (*self.house, *self.visitors)
            if m.behavior in behaviors
        ]
        pools = [pool for pool in self.pools.values() if pool.contender.behavior in behaviors]
        return [*members, *(c for pool in pools for c in self._candidates(pool))]

    def _rivals(self, learner: Contender) -> list[Candidate]:
        """All whom a learner may meet, but for itself."""
        teams = {team for team, behavior, _ in self._places if behavior == learner.behavior}
        others = {behavior for team, behavior, _ in self._places if teams - {team}}
        return [c for c in self._field(others) if c.policy != learner.policy]

    def points(self, policy: int) -> float | None:
        """The share of the points that a learner takes of late from all whom it may meet, each alike; None before it
        has met anybody. Learners of one behavior are compared by it: a game's rewards are a rival's losses."""
        rivals = [c.policy for c in self._rivals(self.pools[policy].contender)]
        if not any((policy, rival) in self.payoffs.form for rival in rivals):
            return None
        return float(np.mean([self.payoffs.expected(policy, rival) for rival in rivals]))

    def _examination(self, draws: Draws) -> tuple[Seat, ...]:
        """A match of past selves that nobody learns from; () where there are none.

        One of them is drawn by how many of these it lacks, so that a new one soon has met all others.
        """
        past = {b: [FROZEN + k for pool in self.pools_of(b) for k in pool.past] for b in self.turns.learners}
        for visitor in self.visitors:
            past.get(visitor.behavior, []).append(visitor.policy)
        parts = dict.fromkeys((agent.team, agent.behavior) for agent in self.spec.agents)
        if any(len(past.get(behavior, ())) < 2 for _, behavior in parts):
            return ()
        chosen = {part: draws.one_of(past[part[1]]) for part in parts}
        everybody = [policy for ids in past.values() for policy in ids]
        most = max(self._examined[policy] for policy in everybody)
        least = draws.one_of(everybody, [most + 1.0 - self._examined[policy] for policy in everybody])
        places = [part for part in parts if least in past[part[1]]]
        chosen[draws.one_of(places)] = least
        return tuple(Seat(chosen[agent.team, agent.behavior], False) for agent in self.spec.agents)

    # -- results --------------------------------------------------------------------------------------------------

    def rate(self, matches: Sequence[FinishedMatch]) -> None:
        """Elo (K = 1, zero-sum, once for each learning agent, as in ML-Agents) and payoffs of matches with a verdict.

        A match of three teams and more counts as the mean of the learner's results against each other team. A match
        against oneself changes no Elo; against another policy in training, both of them.
        """
        for match in matches:
            policies = policies_of(match, self.spec)
            for pair, points in results_of(match, policies).items():
                self.payoffs.add(*pair, points)
            if not any(seat.learns for seat in match.seats):
                self._examined.update({seat.policy for seat in match.seats})
            if match.points:
                self._rate(match, policies)

    def _rate(self, match: FinishedMatch, policies: Mapping[int, set[int]]) -> None:
        points = dict(zip(policies, match.points, strict=True))
        for agent, seat in zip(self.spec.agents, match.seats, strict=True):
            own = self.pools.get(seat.policy)
            if own is None or not seat.learns:
                continue
            changes = []
            for side, ids in policies.items():
                rivals = [self._rated(policy) for policy in sorted(ids)] if side != agent.team else []
                rival = next((r for r in rivals if r is not None and r is not own), None)
                if rival is not None:
                    expected = expected_score(own.elo, rival.elo)
                    changes.append((rival, share(points[agent.team], points[side]) - expected))
            for rival, change in changes:
                own.elo += change / len(changes)
                rival.elo -= change / len(changes)

    def _rated(self, policy: int) -> Pool | Snapshot | None:
        """Whose rating a policy's matches move."""
        person = self.person(policy)
        return self._guests.get(policy) or self.snapshots.get(person - FROZEN) or self.pools.get(person)

    def person(self, policy: int) -> int:
        """The learner for a snapshot that stands for its present, else the policy itself."""
        snapshot = self.snapshots.get(policy - FROZEN)
        return snapshot.parent if snapshot is not None and snapshot.present else policy

    # -- counters -------------------------------------------------------------------------------------------------

    def advance(self, steps: Mapping[int, int], ghost_steps: Mapping[str, int], save: Save) -> list[int]:
        """Count, change the learning team when due, save snapshots when due; returns the ids of those saved.

        After an update; by reference counting before it: what is due at a step of a rollout has the weights that played
        it. steps: trainer steps of each learner so far; ghost_steps: by behavior, since the last call. Raises what
        `save` raises.
        """
        ghost_before, self.resets = dict(self.turns.ghost_steps), []
        turns = self.turns.advance(steps, ghost_steps)
        saved = [snapshot for pool in self.pools.values() for snapshot in self._save_due(pool, save)]
        self._odds = {}
        if self.literal:
            for pool in self.pools.values():
                saved += self._swap(pool, ghost_before[pool.contender.behavior], turns, save)
        return saved

    def _save_due(self, pool: Pool, save: Save) -> list[int]:
        """The first snapshot at once, the others by `save_steps`."""
        step, saved = self.turns.steps[pool.contender.policy], list[int]()
        if not pool.window:
            saved, pool.last_save = [self._freeze(pool, save)], 0 if self.literal else step
            pool.ghosts = dict.fromkeys(self.spec.sides, saved[0]) if self.literal else {}
        while (due := self._due(pool, step)) is not None:
            saved.append(self._freeze(pool, save))
            pool.last_save = due
            role = pool.contender.role
            if role in RESET and Draws(self.seed, self.snapshot_count, -1 - pool.contender.policy)() < RESET[role]:
                self._begin_anew(pool, None)
                self.resets.append(pool.contender.policy)
        self._keep(pool, saved)
        return saved

    def _due(self, pool: Pool, step: int) -> int | None:
        """Where the counter of snapshots begins anew; None while none is due."""
        role, interval = pool.contender.role, pool.settings.save_steps
        if role == "main":
            return next_start(pool.last_save, step, interval, literal=self.literal)
        field = self._rivals(pool.contender)
        shares = {c.policy: self.payoffs.expected(pool.contender.policy, c.policy) for c in field}
        return step if is_frozen(role, step - pool.last_save, interval, shares, field) else None

    def _keep(self, pool: Pool, saved: Sequence[int]) -> None:
        """Enter new snapshots into a learner's past; too old ones leave it."""
        past, window = [*pool.past, *saved], pool.settings.window
        steps = [self.snapshots[snapshot].step for snapshot in past]
        stay = [past[k] for k in kept(steps, window, self.settings.landmarks)]
        pool.landmarks, pool.window = stay[:-window], stay[-window:]

    def take_over(self, policy: int, donor: int, save: Save) -> list[int]:
        """A learner is about to go on from another's weights: what it was joins its past, its form and its rating are
        the other's. Returns the ids of snapshots saved. Raises what `save` raises."""
        pool, step = self.pools[policy], self.turns.steps[policy]
        newest = self.snapshots[pool.window[-1]]
        saved = [] if newest.step == step else [self._freeze(pool, save)]
        self._keep(pool, saved)
        self._begin_anew(pool, self.pools[donor])
        self._odds = {}
        return saved

    def _begin_anew(self, pool: Pool, donor: Pool | None) -> None:
        learner = pool.contender.policy
        pool.last_save = self.turns.steps[learner]
        pool.origin, pool.elo = (donor.origin, donor.elo) if donor else (None, pool.settings.initial_elo)
        self.payoffs.begin_anew(learner, None if donor is None else donor.contender.policy)

    def _freeze(self, pool: Pool, save: Save, present: bool = False) -> int:
        """Keep the learner as it is under a new id."""
        snapshot, contender = self.snapshot_count, pool.contender
        save(contender, snapshot)
        step = self.turns.steps[contender.policy]
        self.snapshots[snapshot] = Snapshot(
            contender.policy, contender.behavior, step, pool.elo, present, pool.versions, pool.origin
        )  # fmt: skip
        if not present:
            pool.versions, pool.origin = pool.versions + 1, FROZEN + snapshot
        self.snapshot_count += 1
        self.payoffs.fade(contender.policy)
        return snapshot

    def _swap(self, pool: Pool, before: int, turns: Sequence[float], save: Save) -> list[int]:
        """New opponents for the teams that this learner's past plays, where due. Returns the ids of what it froze."""
        behavior = pool.contender.behavior
        now = self.turns.ghost_steps[behavior]
        at = [before + int(share * (now - before)) for share in turns]
        count, pool.last_swap = swaps(pool.last_swap, now, pool.settings.swap_steps, at)
        frozen: list[int] = []
        draws = Draws(self.seed, now, -1 - pool.contender.policy)
        for k, side in enumerate(self.spec.sides) if count else ():
            if behavior in self.turns.played_on[side] and (self.turns.all_learn or k != self.turns.learning_side):
                policy = self._draw(draws, pool.contender, [pool])
                if policy < FROZEN and not frozen:
                    frozen.append(self._freeze(pool, save, present=True))
                pool.ghosts[side] = policy - FROZEN if policy >= FROZEN else frozen[0]
        return frozen

    # -- what is kept ---------------------------------------------------------------------------------------------

    @property
    def staying(self) -> set[int]:
        """Ids of policies that stay with a slot for its next match."""
        return {policy for policy, *_ in self._drawn.values()}

    def needed(self, in_play: set[int]) -> set[int]:
        """Ids of snapshots that may be drawn, stay with a slot, or are in a running match. in_play: policy ids, of
        other ranks also those that stay.

        Forgets all others. Of a visitor the id is what its policy id is above FROZEN.
        """
        playing = {policy - FROZEN for policy in in_play | self.staying}
        needed = playing.union(*([*pool.past, *pool.ghosts.values()] for pool in self.pools.values()))
        needed.update(visitor.policy - FROZEN for visitor in self.visitors)
        left = {visitor.policy - FROZEN for visitor in self._leaving}
        if gone := {FROZEN + k for k in (self.snapshots.keys() | left) - needed}:
            self.payoffs.forget(gone)
        self.snapshots = {k: snapshot for k, snapshot in self.snapshots.items() if k in needed}
        self._leaving = [visitor for visitor in self._leaving if visitor.policy not in gone]
        self._guests = {policy: guest for policy, guest in self._guests.items() if policy not in gone}
        self._examined = Counter({k: n for k, n in self._examined.items() if k - FROZEN in needed})
        return {*self.snapshots, *(left & needed), *(visitor.policy - FROZEN for visitor in self.visitors)}

    def forgotten(self, in_play: set[int]) -> set[int]:
        """Ids of snapshots that have become unneeded since the last call."""
        needed = self.needed(in_play)
        forgotten, self._remembered = self._remembered - needed, needed
        return forgotten

    @property
    def elo(self) -> dict[int, float]:
        """Policy id -> rating, of learners with a past."""
        return {policy: pool.elo for policy, pool in self.pools.items()}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the snapshot files."""
        return copy.deepcopy({
            "payoffs": self.payoffs.state_dict(),
            "pools": [(policy, {k: getattr(pool, k) for k in _OF_POOLS}) for policy, pool in self.pools.items()],
            "snapshots": [(k, asdict(snapshot)) for k, snapshot in self.snapshots.items()],
            "drawn": [[*key, *draw] for key, draw in self._drawn.items()],
            "begun": list(self._begun.items()),
            "members": [[m.name, m.behavior] for m in self.house],
            "visitors": [asdict(visitor) for visitor in self.visitors],
            "leaving": [asdict(visitor) for visitor in self._leaving],
            "member_elo": [(policy, guest.elo) for policy, guest in self._guests.items()],
            "examined": list(self._examined.items()),
            "turns": self.turns.state_dict(),
            "snapshot_count": self.snapshot_count,
        })  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. Learners that it does not know
        begin with nothing. ValueError for other members."""
        if (members := [[m.name, m.behavior] for m in self.house]) != state["members"]:
            raise ValueError(f"palus.league.members: {members}; expected {state['members']}, as they were")
        self.visitors = [Member(**visitor) for visitor in state.get("visitors", ())]  # older runs knew none
        self._leaving = [Member(**visitor) for visitor in state.get("leaving", ())]
        self._welcome(self.members)
        for policy, elo in state["member_elo"]:
            self._guests[policy].elo = elo
        self.payoffs.load_state_dict(state["payoffs"])
        saved = dict(state["pools"])
        for policy, pool in self.pools.items():
            if policy not in saved:  # of a behavior that has just appeared
                continue
            for name in _OF_POOLS:
                setattr(pool, name, saved[policy][name])
            pool.ghosts = {int(side): ghost for side, ghost in pool.ghosts.items()}
            if self.literal and not pool.ghosts and pool.window:  # it counted otherwise until now
                pool.ghosts = dict.fromkeys(self.spec.sides, pool.window[-1])
        self.snapshots = {k: Snapshot(**snapshot) for k, snapshot in state["snapshots"]}
        self._drawn = {(a, b, c, d): (policy, at, n) for a, b, c, d, policy, at, n in state["drawn"]}
        self._begun = dict(state.get("begun", ()))  # not in those of older versions
        self._examined, self._odds = Counter(dict(state["examined"])), {}
        self.turns.load_state_dict(state["turns"])
        self.snapshot_count = int(state["snapshot_count"])


_OF_POOLS = ("elo", "versions", "window", "landmarks", "last_save", "last_swap", "ghosts", "origin")


OF_SLOTS = ("drawn", "begun")
"""What of a league's state differs between ranks: whom the slots of their matches met."""
