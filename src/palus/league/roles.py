"""What learners of one league are for: to win against everybody, or to find weaknesses that others then learn from.

Source of all rules: Vinyals et al., Grandmaster level in StarCraft II using multi-agent reinforcement learning, 2019,
Methods, and the pseudocode with it. What differs: one limit, `LOST`, says whom a main learner can no longer beat;
`save_steps` stands for 2e9 of its steps; exploiters begin anew untrained, where its own began from imitation of people;
all of them are frozen after one `save_steps` at the earliest and two at the latest, as in the pseudocode, where the
text has league exploiters give up after 2e9 steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from palus.config.league import Role
from palus.league.solvers import Mixture, blended, prioritized
from palus.rollout.rollout import FROZEN

SELF_PLAY, PFSP = 0.35, 0.5
"""Shares of a main learner's matches; the rest is for those that it can no longer beat."""
LOST = 0.3
"""Whom a main learner takes less than this share from, it meets again."""
TOO_STRONG = 0.2
"""A main learner that leaves an exploiter less than this share is met through its past half of the time."""

BEATEN = 0.7
"""An exploiter that takes more than this share from each of those that it is after has found what there is."""
PATIENCE = 2
"""Times `save_steps` after which it gives up and is frozen too."""
RESET = {"main_exploiter": 1.0, "league_exploiter": 0.25}
"""How often an exploiter that was frozen begins anew."""


@dataclass(frozen=True)
class Candidate:
    """Somebody who can be met. policy: id as in the rollouts; learner: of whom it is a copy, itself if it is none;
    version: how many snapshots its learner had made before; role: of its learner."""

    policy: int
    learner: int
    version: int = 0
    role: Role = "main"

    @property
    def learns(self) -> bool:
        """Whether it is in training."""
        return self.policy < FROZEN


def by_role(
    role: Role, shares: Mapping[int, float], mains: Sequence[Candidate], past: Sequence[Candidate], chosen: Mixture
) -> Mixture:
    """Whom a learner of that role meets.

    A main learner: `SELF_PLAY` against main learners, `PFSP` against the past, the rest against past main learners and
    main exploiters that it loses to, or self-play where there are none. A main exploiter: main learners, or the past
    of one that is too strong. A league exploiter: the whole past.

    shares: policy id -> points that it expects; of mains, those in training, and of the past. chosen: the mixture of
    the past that a main learner meets, empty where there is no past yet.
    """
    itself = {c.policy: 1.0 / len(mains) for c in mains}
    if role == "main_exploiter":
        parts = [part for main in mains for part in _exploiting(shares, main, past, 1.0 / len(mains))]
    elif role == "league_exploiter":
        parts = [(1.0, prioritized({c.policy: shares[c.policy] for c in past}, hard=True) if past else itself)]
    else:
        again = {c.policy: shares[c.policy] for c in past if c.role in ("main", "main_exploiter")}
        again = {policy: p for policy, p in again.items() if p < LOST}
        rest = prioritized(again, hard=True) if again else itself
        parts = [(SELF_PLAY, itself), (PFSP, chosen or itself), (1.0 - SELF_PLAY - PFSP, rest)]
    return blended(parts)


def is_frozen(role: Role, steps: int, save_steps: int, shares: Mapping[int, float], field: Sequence[Candidate]) -> bool:
    """Whether an exploiter is due to be frozen. steps: since it was last; shares: as in `by_role`; field: all whom it
    may meet. A main exploiter is after main learners, a league exploiter after the whole past."""
    if role == "main_exploiter":
        targets = [c.policy for c in field if c.learns and c.role == "main"]
    else:
        targets = [c.policy for c in field if not c.learns]
    beaten = bool(targets) and min(shares[policy] for policy in targets) > BEATEN
    return steps > save_steps * (1 if beaten else PATIENCE)


def _exploiting(
    shares: Mapping[int, float], main: Candidate, past: Sequence[Candidate], share: float
) -> list[tuple[float, Mixture]]:
    versions = {c.policy: shares[c.policy] for c in past if c.learner == main.learner}
    if not versions or shares[main.policy] >= TOO_STRONG:
        return [(share, {main.policy: 1.0})]
    return [(share / 2, {main.policy: 1.0}), (share / 2, prioritized(versions, hard=False))]
