"""What every pair of policies has scored against each other, and whom a policy meets next: a pure function of that."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from palus.config.league import LeagueSettings
from palus.config.trainer import SelfPlay
from palus.files import write_text
from palus.league.roles import Candidate, by_role
from palus.league.solvers import Mixture, blended, meta_solved, normalized, prioritized
from palus.rollout.rollout import FROZEN


@dataclass
class PayoffTable:
    """(policy, opponent) -> points of the policy and matches; both directions are kept. Ids as in the rollouts.

    form: the same where a learner takes part, as of late (`fade`): a policy in training is another one by and by.
    """

    cells: dict[tuple[int, int], tuple[float, int]] = field(default_factory=dict)
    form: dict[tuple[int, int], tuple[float, float]] = field(default_factory=dict)

    def add(self, policy: int, opponent: int, points: float) -> None:
        """One match between two different policies. points: of the policy, in [0, 1]."""
        for pair, share in (((policy, opponent), points), ((opponent, policy), 1.0 - points)):
            total, matches = self.cells.get(pair, (0.0, 0))
            self.cells[pair] = total + share, matches + 1
            if min(pair) < FROZEN:
                points, weight = self.form.get(pair, (0.0, 0.0))
                self.form[pair] = points + share, weight + 1.0

    def fade(self, learner: int) -> None:
        """Halve the weight of what the form of a learner stands on, as it is due with each snapshot of it."""
        for pair, (points, weight) in self.form.items():
            if learner in pair:
                self.form[pair] = points / 2, weight / 2

    def forget(self, policies: Collection[int]) -> None:
        """Drop what some have scored: nobody meets them any more."""
        for table in (self.cells, self.form):
            for pair in [(a, b) for a, b in table if a in policies or b in policies]:
                del table[pair]

    def begin_anew(self, learner: int, donor: int | None) -> None:
        """A learner goes on from another's weights, and with its form, or untrained and without one."""
        self.form = {pair: told for pair, told in self.form.items() if learner not in pair}
        for (a, b), told in [*self.form.items()] if donor is not None else ():
            if donor in (a, b):
                self.form[learner if a == donor else a, learner if b == donor else b] = told

    def expected(self, policy: int, opponent: int) -> float:
        """The points to expect: of late where one of the two learns, pulled to 1/2 by one imaginary match; else the
        mean; 1/2 before they have met. So who has not been met for long is worth another look."""
        if min(policy, opponent) < FROZEN:
            points, weight = self.form.get((policy, opponent), (0.0, 0.0))
            return (points + 0.5) / (weight + 1.0)
        points, matches = self.cells.get((policy, opponent), (0.5, 1))
        return points / matches

    def write(self, path: Path) -> None:
        """For readers: one row [policy, opponent, points, matches] per pair. Raises StorageError."""
        rows = [[*pair, *cell] for pair, cell in sorted(self.cells.items())]
        write_text(path, json.dumps({"columns": ["policy", "opponent", "points", "matches"], "rows": rows}) + "\n")

    def state_dict(self) -> dict[str, Any]:
        """Everything."""
        return {name: [[*pair, *cell] for pair, cell in getattr(self, name).items()] for name in ("cells", "form")}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self.cells = {(int(a), int(b)): (float(points), int(matches)) for a, b, points, matches in state["cells"]}
        self.form = {(int(a), int(b)): (float(points), float(weight)) for a, b, points, weight in state["form"]}


@dataclass(frozen=True)
class Odds:
    """Whom a policy meets next. present: a policy in training on the other side, which is the policy itself in a
    symmetric game. latest: its probability. others: who is met else, by policy id. weights: theirs, they add up to 1;
    () for all alike."""

    present: int
    latest: float
    others: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


def opponent_odds(
    payoffs: PayoffTable,
    settings: LeagueSettings,
    ghosts: SelfPlay,
    me: Candidate,
    field: Sequence[Candidate],
    own: Sequence[Candidate] | None = None,
) -> Odds:
    """Whom a learner meets next.

    field: all who may sit on the other side, those in training included, older before newer. own: all of the learner's
    own behavior, where that is not the other side's too. In a league with exploiters the roles' rules stand above
    `settings.opponents`, which chooses what main learners play against the past. Of a population all that are in
    training are met alike. `members` stands above all: these alone are met, whatever they are worth; where there are
    none, the policy in training.
    """
    learners, past = [c for c in field if c.learns], [c for c in field if not c.learns]
    mains = [c for c in learners if c.role == "main"]
    latest = me if me in learners else mains[0]
    if settings.opponents == "members":
        members = tuple(c.policy for c in field if c.role == "member")
        return Odds(latest.policy, 0.0 if members else 1.0, members)
    shares = {c.policy: payoffs.expected(me.policy, c.policy) for c in field}
    if settings.strong_only > 0.0:
        past = [c for c in past if 1.0 - shares[c.policy] >= settings.strong_only] or past
    share, weights = 1.0, Mixture()
    if past and settings.opponents == "history":
        share, weights = _history(settings.delta, latest, past)
    elif past:
        share, weights = ghosts.play_against_latest_model_ratio, _of_past(payoffs, settings, ghosts, shares, past, own)
    if me.role != "main" or len(learners) > 1:
        if me.role != "main" or len(mains) < len(learners):
            weights = by_role(me.role, shares, mains, past, weights)
        else:
            weights = blended([(share, {c.policy: 1.0 / len(mains) for c in mains}), (1.0 - share, weights)])
        share = weights.pop(latest.policy, 0.0)
        weights = normalized(weights)
    return Odds(latest.policy, share, tuple(weights), () if len(set(weights.values())) < 2 else tuple(weights.values()))


def _of_past(
    payoffs: PayoffTable,
    settings: LeagueSettings,
    ghosts: SelfPlay,
    shares: Mapping[int, float],
    past: Sequence[Candidate],
    own: Sequence[Candidate] | None,
) -> Mixture:
    """The mixture of the past that is met where the policy in training is not."""
    if settings.opponents == "window":
        return normalized({c.policy: 1.0 for c in _newest(past, ghosts.window)})
    if settings.opponents in ("pfsp_hard", "pfsp_even"):
        return prioritized({c.policy: shares[c.policy] for c in past}, hard=settings.opponents == "pfsp_hard")
    rows = past if own is None else [c for c in own if not c.learns] or own
    table = np.array([[payoffs.expected(a.policy, b.policy) for b in past] for a in rows])
    weights = meta_solved(table, symmetric=own is None, entropy=settings.opponents == "psro_entropy")
    return {c.policy: float(weight) for c, weight in zip(past, weights, strict=True)}


def _newest(past: Sequence[Candidate], count: int) -> list[Candidate]:
    """The newest snapshots of each learner, and all members."""
    kept: list[Candidate] = []
    seen: Counter[int] = Counter()
    for candidate in reversed(past):
        seen[candidate.learner] += 1
        if candidate.role == "member" or seen[candidate.learner] <= count:
            kept.append(candidate)
    return kept[::-1]


def _history(delta: float, latest: Candidate, past: Sequence[Candidate]) -> tuple[float, Mixture]:
    """Evenly among the versions floor(delta n) to n, where version n is the policy in training.

    Members count as one version each. A learner of another run is met as often as one of this run, by its own versions
    and their n: runs of a league are not equally fast.
    """
    weights = {c.policy: 1.0 for c in past if c.role == "member"}
    here = [*(c for c in past if c.role != "member" and c.learner >= 0), latest]
    weights |= _versions(delta, latest.version, here)
    shown = (latest.version + 1 - int(delta * latest.version)) / len({c.learner for c in here})
    for learner in dict.fromkeys(c.learner for c in past if c.learner < 0):
        theirs = [c for c in past if c.learner == learner]
        found = normalized(_versions(delta, max(c.version for c in theirs), theirs))
        weights |= {policy: shown * chance for policy, chance in found.items()}
    weights = normalized(weights)
    share = weights.pop(latest.policy)
    return share, normalized(weights)


def _versions(delta: float, newest: int, own: Sequence[Candidate]) -> Mixture:
    """How many of the versions floor(delta newest) to newest each of some stands for.

    A version that is not kept any more is stood for by the nearest that is, so that a thinned history is met as evenly
    over time as a whole one.
    """
    first = int(delta * newest)
    standing = [c for c in own if c.version >= first]
    kept = np.unique([c.version for c in standing])
    asked = np.arange(first, newest + 1)
    count = Counter(kept[np.abs(asked[:, None] - kept).argmin(axis=1)].tolist())
    alike = Counter(c.version for c in standing)
    return {c.policy: count[c.version] / alike[c.version] for c in standing}


def is_change_due(settings: LeagueSettings, ghosts: SelfPlay, steps: int, matches: int) -> bool:
    """Whether a match that begins gets other opponents than the one before it in its place.

    steps: of opponents (ghost steps) since these were drawn, of which more than the interval are asked for, as in
    ML-Agents; matches: begun with them.
    """
    if settings.change_unit == "episode":
        return matches >= (settings.change_every or 1)
    return steps > (ghosts.swap_steps if settings.change_every is None else settings.change_every)
