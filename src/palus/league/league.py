"""Self-play: who sits where in every match, the past selves that learners meet, and what came of it.

The words are those of ML-Agents' ghost trainer, counted in its units: `save_steps` and `team_change` in trainer steps,
`swap_steps` in decisions of opponents. What differs (docs/differences.md): every match slot draws its own opponent and
keeps it until the match ends, team changes wait for the end of each match, and snapshots, ratings, payoffs and counters
survive a restart. Results are the game's verdicts (`FinishedMatch.points`), never rewards.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from palus.config.trainer import SelfPlay
from palus.errors import ConfigError
from palus.league.opponents import PayoffTable, ghost_odds
from palus.ratings.elo import update
from palus.rollout.rollout import FROZEN, FinishedMatch, Seat
from palus.types import GameSpec

LATEST = -1
"""In place of a snapshot's id: the policy in training."""


@dataclass(frozen=True)
class Contender:
    """A learner as the league sees it. self_play: None where it has no past. mirrors: learns from both sides of a match
    against itself; without, from the learning team alone, as ML-Agents does."""

    policy: int
    behavior: str
    self_play: SelfPlay | None = None
    mirrors: bool = False


@dataclass
class Pool:
    """The past of one behavior. elo: of the learner; ratings: of its snapshots, by id; ids are never given twice."""

    contender: Contender
    settings: SelfPlay
    elo: float
    ratings: dict[int, float] = field(default_factory=dict)
    window: list[int] = field(default_factory=list)
    last_save: int = 0


class League:
    """The league of one run. `cast` may be called from another thread than the rest.

    pools: by behavior. Raises ConfigError where a behavior's self-play finds no opponents in the game.
    """

    def __init__(self, spec: GameSpec, contenders: Sequence[Contender], seed: int, *, mix: bool = True) -> None:
        """mix: agents of one match may follow different learners of their behavior, else all follow the same."""
        self.spec, self.mix, self.random = spec, mix, np.random.default_rng(seed)
        self._learners: dict[str, list[Contender]] = {}
        for contender in contenders:
            self._learners.setdefault(contender.behavior, []).append(contender)
        self.pools: dict[str, Pool] = {}
        for contender in contenders:
            if contender.self_play is not None:
                self.pools[contender.behavior] = Pool(contender, contender.self_play, contender.self_play.initial_elo)
        if self.pools and len(spec.sides) < 2:
            raise ConfigError(f"self_play: {spec.env_id} has one side only; remove self_play, or train in another game")
        self.payoffs = PayoffTable()
        self.learning_side = self.last_team_change = self.ghost_steps = self.snapshot_count = 0
        self._drawn: dict[tuple[int, str], tuple[int, int]] = {}  # (slot, behavior) -> (opponent, ghost step)
        self._remembered: set[int] = set()
        self._lock = threading.RLock()

    def rows_per_match(self, contender: Contender) -> int:
        """The most agents of a match that learn for this learner."""
        agents = self.spec.agents_of(contender.behavior)
        if contender.self_play is None or contender.mirrors:
            return len(agents)
        return max(sum(self.spec.agents[i].team == side for i in agents) for side in self.spec.sides)

    def cast(self, slot: int) -> tuple[Seat, ...]:
        """Who decides for each agent of the match that begins in this slot."""
        with self._lock:
            learning = self.spec.sides[self.learning_side]
            opponents = {behavior: self._opponent(slot, pool) for behavior, pool in self.pools.items()}
            shared: dict[str, Contender] = {}
            seats = []
            for agent in self.spec.agents:
                pool = self.pools.get(agent.behavior)
                if pool is None:
                    learners = self._learners[agent.behavior]
                    if agent.behavior not in shared or (self.mix and len(learners) > 1):
                        shared[agent.behavior] = (
                            learners[int(self.random.random() * len(learners))] if len(learners) > 1 else learners[0]
                        )
                    seats.append(Seat(shared[agent.behavior].policy, True))
                elif agent.team == learning:
                    seats.append(Seat(pool.contender.policy, True))
                elif opponents[agent.behavior] == LATEST:
                    seats.append(Seat(pool.contender.policy, pool.contender.mirrors))
                else:
                    seats.append(Seat(FROZEN + opponents[agent.behavior], False))
            return tuple(seats)

    def _opponent(self, slot: int, pool: Pool) -> int:
        """The snapshot that a slot meets, LATEST for none. A draw stays for at least `swap_steps` ghost steps."""
        key = slot, pool.contender.behavior
        opponent, drawn_at = self._drawn.get(key, (LATEST, -1))
        if drawn_at < 0 or self.ghost_steps - drawn_at > pool.settings.swap_steps:
            latest, past = ghost_odds(self.payoffs, pool.settings, pool.window)
            opponent = LATEST if self.random.random() < latest else int(self.random.choice(past))
            self._drawn[key] = opponent, self.ghost_steps
        return opponent

    def rate(self, matches: Sequence[FinishedMatch]) -> None:
        """Elo (K = 1, zero-sum, once for each learning agent, as in ML-Agents) and payoffs of matches with a verdict.

        A match against the latest policy changes nothing.
        """
        with self._lock:
            for match in matches:
                if match.points:
                    self._rate(match)

    def _rate(self, match: FinishedMatch) -> None:
        points = dict(zip(self.spec.sides, match.points, strict=True))
        players = [
            (agent.team, agent.behavior, seat) for agent, seat in zip(self.spec.agents, match.seats, strict=True)
        ]
        policies = {side: {seat.policy for team, _, seat in players if team == side} for side in points}
        for a, of_a in policies.items():
            for b, of_b in policies.items():
                if a < b and len(of_a) == len(of_b) == 1 and of_a != of_b:
                    share = 0.5 if points[a] == points[b] else float(points[a] > points[b])
                    self.payoffs.add(min(of_a), min(of_b), share)
        for team, behavior, seat in players:
            past = [(b, s.policy - FROZEN) for t, b, s in players if t != team and s.policy >= FROZEN]
            if seat.learns and past and behavior in self.pools:
                pool, (of, snapshot) = self.pools[behavior], past[0]
                rival = self.pools[of]
                rating = rival.ratings.get(snapshot, rival.settings.initial_elo)
                pool.elo, rival.ratings[snapshot] = update(pool.elo, rating, points[team])

    def advance(
        self, steps: Mapping[int, int], ghost_steps: int, save: Callable[[Contender, int], object]
    ) -> list[int]:
        """After an update: count, change the learning team when due, save snapshots when due; returns their ids.

        steps: trainer steps of each learner so far; ghost_steps: decisions of opponents since the last call. save:
        writes a learner's present weights under the id of a snapshot. Raises what `save` raises; then nothing is added.
        """
        with self._lock:
            self.ghost_steps += ghost_steps
            total = sum(steps[pool.contender.policy] for pool in self.pools.values())
            changes = [pool.settings.team_change for pool in self.pools.values()]
            if changes and total - self.last_team_change > min(changes):
                self.learning_side = (self.learning_side + 1) % len(self.spec.sides)
                self.last_team_change = total
            saved = []
            for pool in self.pools.values():
                step = steps[pool.contender.policy]
                if pool.window and step - pool.last_save <= pool.settings.save_steps:
                    continue
                save(pool.contender, self.snapshot_count)
                saved.append(self.snapshot_count)
                self.snapshot_count, pool.last_save = self.snapshot_count + 1, step
                pool.window = [*pool.window, saved[-1]][-pool.settings.window :]
                pool.ratings[saved[-1]] = pool.elo
            return saved

    def needed(self, in_play: set[int]) -> set[int]:
        """Ids of snapshots that may be drawn, stay with a slot, or are in a running match. in_play: policy ids.

        Forgets the ratings of all others.
        """
        with self._lock:
            windows = [set(pool.window) for pool in self.pools.values()]
            staying = {opponent for opponent, _ in self._drawn.values()} - {LATEST}
            needed = {policy - FROZEN for policy in in_play if policy >= FROZEN}.union(staying, *windows)
            for pool in self.pools.values():
                pool.ratings = {k: v for k, v in pool.ratings.items() if k in needed}
            return needed

    def forgotten(self, in_play: set[int]) -> set[int]:
        """Ids of snapshots that have become unneeded since the last call."""
        needed = self.needed(in_play)
        forgotten, self._remembered = self._remembered - needed, needed
        return forgotten

    @property
    def elo(self) -> dict[int, float]:
        """Policy id -> rating, of learners with a past."""
        return {pool.contender.policy: pool.elo for pool in self.pools.values()}

    def state_dict(self) -> dict[str, Any]:
        """Everything but the snapshot files."""
        with self._lock:
            keys = ("elo", "last_save", "window", "ratings")
            pools = {name: {key: getattr(pool, key) for key in keys} for name, pool in self.pools.items()}
            drawn = [[slot, behavior, *draw] for (slot, behavior), draw in self._drawn.items()]
            state = {key: getattr(self, key) for key in _PLAIN} | {"pools": pools, "drawn": drawn}
            random, payoffs = self.random.bit_generator.state, self.payoffs.state_dict()
            return copy.deepcopy({"random": random, "payoffs": payoffs, **state})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken. KeyError when the learners were others."""
        with self._lock:
            self.random.bit_generator.state = state["random"]
            for name, pool in self.pools.items():
                saved = state["pools"][name]
                pool.elo, pool.last_save, pool.window = saved["elo"], saved["last_save"], list(saved["window"])
                pool.ratings = {int(snapshot): rating for snapshot, rating in saved["ratings"].items()}
            self._drawn = {(int(slot), behavior): (int(a), int(b)) for slot, behavior, a, b in state["drawn"]}
            self.payoffs.load_state_dict(state["payoffs"])
            for key in _PLAIN:
                setattr(self, key, int(state[key]))


_PLAIN = ("learning_side", "last_team_change", "ghost_steps", "snapshot_count")


def snapshot_path(folder: Path, snapshot_id: int) -> Path:
    """Where a run keeps that snapshot."""
    return folder / f"snapshot-{snapshot_id:05d}.npz"
