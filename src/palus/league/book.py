"""The book of a league: who there was and from whom they came, what each two have scored, how strong each is.

A run writes it to `league/league.json` for readers. It continues from its checkpoint, which holds the book too.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from palus.config.league import Role
from palus.league.league import League
from palus.league.results import policies_of, share
from palus.league.strength import Cells, Strength, add, credited, kept, scored, strengths
from palus.ratings.interval import Z_95
from palus.ratings.online import Skill, rated
from palus.rollout.rollout import FROZEN, MEMBERS, FinishedMatch

FILE = Path("league") / "league.json"
"""Its place in a run's folder."""
FORMAT = 1
BASELINE = 2 * MEMBERS
"""Policy ids: BASELINE + n is the n-th fixed opponent of evaluation matches."""
LATEST = "latest"
REMEMBERED = 256
"""Snapshots of a learner that the book still tells of when they are gone, spread over the run (`strength.kept`)."""


@dataclass
class Record:
    """One snapshot there was. parent: the learner that it was; role: its; origin: the snapshot before it in its line,
    None where that began untrained; step: trainer steps; elo: as last known."""

    behavior: str
    parent: int
    role: Role
    origin: int | None
    step: int
    elo: float


class Book:
    """Watches a league.

    training, evaluation: what was scored in matches that somebody learned from, and in others. The matches of a learner
    are its own until its next snapshot, and that snapshot's from then on. records: by policy id, in the order of the
    ids. names: of the fixed opponents of evaluation matches, by policy id. ratings: as of the last assessment. mix
    (behavior -> shares of those whom its learners met): of the last one before which they met somebody.
    """

    def __init__(self, league: League) -> None:
        self.league = league
        self.training: dict[tuple[int, int], tuple[float, int]] = {}
        self.evaluation: dict[tuple[int, int], tuple[float, int]] = {}
        self.records: dict[int, Record] = {}
        self.names: dict[int, str] = {}
        self.ratings: dict[int, Strength] = {}
        self._skills: dict[int, Skill] = {}
        self.mix: dict[str, dict[str, float]] = {}
        self._met: dict[str, Counter[str]] = {}  # behavior -> who was met since the last assessment

    def rate(self, matches: Sequence[FinishedMatch]) -> None:
        """Enter matches, one result each: the game's verdict, also of a match that some left early or that its time
        limit ended; none without a verdict.

        Sides of the same policies count as one player with the mean of their points. Of more than two players each two
        have a result in the table, and openskill rates all of them at once. Teams of several policies are rated by
        openskill alone: the table holds what one policy scored against one other.
        """
        for match in matches if self.league.pools else ():
            points = dict(zip(self.league.spec.sides, match.points, strict=False))
            players: dict[frozenset[int], list[float]] = {}
            for side, policies in policies_of(match, self.league.spec).items():
                players.setdefault(frozenset(map(self.league.person, policies)), []).append(points.get(side, 0.0))
            self._note_opponents(players)
            everybody = [policy for player in players for policy in player]
            if not match.points or len(players) < 2 or len(set(everybody)) < len(everybody):
                continue
            results = [(player, sum(told) / len(told)) for player, told in players.items()]
            table = self.training if any(seat.learns for seat in match.seats) else self.evaluation
            for (a, of_a), (b, of_b) in combinations(results, 2):
                if len(a) == len(b) == 1:
                    add(table, min(a), min(b), share(of_a, of_b))
            teams = [sorted(player) for player, _ in results]
            before = [[self._skills.get(policy, Skill()) for policy in team] for team in teams]
            for team, skills in zip(teams, rated(before, [of_player for _, of_player in results]), strict=True):
                self._skills.update(zip(team, skills, strict=True))

    def _note_opponents(self, players: Mapping[frozenset[int], Sequence[float]]) -> None:
        """Count whom the learners of each behavior met."""
        learners = self.league.pools
        for player, sides in players.items():
            for policy in player:
                if policy not in learners:
                    continue
                met = self._met.setdefault(learners[policy].contender.behavior, Counter())
                for other in (other for rival in players if rival is not player for other in rival):
                    met[LATEST if other in learners else str(other)] += 1
                if len(sides) > 1:
                    met[LATEST] += 1

    def evaluated(self, policy: int, name: str, points: float, matches: int) -> None:
        """Enter matches of a learner that nobody learned from. name: of the fixed opponent; points: of the learner."""
        known = {known: opponent for opponent, known in self.names.items()}
        opponent = known.get(name, BASELINE + len(known))
        self.names[opponent] = name
        add(self.evaluation, policy, opponent, points, matches)

    def follow(self) -> None:
        """Enter the snapshots that the league has taken since the last call."""
        for number, snapshot in sorted(self.league.snapshots.items()):
            policy, parent = FROZEN + number, snapshot.parent
            if snapshot.present:
                continue
            if policy not in self.records:
                self.training = credited(self.training, parent, policy)
                self.evaluation = credited(self.evaluation, parent, policy)
                self._skills[policy] = self._skills.get(parent, Skill())
                pool = self.league.pools[parent]
                self.records[policy] = Record(
                    snapshot.behavior, parent, pool.contender.role, snapshot.origin, snapshot.step, snapshot.elo
                )
                if pool.origin != policy and policy == FROZEN + pool.window[-1]:  # its learner has gone on from others
                    self._skills[parent] = self._skills.get(pool.origin or -1, Skill())
            self.records[policy].elo = snapshot.elo

    @property
    def _same(self) -> dict[int, int]:
        """Learner -> the snapshot that its weights come from, by policy ids; without those that began untrained."""
        return {policy: pool.origin for policy, pool in self.league.pools.items() if pool.origin is not None}

    def assess(self) -> None:
        """Rate the present field, learners, snapshots that are still there and fixed opponents; say whom they met.

        At every summary: the curve depends on what was seen at each (`strengths`), and on nothing else.
        """
        self._forget()
        there = [policy for policy in self.records if policy - FROZEN in self.league.snapshots]
        members = [member.policy for member in self.league.members]
        field = [*self.league.pools, *there, *members, *self.names]
        if self.league.pools:
            start = next(iter(self.league.pools.values())).settings.initial_elo
            cells = dict(self.training)
            for (a, b), (points, matches) in self.evaluation.items():
                add(cells, a, b, points, matches)
            same = self._same
            known = {*field} - (self.league.pools.keys() - same.keys())  # who has begun anew is another player
            before = {policy: rating.mean for policy, rating in self.ratings.items() if policy in known}
            self.ratings.update(strengths(cells, field, same, before, start))
        self._skills = {policy: self._skills[policy] for policy in field if policy in self._skills}
        self.mix |= {
            behavior: {name: count / met.total() for name, count in sorted(met.items())}
            for behavior, met in self._met.items()
        }
        self._met = {}

    def _forget(self) -> None:
        """Drop what there is of all but so many of the snapshots that are gone."""
        gone: dict[int, list[int]] = {}
        for policy, record in self.records.items():
            if policy - FROZEN not in self.league.snapshots:
                gone.setdefault(record.parent, []).append(policy)
        dropped: set[int] = set()
        for own in gone.values():
            stay = kept([self.records[policy].step for policy in own], 0, REMEMBERED)
            dropped |= {*own} - {own[k] for k in stay}
        met = {policy for cells in (self.training, self.evaluation) for pair in cells for policy in pair}
        here = {member.policy for member in self.league.members}
        dropped |= {policy for policy in met - here if MEMBERS <= policy < BASELINE}  # visitors who left
        for table in (self.records, self.ratings) if dropped else ():
            for policy in dropped & table.keys():
                del table[policy]
        for cells in (self.training, self.evaluation) if dropped else ():
            for pair in [pair for pair in cells if not dropped.isdisjoint(pair)]:
                del cells[pair]

    def values(self, policy: int) -> dict[str, float]:
        """TensorBoard tag -> number of a learner, after `assess`; nothing where it has no past."""
        if policy not in self.ratings or policy not in self.league.pools:
            return {}
        found: dict[str, float] = {}
        for tag, rating in (("Rating", self.ratings[policy]), ("Skill", self._skill(policy))):
            found |= {f"Self-play/{tag}": rating.mean}
            found |= {f"Self-play/{tag} Low": rating.low, f"Self-play/{tag} High": rating.high}
        window = [FROZEN + number for number in self.league.pools[policy].window]
        for name, opponents in (("Latest", window[-1:]), ("Window", window)):
            points, matches = self._share(policy, opponents)
            found |= {f"Self-play/Win Rate/{name}": points / matches} if matches else {}
        return found

    def _share(self, policy: int, opponents: Sequence[int]) -> tuple[float, int]:
        """Points and matches against some snapshots, since the learner's last snapshot but one: so there are some."""
        last, pairs = self._same.get(policy), [(policy, other) for other in opponents]
        pairs += [(last, other) for other in opponents if last is not None and other < last]
        told = [scored(self.training, *pair) for pair in pairs]
        return sum(points for points, _ in told), sum(matches for _, matches in told)

    def _skill(self, policy: int) -> Strength:
        """Openskill's belief with a 95 % interval, in its own unit."""
        skill = self._skills.get(policy, Skill())
        return Strength(skill.mu, skill.mu - Z_95 * skill.sigma, skill.mu + Z_95 * skill.sigma)

    def to_json(self, steps: Mapping[int, int]) -> str:
        """What `league.json` holds. steps: trainer steps by policy id."""
        league, there = self.league, self.league.snapshots
        learners = [
            {
                "policy": policy, "behavior": pool.contender.behavior, "role": pool.contender.role,
                "origin": pool.origin, "step": steps[policy], "elo": pool.elo,
                "rating": self._told(policy), "skill": self._skill(policy)._asdict(),
            }
            for policy, pool in league.pools.items()
        ]  # fmt: skip
        landmarks = {FROZEN + number for pool in league.pools.values() for number in pool.landmarks}
        snapshots = [
            {
                "id": policy, **asdict(record), "rating": self._told(policy),
                "landmark": policy in landmarks, "kept": policy - FROZEN in there,
            }
            for policy, record in self.records.items()
        ]  # fmt: skip
        members = [{"id": m.policy, "name": m.name, "behavior": m.behavior} for m in league.members]
        members += [{"id": policy, "name": name, "behavior": ""} for policy, name in self.names.items()]
        book = {
            "format": FORMAT, "learners": learners, "snapshots": snapshots, "members": members,
            "training": _rows(self.training), "evaluation": _rows(self.evaluation), "mix": self.mix,
        }  # fmt: skip
        return json.dumps(book, allow_nan=False) + "\n"

    def _told(self, policy: int) -> dict[str, float] | None:
        """Its last rating; None for a snapshot that was not there at a summary."""
        return self.ratings[policy]._asdict() if policy in self.ratings else None

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        return {
            "training": _rows(self.training),
            "evaluation": _rows(self.evaluation),
            "records": [(policy, asdict(record)) for policy, record in self.records.items()],
            "names": list(self.names.items()),
            "ratings": [(policy, list(rating)) for policy, rating in self.ratings.items()],
            "skills": [(policy, *skill) for policy, skill in self._skills.items()],
            "mix": self.mix,
            "met": {behavior: dict(met) for behavior, met in self._met.items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.training, self.evaluation = _cells(state["training"]), _cells(state["evaluation"])
        self.records = {policy: Record(**record) for policy, record in state["records"]}
        self.names = dict(state["names"])
        self.ratings = {policy: Strength(*rating) for policy, rating in state["ratings"]}
        self._skills = {policy: Skill(mu, sigma) for policy, mu, sigma in state["skills"]}
        self.mix = {behavior: dict(shares) for behavior, shares in state["mix"].items()}
        self._met = {behavior: Counter(met) for behavior, met in state["met"].items()}


def _rows(cells: Cells) -> list[list[Any]]:
    """[policy, opponent, points of the policy, matches] in both directions."""
    both = {(a, b): scored(cells, a, b) for pair in cells for a, b in (pair, pair[::-1])}
    return [[*pair, *cell] for pair, cell in sorted(both.items())]


def _cells(rows: Sequence[Sequence[Any]]) -> dict[tuple[int, int], tuple[float, int]]:
    return {(int(a), int(b)): (float(points), int(matches)) for a, b, points, matches in rows if a < b}
