"""A mirrored pair of matches that step alone, between strangers' models; engines stay out of their reach.

Nothing is left when this process is killed: engines and locked processes end with it, and videos are made in memory.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import threading
from collections.abc import Iterator

from palus.arena.locked.remote import LockedModel, RemotePlayer, true_cause
from palus.arena.locked.sandbox import Sandbox
from palus.arena.locked.unit import MatchReport, Unit, UnitOutcome, make_outcome
from palus.arena.models.entity import Entity
from palus.arena.models.players import ModelPlayer
from palus.arena.models.policies import RandomPlayer, played_behaviors
from palus.arena.models.rules import Limits
from palus.arena.referee.duel import make_single, play_duel
from palus.arena.referee.games import playable_game
from palus.arena.referee.sampling import pair_seeds
from palus.envs.game import Game
from palus.types import GameSpec
from palus.video import VideoEncoder

VIDEO_BYTES = 2 << 20
"""A match's video becomes coarser rather than larger; only players that spin all the time fill it."""
PATIENCE_S, PATIENCE = 300.0, 10.0
"""A match of the engine may take so long, and so many times its own length, before it counts as lost."""


@functools.cache
def single_spec(env: str) -> GameSpec:
    """What players of a game see and do. Raises EnvError when it is not installed."""
    game = make_single(env)
    game.close()
    return game.spec


def play_duel_unit(unit: Unit, limits: Limits, sandbox: Sandbox) -> UnitOutcome:
    """`palus.arena.locked.play.play_unit` for duels: no action logs, and videos for replays."""
    spec, length_s = single_spec(unit.env), playable_game(unit.env).length_s(unit.params)
    match_seed = int(pair_seeds(unit.seed, 1)[0])
    with contextlib.ExitStack() as stack:
        players: list[ModelPlayer] = []
        for contender in unit.contenders:
            players.append(_open(contender, spec, limits, sandbox))
            if isinstance(players[-1], RemotePlayer):
                stack.callback(players[-1].locked.close)
        game = make_single(unit.env, unit.params)
        stack.callback(game.close)
        first, second = players
        legs = (
            _play(unit, game, (first, second), match_seed, 1, length_s),
            _play(unit, game, (second, first), match_seed, 2, length_s),
        )
    return make_outcome(legs, (_locked(first), _locked(second)))


def _open(contender: Entity, spec: GameSpec, limits: Limits, sandbox: Sandbox) -> ModelPlayer:
    if contender.house is None:
        return RemotePlayer(contender, played_behaviors(spec)[0], limits, sandbox)
    player = RandomPlayer(played_behaviors(spec)[0])
    player.name, player.sha256 = contender.repo, contender.sha256
    return player


def _locked(player: ModelPlayer) -> LockedModel | None:
    return player.locked if isinstance(player, RemotePlayer) else None


def _play(
    unit: Unit, game: Game, players: tuple[ModelPlayer, ModelPlayer], seed: int, leg: int, length_s: float
) -> MatchReport:
    file = io.BytesIO()
    decisions_per_s = game.spec.fps / game.spec.frameskip
    with (
        VideoEncoder(file, decisions_per_s, max_bytes_per_s=int(VIDEO_BYTES / length_s)) as video,
        _watched(game, PATIENCE_S + PATIENCE * length_s),
    ):
        result = play_duel(game, players, seed, leg, mode=unit.mode, watch=video.write)
    verdict, cause = true_cause(result, [_locked(player) for player in players])
    seen = file.getvalue() if video.frames else b""
    return MatchReport(dataclasses.replace(result, result=verdict, cause=cause), seen, b"")


@contextlib.contextmanager
def _watched(game: Game, limit_s: float) -> Iterator[None]:
    """End the engines of a match that takes too long: it is void then, instead of taking for ever."""
    kill = getattr(game, "kill", None)
    if kill is None:
        yield
        return
    timer = threading.Timer(limit_s, kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
