"""Whether a report can be of the job that it answers: everything that can be told without playing.

What passes here may still be a lie; `palus.arena.ladder.audit` plays a sample again. Pure: nothing is read or stored.
"""

from __future__ import annotations

from collections.abc import Sequence

from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.models.forms import MAX_BLOB_BYTES
from palus.arena.referee.actions import decode_actions
from palus.arena.referee.games import game_of, layout_of
from palus.arena.referee.result import PLAYED, MatchResult, Side, match_ids, verdict_events, verdict_of
from palus.arena.referee.sampling import pair_seeds
from palus.envs.arena_game import ArenaGame
from palus.envs.recording import I16
from palus.errors import FalseReportError, ReplayError

FAILURES = ("non_finite", "timeout", "crash", "invalid")
"""Causes of the others. Our own failures are not reported, their jobs are given back."""


def check_unit(order: Unit, unit: UnitReport) -> None:
    """Raises FalseReportError when this cannot be what was ordered."""
    if len(unit.matches) != len(order.legs):
        raise FalseReportError(f"the report has {len(unit.matches)} matches; the job has {len(order.legs)}")
    if (unit.env.id, unit.env.params) != (order.env, dict(order.params)):
        raise FalseReportError(
            f"the report is of {unit.env.id} set to {unit.env.params}; ordered was {order.env}, {dict(order.params)}"
        )
    for leg, match in zip(order.legs, unit.matches, strict=True):
        _check_players(order, leg, match.result)
        _check_fault(order, leg, match.result)
        _check_course(game_of(order.env), match)
        _check_bytes(game_of(order.env), match)


def _check_players(order: Unit, leg: int, result: MatchResult) -> None:
    seed = int(pair_seeds(order.seed, 1)[0])
    if (result.env, result.seed, result.leg) != (order.env, seed, leg):
        raise FalseReportError(
            f"the report is of {result.env}, seed {result.seed}, leg {result.leg}; "
            f"ordered were {order.env}, seed {seed}, leg {leg}"
        )
    ordered = order.sides(leg)
    if [_who(side) for side in result.sides] != [_who(side) for side in ordered]:
        raise FalseReportError(f"the report says that {_text(result.sides)} played; ordered was {_text(ordered)}")
    if (result.id, result.unit_id) != match_ids(order.env, seed, leg, ordered):
        raise FalseReportError(f"the report's match is called {result.id}, which is not the id of what was ordered")


def _check_fault(order: Unit, leg: int, result: MatchResult) -> None:
    """Whether who failed can fail: players of the house have no process, they play in the referee's own."""
    sides = order.sides(leg)
    at_fault = {"forfeit1": sides[:1], "forfeit2": sides[1:], "void": sides}.get(result.result, ())
    for side in at_fault:
        if side.entity.house is not None:
            raise FalseReportError(
                f"the report says {result.result} ({result.cause}); {side.entity.repo} is a player of the house, which "
                "answers in the referee's own process and cannot fail"
            )


def _check_course(game: ArenaGame, report: MatchReport) -> None:
    """Whether verdict, cause, score, length and events go together."""
    result = report.result
    ending = f"{result.result} ({result.cause}) by {result.score[0]}:{result.score[1]} after {result.duration_ticks}"
    if result.duration_ticks > game.max_ticks or sum(map(abs, result.score)) > game.max_score:
        raise FalseReportError(
            f"the report says {ending} ticks; {game.env} ends after at most {game.max_ticks}, with scores of at most "
            f"{game.max_score} together"
        )
    if result.result in PLAYED:
        fits = verdict_of(result.score) == result.result and result.duration_ticks > 0
        fits = fits and result.cause in game.endings(result.score)
    else:
        fits = tuple(result.score) == (0, 0) and result.cause in FAILURES
    if not fits:
        raise FalseReportError(f"the report says {ending} ticks, which no match of {game.env} ends with")
    if result.events != verdict_events(game.layout, result.result, result.cause, result.duration_ticks):
        raise FalseReportError(f"the report says {ending} ticks, and tells of events that do not follow from that")
    if (result.final_state is None) != game.filmed:
        raise FalseReportError(f"the report comes {'without' if not game.filmed else 'with'} a hash of the match")


def _check_bytes(game: ArenaGame, report: MatchReport) -> None:
    result, longest = report.result, max(len(report.replay), len(report.actions))
    if longest > MAX_BLOB_BYTES:
        raise FalseReportError(f"the report's files have {longest} bytes; at most {MAX_BLOB_BYTES} are accepted")
    if game.filmed:
        if not report.replay and result.result in PLAYED:
            raise FalseReportError(f"the report says {result.result}, and comes without a video")
        if report.actions or (report.replay and report.replay[4:8] != b"ftyp"):
            raise FalseReportError("the report comes with a replay that is no mp4 video, or with actions")
        return
    if report.replay:
        raise FalseReportError(f"the report comes with a replay; those of {game.env} are made from the actions")
    decisions, ticks = len(choices_of(game, report)), layout_of(game.env).ticks_per_decision
    if decisions != -(-result.duration_ticks // ticks):
        raise FalseReportError(f"the report has actions of {decisions} decisions, and {result.duration_ticks} ticks")


def choices_of(game: ArenaGame, report: MatchReport) -> I16:
    """[decisions, P, A] what everybody chose in a match that repeats. Raises FalseReportError for too much, or none."""
    layout = layout_of(game.env)
    try:
        return decode_actions(report.actions, layout, game.max_ticks // layout.ticks_per_decision)
    except ReplayError as error:
        raise FalseReportError(f"the report's action log cannot be read: {error}") from error


def _who(side: Side) -> tuple[str, str, str]:
    """What a referee knows of who played."""
    return side.entity.repo, side.entity.sha256, side.mode


def _text(sides: Sequence[Side]) -> str:
    return " against ".join("{} ({:.8}, {})".format(*_who(side)) for side in sides)
