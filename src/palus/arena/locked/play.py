"""One mirrored pair between strangers' models, from bytes to results.

The referee is `referee.match` (or `referee.duel`, by `locked.duels`), in this process; it sees no
model, only the probabilities that each side's locked process answers.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence

from palus import envs
from palus.arena.locked.duels import play_duel_unit
from palus.arena.locked.remote import Checks, LockedModel, RemotePlayer, true_cause
from palus.arena.locked.sandbox import Sandbox, shared_sandbox
from palus.arena.locked.unit import MatchReport, Unit, UnitOutcome, make_outcome
from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, Player, Team, load_player
from palus.arena.models.policies import played_behaviors
from palus.arena.models.rules import Limits, limits_of
from palus.arena.referee.actions import encode_actions, replay_actions, state_hash
from palus.arena.referee.games import playable_game
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import encode_replay
from palus.arena.referee.result import MatchResult
from palus.types import GameSpec

CHECK_SHARE = 1 / 16
"""Of a rated match's decisions at which a model is checked: some ten times a match, for a sixteenth of its time."""


def play_unit(
    unit: Unit, limits: Limits | None = None, *, sandbox: Sandbox | None = None, check_share: float = CHECK_SHARE
) -> UnitOutcome:
    """Play a mirrored pair, every model in a locked process of its own.

    limits: of each process; by default those of the game.   sandbox: which opens the processes; by default the one of
    this Python process.   check_share: of the decisions at which models are checked, see `RemotePlayer`.
    Models that fail lose by forfeit when the other side is healthy; the pair is void when both fail or we do.
    Where matches repeat, the same unit gives the same results, with or without processes: they equal `play_pairs` with
    one pair. Raises ArenaError for a game or a built-in player that there is not, EnvError when the game is not
    installed here.
    """
    game = playable_game(unit.env)
    limits, sandbox = limits or limits_of(game), sandbox or shared_sandbox()
    for contender in unit.contenders:
        if contender.house is not None:
            game.check_house(contender.house)
    if game.filmed:
        return play_duel_unit(unit, limits, sandbox)
    spec = envs.make(unit.env, 1).spec
    recorder = Recorder()
    with contextlib.ExitStack() as stack:
        players: list[Player] = []
        for side, contender in enumerate(unit.contenders):
            checks = Checks(check_share, (unit.seed, side))
            players.append(open_player(contender, spec, limits, sandbox, checks))
            if isinstance(players[-1], RemotePlayer):
                stack.callback(players[-1].locked.close)
        results = play_pairs(players[0], players[1], 1, unit.seed, mode=unit.mode, env_id=unit.env, recorder=recorder)
    first, second = (player.locked if isinstance(player, RemotePlayer) else None for player in players)
    legs = (
        _finish(unit, 0, (first, second), results[0], recorder),
        _finish(unit, 1, (second, first), results[1], recorder),
    )
    return make_outcome(legs, (first, second))


def open_player(
    contender: Entity, spec: GameSpec, limits: Limits, sandbox: Sandbox, checks: Checks | None = None
) -> Player:
    """The player that a contender means: a built-in one, or a `RemotePlayer`, which its caller closes."""
    if contender.house is None:
        return RemotePlayer(contender, played_behaviors(spec)[0], limits, sandbox, checks)
    player = load_player(contender.house, spec)
    if isinstance(player, Bot | Team):
        return dataclasses.replace(player, name=contender.repo, sha256=contender.sha256)
    player.name, player.sha256 = contender.repo, contender.sha256
    return player


def _finish(
    unit: Unit,
    number: int,
    locked: Sequence[LockedModel | None],
    result: MatchResult,
    recorder: Recorder,
) -> MatchReport:
    """One match, its result with the true cause and the final state."""
    verdict, cause = true_cause(result, locked)
    recording = recorder.recordings.get(number)
    if recording is None:  # nothing was decided
        replay, actions = b"", b""
        state = replay_actions(unit.env, result.seed, actions)
    else:
        replay, actions = encode_replay([recording]), encode_actions(recording.actions)
        state = state_hash(recording.frames)
    return MatchReport(dataclasses.replace(result, result=verdict, cause=cause, final_state=state), replay, actions)
