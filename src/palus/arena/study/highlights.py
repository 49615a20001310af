"""Picking the matches that are worth watching out of recorded ones. What makes one so, games say themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from palus.arena.models.players import Player
from palus.arena.referee.games import DEFAULT_GAME, game_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.envs.recording import Recording


def beauty_of(recording: Recording, player: str) -> float:
    """How much a match deserves to be seen as one that `player` won; 0 when it did not."""
    winner = {"blue": 0, "purple": 1}.get(recording.result)
    if winner is None or recording.names[winner] != player:
        return 0.0
    return game_of(recording.env_id).beauty(recording)


def best_wins(recordings: Iterable[Recording], player: str, count: int) -> list[Recording]:
    """The `count` most beautiful wins of a player, best first; fewer when there are fewer."""
    rated = [(beauty_of(r, player), i, r) for i, r in enumerate(recordings)]
    return [r for beauty, _, r in sorted(rated, key=lambda x: (-x[0], x[1])) if beauty > 0][:count]


def record_wins(
    player: Player, opponents: Sequence[Player], pairs: int, seed: int, per_opponent: int, env_id: str = DEFAULT_GAME
) -> list[Recording]:
    """Play `pairs` mirrored pairs against each opponent and keep the best wins against each."""
    kept: list[Recording] = []
    for opponent in opponents:
        recorder = Recorder()
        play_pairs(player, opponent, pairs, seed, env_id=env_id, recorder=recorder)
        kept += best_wins(recorder.recordings.values(), player.name, per_opponent)
    return kept
