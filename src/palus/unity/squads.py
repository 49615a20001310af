"""Who met whom in a game that talks, and with which result.

Nothing in ML-Agents' protocol says it. A squad is a group, or an agent without one. Squads whose last agents end in one
message, as many of every team, have played matches: those of each team in the order of their agents' ids. Where several
matches end in one message, that may move points between them, but adds none. Who is paid more in that message has won,
as in ML-Agents' rating.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palus.envs.game import points_of

Squad = tuple[int, int]
"""Team, and group or -1 - agent."""


def squad_of(team: int, agent: int, group: int) -> Squad:
    """Whom an agent belongs to. group: 0 for none."""
    return team, group if group > 0 else -1 - agent


@dataclass
class Ended:
    """An agent whose episode is over. paid: with its last message; decisions: of the episode; fresh: it began with
    those who play now."""

    squad: Squad
    agent: int
    paid: float = 0.0
    decisions: int = 0
    fresh: bool = True


@dataclass(frozen=True)
class Meeting:
    """A match that is over. points: by side; decisions: of whoever had most; fresh: of all its agents."""

    points: tuple[float, ...]
    decisions: int
    fresh: bool


def meetings(ended: Sequence[Ended], there: Container[Squad], sides: Sequence[int]) -> list[Meeting] | None:
    """The matches that are over with a message. there: squads of agents that go on; sides: all teams, in order.

    None where squads ended, and not as many of every team.
    """
    squads: dict[Squad, list[Ended]] = {}
    for one in sorted(ended, key=lambda one: one.agent):
        if one.squad not in there:
            squads.setdefault(one.squad, []).append(one)
    teams: Mapping[int, list[list[Ended]]] = {
        side: [members for (team, _), members in squads.items() if team == side] for side in sides
    }
    if len({len(own) for own in teams.values()}) != 1:
        return None
    found = []
    for rivals in zip(*teams.values(), strict=True):
        everybody = [one for members in rivals for one in members]
        points = points_of([float(np.mean([one.paid for one in members])) for members in rivals])
        found.append(Meeting(points, max(one.decisions for one in everybody), all(one.fresh for one in everybody)))
    return found
