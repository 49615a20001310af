"""How faithful SoccerTwos is here: policies trained in Unity play it, and what they do is held against Unity's logs.

Entropy hardly depends on physics and strongly on observations; the length of episodes the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from palus.arena.models.players import ModelPlayer, Player
from palus.arena.referee.games import DEFAULT_GAME, layout_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.result import PairingSummary, summarize

ENTROPY_TOLERANCE = 0.04
LENGTH_RATIO = (0.75, 1.4)


@dataclass(frozen=True)
class UnityLog:
    """What Unity's training logged at a checkpoint.

    episode_length: decisions per episode, the lowest and highest mean seen around the checkpoint.
    entropy: nats, summed over the three branches, mean over decisions.
    """

    episode_length: tuple[float, float]
    entropy: float


UNITY_LOGS = {
    "random": UnityLog((775, 800), 3.296),
    "alidenewade-4.5M": UnityLog((687, 714), 3.093),
    "alidenewade-5.0M": UnityLog((199, 244), 2.905),
    "lmn8r-5.0M": UnityLog((55, 55), 1.763),
    "frakw-run3-4.7M": UnityLog((82, 82), 2.162),
    "crisbret33-55M": UnityLog((48.9, 48.9), 1.492),
    "crisbret33-75M": UnityLog((45.4, 45.4), 1.418),
    "crisbret33-91M": UnityLog((50.6, 50.6), 1.302),
    "crisbret33-140M": UnityLog((60.2, 60.2), 1.326),
}
"""By the stem of the policy's file."""


@dataclass(frozen=True)
class FidelityRow:
    """One policy: against random, and against itself beside Unity's log.

    episode_length: decisions per episode of self-play. length_ratio: to the nearest end of Unity's range, 1 inside.
    faithful: entropy and length within `ENTROPY_TOLERANCE` and `LENGTH_RATIO`; None where Unity's log is unknown.
    """

    name: str
    against_random: PairingSummary
    entropy: float
    episode_length: float
    unity: UnityLog | None
    entropy_error: float | None
    length_ratio: float | None
    faithful: bool | None


def measure(
    policies: Sequence[ModelPlayer],
    random: Player,
    pairs: int,
    self_play_games: int,
    seed: int,
    *,
    env_options: Mapping[str, object] | None = None,
    progress: Callable[[int], None] | None = None,
) -> list[FidelityRow]:
    """A row per policy. pairs: mirrored pairs against `random`. self_play_games: episodes against itself.

    env_options: rules that the specification leaves open, such as `kick_point`.
    """
    play = partial(play_pairs, env_options=env_options, progress=progress)
    rows = []
    for policy in policies:
        against_random = summarize(play(policy, random, pairs, seed))
        alone = summarize(play(policy, policy, self_play_games, seed + 1, legs=(1,)))
        entropy = alone.entropy_a if alone.entropy_a is not None else float("nan")
        length = alone.mean_steps / layout_of(DEFAULT_GAME).ticks_per_decision
        unity, error, ratio, faithful = UNITY_LOGS.get(policy.name), None, None, None
        if unity is not None:
            low, high = unity.episode_length
            error, ratio = entropy - unity.entropy, length / min(max(length, low), high)
            faithful = abs(error) <= ENTROPY_TOLERANCE and LENGTH_RATIO[0] <= ratio <= LENGTH_RATIO[1]
        rows.append(FidelityRow(policy.name, against_random, entropy, length, unity, error, ratio, faithful))
    return rows


def cross_table(
    players: Sequence[Player], pairs: int, seed: int, progress: Callable[[int], None] | None = None
) -> dict[tuple[str, str], PairingSummary]:
    """Every player against every later one: (name, name) -> summary seen from the first."""
    return {
        (a.name, b.name): summarize(play_pairs(a, b, pairs, seed, progress=progress))
        for i, a in enumerate(players)
        for b in players[i + 1 :]
    }
