"""Batched games one match at a time; a module, since workers import it."""

from __future__ import annotations

from palus.envs import make
from palus.envs.one_match import OneMatch


def single(name: str) -> OneMatch:
    return OneMatch(make(name, 1))
