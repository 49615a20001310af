"""Who is met like a past self and not trained here: scripted players, files, snapshots of other runs."""

from __future__ import annotations

from dataclasses import dataclass

from palus.config.league import Role


@dataclass(frozen=True)
class Member:
    """Of one behavior: whoever plays several is one for each. policy: MEMBERS + n; name: as the run file has it.

    Of a snapshot of another run, called `run/number`: learner, below 0, stands for whom it is a copy of; version: how
    many snapshots that one had made before; role: its.
    """

    policy: int
    name: str
    behavior: str
    learner: int | None = None
    version: int = 0
    role: Role = "member"
