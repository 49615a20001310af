"""What a worker from elsewhere may say: every field by itself, and all of them against the job."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from small_run import policy_model
from units import contender

from palus import envs
from palus.arena.jobs.reports import ValidationReport, from_json, to_json
from palus.arena.jobs.worker import describe_here, play_order
from palus.arena.ladder.report_check import check_unit
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.unit import MatchReport, Unit, UnitReport
from palus.arena.locked.vet import vet
from palus.arena.models.entity import house_player
from palus.arena.referee.games import GAMES, EnvBuild, env_build, layout_of
from palus.arena.referee.result import SCHEMA, Cause, MatchResult, Side, Verdict, match_ids, verdict_events
from palus.arena.referee.sampling import pair_seeds
from palus.envs.recording import RecordedEvent
from palus.errors import ArenaError, FalseReportError
from palus.store import open_store

Change = Callable[[dict[str, Any]], object]


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> tuple[Unit, UnitReport]:
    """A job, and its honest report, in which the first game ends with an early goal."""
    store, settings = open_store(tmp_path_factory.mktemp("arena")), ArenaSettings()
    source = StoreSource(store, "w", settings, describe_here())
    sides = [house_player(name, "SoccerTwos") for name in ("goalie-striker", "random")]
    for seed in range(100):
        order = Unit("SoccerTwos", seed, (sides[0], sides[1]), season=1, rated=True)
        report = play_order(source, order)
        if report.matches[0].result.cause == "goal" and report.matches[0].result.duration_ticks < 4000:
            return order, report
    raise AssertionError("a bot that scores against nobody")


def body(unit: UnitReport) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(to_json(unit)))
    return copied


def with_result(unit: UnitReport, **fields: Any) -> dict[str, Any]:
    """The first game's result, changed in JSON."""
    changed = body(unit)
    result = json.loads(changed["games"][0]["result"]) | fields
    changed["games"][0]["result"] = json.dumps(result, separators=(",", ":"), sort_keys=True)
    return changed


@pytest.mark.parametrize(
    "fields",
    [
        {"duration_ticks": 10**30},
        {"duration_ticks": -1},
        {"duration_ticks": 2.5},
        {"duration_ticks": "7"},
        {"seed": 2**64},
        {"leg": True},
        {"score": [10**30, 0]},
        {"score": [1, 0, 0]},
        {"wall_ms": float("nan")},
        {"wall_ms": float("inf")},
        {"started": "yesterday"},
        {"started": "2026-01-01T00:00:00+00:00" + "0" * 1000},
        {"result": "win3"},
        {"cause": "<boredom>"},
        {"final_state": "<script>"},
        {"final_state": 5},
        {"sides": []},
        {"id": "x" * 10**5},
        {"env": ["SoccerTwos"]},
        {"events": [{"tick": 10**30, "kind": "goal", "team": 0, "agent": -1}]},
        {"events": [{"tick": 1, "kind": "<foul>", "team": 0, "agent": -1}]},
        {"events": [{"tick": 1, "kind": "kick", "team": 0, "agent": -1}] * 5000},
        {"schema": None},
        {"more": 1},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_a_field_of_a_result_that_is_out_of_range_makes_a_false_report(
    job: tuple[Unit, UnitReport], fields: dict[str, Any]
) -> None:
    with pytest.raises(FalseReportError, match="not a"):
        from_json(with_result(job[1], **fields))


@pytest.mark.parametrize("entropy", [-72.0, 1e30, float("nan"), "much"])
def test_no_report_is_false_for_an_entropy_that_a_model_led_out_of_range(
    job: tuple[Unit, UnitReport], entropy: object
) -> None:
    told = json.loads(body(job[1])["games"][0]["result"])["sides"]
    taken = from_json(with_result(job[1], sides=[side | {"entropy": entropy} for side in told]))
    assert isinstance(taken, UnitReport) and [side.entropy for side in taken.results[0].sides] == [None, None]
    check_unit(job[0], taken)


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.update(games=[]),
        lambda b: b.update(games="two"),
        lambda b: b.update(games=b["games"] * 2),
        lambda b: b.update(more=1),
        lambda b: b.update(isolation="x" * 10**6),
        lambda b: b.update(isolation=None),
        lambda b: b.update(env=None),
        lambda b: b["env"].update(build_hash="mine"),
        lambda b: b["env"].update(version="<b>"),
        lambda b: b["games"][0].update(result="[]"),
        lambda b: b["games"][0].update(result="[" * 100_000),
        lambda b: b["games"][0].update(replay="not base64!"),
        lambda b: b["games"][0].update(replay=base64.b64encode(bytes(5 << 20)).decode()),
    ],
)
def test_anything_else_than_a_report_is_refused_with_a_sentence(job: tuple[Unit, UnitReport], change: Change) -> None:
    changed = body(job[1])
    change(changed)
    with pytest.raises(FalseReportError, match="not "):
        from_json(changed)


@pytest.mark.parametrize(
    "validation",
    [
        {"refusal": None, "details": {}, "trial": None},
        {"refusal": {"code": "Too Large", "sentence": "", "remedy": ""}, "details": {}, "trial": None},
        {"refusal": {"code": "too-large", "sentence": "x" * 10**5, "remedy": ""}, "details": {}, "trial": None},
        {"refusal": {"code": "a", "sentence": "", "remedy": ""}, "details": {"p99_ms": float("nan")}, "trial": None},
        {"refusal": {"code": "a", "sentence": "", "remedy": ""}, "details": {"more": []}, "trial": None},
    ],
)
def test_a_validation_ends_with_a_short_refusal_or_a_trial(validation: dict[str, Any]) -> None:
    with pytest.raises(FalseReportError):
        from_json(validation)


def test_what_validation_says_of_a_sound_model_has_this_form(job: tuple[Unit, UnitReport]) -> None:
    verdict = vet(contender("ann/a", policy_model()), "SoccerTwos", patience=100.0)
    assert verdict.refusal is None
    report = ValidationReport(None, verdict.details, job[1])
    taken = from_json(json.loads(json.dumps(to_json(report))))
    assert isinstance(taken, ValidationReport) and (taken.refusal, taken.details) == (None, verdict.details)
    assert from_json(json.loads(json.dumps(to_json(taken)))) == taken and taken.trial is not None


@pytest.mark.parametrize("schema", [SCHEMA - 1, SCHEMA + 1])
def test_a_worker_of_another_palus_is_told_so_and_not_called_a_liar(job: tuple[Unit, UnitReport], schema: int) -> None:
    with pytest.raises(ArenaError, match=f"schema {schema}; this arena takes {SCHEMA}") as caught:
        from_json(with_result(job[1], schema=schema))
    assert not isinstance(caught.value, FalseReportError)


def first(unit: UnitReport, game: MatchReport) -> UnitReport:
    return replace(unit, matches=(game, unit.matches[1]))


def changed(unit: UnitReport, **fields: Any) -> UnitReport:
    return first(unit, replace(unit.matches[0], result=replace(unit.matches[0].result, **fields)))


def renamed(result: MatchResult, **side: Any) -> tuple[Side, Side]:
    first, second = result.sides
    who = {name: side.pop(name) for name in ("repo", "sha256") if name in side}
    return (replace(first, entity=replace(first.entity, **who), **side), second)


LIES: list[Callable[[UnitReport], UnitReport]] = [
    lambda u: replace(u, matches=u.matches[:1]),
    lambda u: replace(u, matches=u.matches[::-1]),
    lambda u: replace(u, env=EnvBuild("doom_duel", "1", u.env.build_hash, {})),
    lambda u: replace(u, env=replace(u.env, params={"max_steps": 5})),
    lambda u: changed(u, env="doom_duel"),
    lambda u: changed(u, seed=1),
    lambda u: changed(u, sides=u.matches[0].result.sides[::-1]),
    lambda u: changed(u, sides=renamed(u.matches[0].result, repo="eve/strong")),
    lambda u: changed(u, sides=renamed(u.matches[0].result, sha256="0" * 64)),
    lambda u: changed(u, sides=renamed(u.matches[0].result, mode="greedy")),
    lambda u: changed(u, id="0" * 16),
    lambda u: changed(u, unit_id="0" * 16),
    lambda u: changed(u, duration_ticks=5001),
    lambda u: changed(u, duration_ticks=u.matches[0].result.duration_ticks + 5),
    lambda u: changed(u, score=(9, 0), result="win1", cause="goal"),
    lambda u: changed(u, score=(0, 1), result="win1", cause="goal"),
    lambda u: changed(u, score=(0, 0), result="draw", cause="goal"),
    lambda u: changed(u, score=(1, 0), result="win1", cause="boredom"),
    lambda u: changed(u, score=(0, 0), result="forfeit1", cause="goal"),
    lambda u: changed(u, score=(0, 0), result="void", cause="engine"),
    lambda u: changed(u, final_state=None),
    lambda u: changed(u, events=tuple(replace(e, tick=4999) for e in u.matches[0].result.events) * 2),
    lambda u: changed(u, events=()),
    lambda u: changed(u, events=u.matches[0].result.events * 2),
    lambda u: changed(u, events=(RecordedEvent(1, "kick", 0, 3), *u.matches[0].result.events)),
    lambda u: first(u, replace(u.matches[0], actions=b"")),
    lambda u: first(u, replace(u.matches[0], replay=b"\x00\x00\x00\x18ftypmp42")),
    lambda u: first(u, replace(u.matches[0], actions=u.matches[1].actions)),
    lambda u: first(u, replace(u.matches[0], actions=zlib.compress(bytes(4 * 10**5), wbits=-15))),
]


@pytest.mark.parametrize("lie", LIES, ids=range(len(LIES)))
def test_a_report_that_contradicts_its_job_is_a_false_one(
    job: tuple[Unit, UnitReport], lie: Callable[[UnitReport], UnitReport]
) -> None:
    order, honest = job
    check_unit(order, honest)
    with pytest.raises(FalseReportError, match="the report"):
        check_unit(order, lie(honest))


@pytest.mark.parametrize(
    ("result", "players", "blamed"),
    [
        ("forfeit1", ("random", None), True),
        ("forfeit2", ("random", None), False),
        ("forfeit2", (None, "random"), True),
        ("void", (None, "random"), True),
        ("void", (None, None), False),
    ],
)
@pytest.mark.parametrize("cause", ["timeout", "crash", "non_finite", "invalid"])
def test_a_player_of_the_house_fails_in_no_honest_report(
    result: Verdict, players: tuple[str | None, str | None], blamed: bool, cause: Cause
) -> None:
    models = (contender("ann/a", policy_model()), contender("bob/b", policy_model(seed=1)))
    first, second = (
        model if name is None else house_player(name, "SoccerTwos") for name, model in zip(players, models, strict=True)
    )
    order = Unit("SoccerTwos", 1, (first, second), season=1, rated=True, legs=(1,))
    (seed,), sides = pair_seeds(1, 1).tolist(), order.sides(1)
    match, unit = match_ids("SoccerTwos", seed, 1, sides)
    events = verdict_events(layout_of("SoccerTwos"), result, cause, 0)
    played = MatchResult(
        match, unit, "SoccerTwos", seed, 1, sides, result, cause, (0, 0), 0, events, "2026-01-01T00:00:00+00:00", 1.0,
        final_state="0" * 64,
    )  # fmt: skip
    report = UnitReport((MatchReport(played, b"", b""),), env_build("SoccerTwos"), "none")
    if not blamed:
        check_unit(order, report)
        return
    with pytest.raises(FalseReportError, match=r"palus/random is a player of the house, .* cannot fail"):
        check_unit(order, report)


@pytest.mark.parametrize(
    ("game", "score", "endings"),
    [
        ("SoccerTwos", (0, 1), {"goal"}),
        ("SoccerTwos", (0, 0), {"time_limit"}),
        ("StrikersVsGoalie", (1, 0), {"goal"}),
        ("StrikersVsGoalie", (0, 1), {"goal", "time_limit"}),
        ("StrikersVsGoalie", (0, 0), set()),
        ("doom_duel", (3, 5), {"time_limit"}),
        ("doom_duel", (3, 3), {"time_limit"}),
    ],
)
def test_a_match_ends_in_no_other_way_than_its_game_s(game: str, score: tuple[int, int], endings: set[str]) -> None:
    assert GAMES[game].endings(score) == endings


def test_a_game_s_limits_are_those_that_it_has() -> None:
    steps = layout_of("SoccerTwos").ticks_per_decision
    assert GAMES["SoccerTwos"].max_ticks == steps * envs.make("SoccerTwos", 1).spec.max_decisions
    assert {game.max_ticks < 2**31 and game.max_score < 2**15 for game in GAMES.values()} == {True}
