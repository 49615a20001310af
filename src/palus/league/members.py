"""Who is met like a past self and was never trained here: the house's scripted players, files of others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Member:
    """Of one behavior: whoever plays several is one for each. policy: MEMBERS + n; name: as the run file has it."""

    policy: int
    name: str
    behavior: str
