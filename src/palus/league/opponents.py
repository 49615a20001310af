"""Whom a policy meets next: pure functions of the payoff table and the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palus.config.trainer import SelfPlay
from palus.league.payoffs import PayoffTable


@dataclass(frozen=True)
class Odds:
    """latest: probability of the policy in training itself; else one of `past`, ids of snapshots, by `shares` (None:
    all alike)."""

    latest: float
    past: tuple[int, ...]
    shares: tuple[float, ...] | None = None


def ghost_odds(payoffs: PayoffTable, settings: SelfPlay, window: Sequence[int]) -> Odds:
    """ML-Agents' ghosts: the latest with `play_against_latest_model_ratio`, else uniform over the window."""
    return Odds(settings.play_against_latest_model_ratio if window else 1.0, tuple(window))
