"""Matches played again, runners compared, and what happens to those who lie."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arena_records import read_log, record, season, sha
from code_that_runs import MODULE, Stranger
from helpers import LAYOUT
from hostile import fragile, gossip, stock, treacherous
from small_run import policy_model
from sqlalchemy import insert, select
from typer.testing import CliRunner
from units import contender, house

from palus.arena.jobs.worker import describe_here, work
from palus.arena.ladder import audit as auditing
from palus.arena.ladder import queue
from palus.arena.ladder.audit import audit, is_local, reinstate, suspend, suspend_outliers, suspension
from palus.arena.ladder.discovery import Entry, Sweep, sweep_house
from palus.arena.ladder.entries import decide, take_in
from palus.arena.ladder.inbox import link
from palus.arena.ladder.log import LogRecord, StoredBytes, append
from palus.arena.ladder.match_files import read_actions
from palus.arena.ladder.runner_tests import RatedMatch, suspicions
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.verification import Verification, verify, verify_record
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.play import play_unit
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.referee.actions import decode_actions, encode_actions, replay_match
from palus.cli import app
from palus.errors import ArenaError
from palus.store import Store, open_store
from palus.store.tables import annulments, entries, matches, workers

SETTINGS = ArenaSettings(target_half_width=0.0)


def played(folder: Path, units: int) -> Store:
    """A store with matches of the house players."""
    store = open_store(folder)
    plan = Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], seed=1)
    for _ in range(units):
        plan.tick()
        assert work(StoreSource(store, "w", SETTINGS, describe_here()), threading.Event(), max_jobs=1) == 1
    plan.link()
    return store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return played(tmp_path_factory.mktemp("arena"), 10)


def records(store: Store) -> list[LogRecord]:
    with store.read() as connection:
        return read_log(connection)


def test_every_match_ends_in_the_same_state_when_it_is_played_again(store: Store) -> None:
    found = [verify(store, logged.id) for logged in records(store)]
    assert len(found) == 20
    assert all(verification.ok for verification in found), found


def test_an_account_named_like_the_arenas_own_workers_is_none_of_them() -> None:
    assert is_local("local-1a2b3c4d") and not is_local("local-eve/pc") and not is_local("eve/local-1")


@pytest.mark.slow
def test_a_hundred_of_a_hundred_matches_verify(tmp_path: Path) -> None:
    store = played(tmp_path, 50)
    assert [verify(store, logged.id).ok for logged in records(store)] == [True] * 100


def test_a_record_with_other_actions_or_another_seed_does_not_verify(store: Store) -> None:
    first, second, third, *_ = records(store)
    store.blobs.put(read_actions(store, third))
    assert verify_record(store, replace(first, id="of another", actions=third.actions)).ok is False
    swapped = verify_record(store, replace(first, actions=third.actions))
    assert swapped.ok is None and "not those of its record" in swapped.sentence
    assert verify_record(store, replace(first, seed=first.seed + 1)).ok is False
    other = {"win1": "draw", "win2": "win1", "draw": "win2"}[first.result]
    lie = verify_record(store, replace(first, result=other))
    assert lie.ok is False and f"is recorded as {other}" in lie.sentence
    assert verify_record(store, replace(first, duration_ticks=first.duration_ticks + 1)).ok is False
    damaged = store.blobs.put(b"\x01no action log")
    found = verify_record(store, replace(second, id="damaged", actions=StoredBytes(damaged.sha256, damaged.size)))
    assert found.ok is False and "cannot be played again" in found.sentence


def test_a_match_of_another_build_is_not_judged_and_an_unknown_one_is_named(store: Store) -> None:
    other = records(store)[0]
    found = verify_record(store, replace(other, build=replace(other.build, build_hash="0" * 64)))
    assert found.ok is None and "another build" in found.sentence
    with pytest.raises(ArenaError, match="no match abc"):
        verify(store, "abc")


def test_an_audit_strikes_out_the_pair_of_a_match_that_does_not_verify(tmp_path: Path) -> None:
    store = played(tmp_path, 2)
    honest = records(store)
    forged = [
        replace(honest[0], id="f1", unit_id="forged", final_state=sha("else")),
        replace(honest[1], id="f2", unit_id="forged"),
    ]
    actions = {f"f{leg.leg}": read_actions(store, leg) for leg in honest[:2]}
    with store.write() as connection:
        append(connection, forged, finished_ms=1, actions=actions)
    found = audit(store, 1.0, seed=0, now_ms=5)
    assert [failure.match_id for failure in found.failures] == ["f1"]
    assert len(found.found) == 6 and found.suspended == ()  # a worker beside the store is not suspended
    with store.read() as connection:
        rows = connection.execute(select(annulments).order_by(annulments.c.match_id)).all()
    assert [(row.match_id, row.created_ms) for row in rows] == [("f1", 5), ("f2", 5)]
    again = audit(store, 1.0, seed=0, now_ms=6)
    assert [verification.ok for verification in again.found] == [True] * 4


def report_of(store: Store, worker: str, *entrants: Entity, seed: int = 0) -> list[LogRecord]:
    """Let a worker play a pair of these two honestly. Returns its records."""
    for entrant in entrants:
        for model in entrant.models:
            store.blobs.put(model)
    order = Unit("SoccerTwos", seed, (entrants[0], entrants[1]), season=1, rated=True)
    source = StoreSource(store, worker, SETTINGS, describe_here())
    with store.write() as connection:
        queue.enqueue(connection, "pair", {order.unit_id: (99, order.to_payload())}, now_ms=1)
    assert work(source, threading.Event(), max_jobs=1) == 1
    assert link(store, now_ms=1) == 1
    played = records(store)[-2:]
    for logged in played:  # for those that are logged once more
        store.blobs.put(read_actions(store, logged))
    return played


def log_again(store: Store, honest: list[LogRecord], name: str, worker: str, **changes: object) -> list[LogRecord]:
    """Log a pair once more under other ids, its first leg changed."""
    forged = [
        replace(
            r,
            id=f"{name}-{r.leg}",
            unit_id=name,
            runner=replace(r.runner, worker=worker),
            **(changes if r.leg == 1 else {}),
        )
        for r in honest
    ]
    with store.write() as connection:
        append(connection, forged, finished_ms=1)
    return forged


def test_the_players_of_a_match_are_asked_again_and_others_in_their_place_are_found(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    pair = report_of(store, "w", contender("ann/a", stock()), contender("bob/b", policy_model()))
    assert [verify_record(store, leg).ok for leg in pair] == [True, True]
    swapped = verify_record(store, replace(pair[0], sides=pair[0].sides[::-1]))
    assert swapped.ok is False and swapped.forged and "would not have taken" in swapped.sentence
    bots = report_of(store, "w", house("ball-chaser"), house("random"))
    assert verify_record(store, bots[0]).ok
    assert verify_record(store, replace(bots[0], sides=bots[0].sides[::-1])).forged


def cut_short(store: Store, honest: LogRecord) -> dict[str, object]:
    """What a worker would send that breaks a match off after three decisions and says that blue failed."""
    actions = encode_actions(decode_actions(read_actions(store, honest), LAYOUT, 1000)[:3], LAYOUT)
    again, stored = replay_match("SoccerTwos", honest.seed, actions), store.blobs.put(actions)
    return {
        "result": "forfeit1",
        "score": (0, 0),
        "duration_ticks": again.ticks,
        "actions": StoredBytes(stored.sha256, stored.size),
        "replay": None,
        "final_state": again.state,
    }


def test_a_forfeit_is_believed_where_it_happens_again_and_only_there(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    traitor = report_of(store, "w", contender("eve/t", treacherous()), house("random"))
    assert [(leg.result, leg.cause) for leg in traitor] == [("forfeit1", "non_finite"), ("forfeit2", "non_finite")]
    assert [verify_record(store, leg).ok for leg in traitor] == [True, True]
    breaker = report_of(store, "w", contender("eve/f", fragile(72)), house("random"), seed=2)
    assert [(leg.result, leg.cause) for leg in breaker] == [("forfeit1", "crash"), ("forfeit2", "crash")]
    assert [verify_record(store, leg).ok for leg in breaker] == [True, True], "in one of the legs, which ended both"
    alone = [verify_record(store, replace(leg, unit_id="alone")) for leg in breaker]
    assert sorted(found.ok is True for found in alone) == [False, True] and not any(found.forged for found in alone)
    half = [verify_record(store, replace(leg, result="void")) for leg in breaker]
    assert {(found.ok, found.forged) for found in half} == {(False, False)}, (
        "the other's, which answers now, was said too"
    )
    speaker = report_of(store, "w", contender("eve/g", gossip()), house("random"), seed=2)
    assert [(leg.result, leg.cause) for leg in speaker] == [("forfeit1", "invalid"), ("forfeit2", "invalid")]
    again = [verify_record(store, leg) for leg in speaker]
    assert [found.ok for found in again] == [True, True]
    assert {found.refusal.code for found in again if found.refusal} == {"mixes-rows"}
    honest = report_of(store, "w", contender("ann/a", stock()), house("random"))[0]
    fake = replace(honest, id="fake", cause="non_finite", **cut_short(store, honest))
    found = verify_record(store, fake)
    assert found.ok is False and found.forged and "not how it ends" in found.sentence
    late = verify_record(store, replace(fake, cause="timeout"))
    assert late.ok is False and not late.forged and "answers now" in late.sentence  # or its machine was busy


def in_its_place(store: Store, leg: LogRecord, other: Entity) -> LogRecord:
    """The record of a match as if another had been the first of its pair."""
    for model in other.models:
        store.blobs.put(model)
    sides = list(leg.sides)
    sides[leg.leg - 1] = replace(sides[leg.leg - 1], entity=replace(other, models=()))
    return replace(leg, sides=(sides[0], sides[1]))


def test_a_model_that_fails_in_an_audit_covers_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path)
    monkeypatch.setitem(play_unit.__kwdefaults__, "check_share", 0.0)
    speaker = report_of(store, "w", contender("eve/g", gossip()), house("random"), seed=5)[0]
    sides = speaker.sides[0], replace(speaker.sides[1], entity=house("ball-chaser"))
    found = verify_record(store, replace(speaker, sides=sides))
    assert found.forged and "palus/ball-chaser would not have taken" in found.sentence
    found = verify_record(store, replace(speaker, result="forfeit2"))
    assert found.forged and "is recorded as forfeit2" in found.sentence


def test_a_model_that_mixes_rows_is_refused_and_nobody_blamed_where_only_an_audit_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, speaker = open_store(tmp_path), contender("eve/g", gossip())
    with store.write() as connection:
        take_in(connection, Sweep("hub", "SoccerTwos", (Entry(speaker, 1),), frozenset({"eve/g"})), {}, now_ms=1)
        decide(connection, "SoccerTwos", speaker.sha256, None, {}, now_ms=2)
    with monkeypatch.context() as patched:
        patched.setitem(play_unit.__kwdefaults__, "check_share", 0.0)
        report_of(store, "lab/pc", speaker, house("random"), seed=5)
    found = audit(store, 1.0, seed=0, now_ms=5)
    assert [(leg.ok, leg.forged, leg.at_fault) for leg in found.failures] == [(False, False, speaker.sha256)] * 2
    assert "eve/g answers an agent differently" in found.failures[0].sentence and found.suspended == ()
    with store.read() as connection:
        assert connection.execute(select(entries.c.state, entries.c.code)).one() == ("refused", "mixes-rows")
        assert len(connection.execute(select(annulments)).all()) == 2


def test_a_model_that_fails_answers_for_what_it_chose_before(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    breaker = report_of(store, "w", contender("eve/f", fragile(72)), house("random"), seed=2)
    assert {leg.cause for leg in breaker} == {"crash"}
    other = contender("eve/o", fragile(72, logits=np.zeros((3, 3))))
    for leg in breaker:  # broken off where this one breaks its process, too
        found = verify_record(store, in_its_place(store, leg, other))
        assert found.forged and "eve/o would not have taken" in found.sentence


def test_an_audit_suspends_a_forger_with_its_account_and_looks_at_every_forfeit_from_elsewhere(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    a, b = house("ball-chaser"), house("random")
    report_of(store, "eve/one", a, b)
    report_of(store, "lab/pc", a, b, seed=2)
    honest = report_of(store, "lab/late", a, b, seed=3)
    fakes = cut_short(store, honest[0])
    log_again(store, honest, "once", "lab/late", cause="timeout", **fakes)
    assert audit(store, 0.0, seed=0, now_ms=1).suspended == ()
    for number in range(3):  # a name costs nothing
        log_again(store, honest, f"again{number}", f"eve/{number}", cause="timeout", **fakes)
    (sentence,) = audit(store, 0.0, seed=0, now_ms=2).suspended
    assert sentence.startswith("worker eve/2 is suspended: 3 of its account's pairs")
    with store.read() as connection:
        struck = set(connection.execute(select(annulments.c.match_id)).scalars())
        of = {row.id: row.runner.worker for row in read_log(connection)}
        assert suspension(connection, "eve/three") and suspension(connection, "lab/pc") is None
    assert {worker for match, worker in of.items() if match not in struck} == {"lab/pc", "lab/late"}
    with store.write() as connection:
        reinstate(connection, "eve/2")
        assert suspension(connection, "eve/three") is None
        with pytest.raises(ArenaError, match="no worker lab/pc is suspended"):
            reinstate(connection, "lab/pc")


def test_forfeits_that_the_arena_s_own_workers_reported_are_looked_at_no_more_often_than_other_matches(
    tmp_path: Path,
) -> None:
    store = open_store(tmp_path)
    honest = report_of(store, "local-1", house("ball-chaser"), house("random"))
    fakes = cut_short(store, honest[0])
    for number in range(3):
        log_again(store, honest, f"again{number}", "local-1", cause="timeout", **fakes)
    assert len(audit(store, 0.0, seed=0, now_ms=1).found) == 2  # the legs of a pair


def test_an_audit_holds_little_of_a_long_log_but_what_it_looks_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, looked = open_store(tmp_path), list[str]()

    def look(_store: Store, match_id: str) -> Verification:
        looked.append(match_id)
        return Verification(match_id, True, "")

    monkeypatch.setattr(auditing, "look_again", look)
    with store.write() as connection:
        append(connection, [record(0)], 1)
        one = dict(connection.execute(select(matches)).mappings().one()) | {"record": ""}
        more = [one | {"seq": n, "id": f"more {n}", "unit_id": f"unit {n // 2}"} for n in range(2, 20_002)]
        connection.execute(insert(matches), more)
    tracemalloc.start()
    audit(store, 0.001, seed=1, now_ms=1)
    _, most_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(set(looked)) == len(looked) == 20 and {f"more {int(one[5:]) ^ 1}" for one in looked} == set(looked)
    assert most_bytes < 100 * 20_000
    store.close()


@pytest.mark.parametrize(
    "bogus",
    [
        {"env": "os:abort"},
        {"env": "Chess"},
        {"seed": 10**30},
        {"replay": StoredBytes("0" * 64, 1)},
    ],
)
def test_a_bogus_record_is_reported_and_the_audit_goes_on(tmp_path: Path, bogus: dict[str, object]) -> None:
    store = open_store(tmp_path)
    honest = report_of(store, "w", house("ball-chaser"), house("random"))
    log_again(store, honest, "bogus", "w", **bogus)
    found = audit(store, 1.0, seed=0, now_ms=1)
    assert {v.match_id: v.ok for v in found.found} == {
        honest[0].id: True,
        honest[1].id: True,
        "bogus-1": None,
        "bogus-2": True,
    }


def test_a_record_names_no_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stranger = Stranger(tmp_path, monkeypatch)
    store = open_store(tmp_path / "arena")
    forged = record(1, worker="eve/pc")
    for env in (f"{MODULE}:make", f"{MODULE}.inner:make", "os:_exit", "RescueToy"):
        found = verify_record(store, replace(forged, env=env))
        assert found.ok is None and f"no arena plays {env}" in found.sentence
    with store.write() as connection:
        append(connection, [replace(forged, env=f"{MODULE}:make")], finished_ms=1)
    store.close()
    for command in (["verify", forged.id], ["audit", "--sample", "100%"]):
        result = CliRunner().invoke(app, [*command, "--data", str(tmp_path / "arena")])
        assert result.exit_code == 1 and f"no arena plays {MODULE}" in " ".join(result.output.split()), result.output
    assert not stranger.ran


def games(worker: str, count: int, share_of_a: float, seed: int, forfeits: float = 0.0) -> list[RatedMatch]:
    rng = np.random.default_rng(seed)
    made = []
    for number in range(count):
        blue, purple = ("a", "b") if number % 2 else ("b", "a")
        a_won = rng.random() < share_of_a
        result = "forfeit1" if rng.random() < forfeits else "win1" if a_won == (blue == "a") else "win2"
        made.append(RatedMatch(worker, blue, purple, result))
    return made


def test_honest_runners_are_not_suspected() -> None:
    for seed in range(50):
        assert suspicions(games("x", 300, 0.6, 2 * seed) + games("y", 200, 0.6, 2 * seed + 1)) == []


def test_a_runner_that_favours_a_player_or_lets_matches_fail_is_suspected() -> None:
    (found,) = [s for s in suspicions(games("x", 2000, 0.5, 1) + games("liar", 200, 0.95, 2)) if s.worker == "liar"]
    assert found.p_value < 1e-9 and "scored" in found.sentence
    (found,) = [s for s in suspicions(games("x", 2000, 0.5, 1) + games("bad", 200, 0.5, 2, 0.3)) if s.worker == "bad"]
    assert "forfeited or void" in found.sentence


def test_all_matches_are_looked_through_once_however_many_accounts_there_are() -> None:
    class Passed(list[RatedMatch]):
        times = 0

        def __iter__(self) -> Iterator[RatedMatch]:
            self.times += 1
            return super().__iter__()

    matches = Passed(match for k in range(20) for match in games(f"w{k}", 60, 0.5 if k else 0.99, k))
    assert [found.worker for found in suspicions(matches)] == ["w0"] and matches.times == 2


def test_few_games_are_no_evidence() -> None:
    assert suspicions(games("x", 2000, 0.5, 1) + games("new", 40, 1.0, 2)) == []


@pytest.mark.parametrize("names", [1, 40])
def test_outliers_are_suspended_with_all_their_matches_and_the_arenas_own_workers_never(
    tmp_path: Path, names: int
) -> None:
    store = open_store(tmp_path)
    rest = [replace(r, runner=replace(r.runner, worker="local-1")) for r in season({"a/a": 0.0, "b/b": 0.0}, 200, 1)]
    own = [f"eve/pc-{number}" for number in range(names)]
    lies = [record(5000 + i, blue="a/a", purple="b/b", result="win1", worker=own[i % names]) for i in range(60)]
    lies += [record(6000 + i, blue="b/b", purple="a/a", result="win2", worker=own[i % names]) for i in range(60)]
    with store.write() as connection:
        for name in ("local-1", *own):
            row = {"name": name, "isolation": "", "platform": "{}", "first_seen_ms": 0, "last_seen_ms": 0, "matches": 0}
            connection.execute(insert(workers).values(row))
        append(connection, rest + lies, finished_ms=1)
    (sentence,) = suspend_outliers(store, now_ms=3)
    assert sentence.startswith("worker eve/pc-0 is suspended")
    with store.read() as connection:
        struck = set(connection.execute(select(annulments.c.match_id)).scalars())
        assert set(connection.scalars(select(workers.c.name).where(workers.c.suspended.is_not(None)))) == {*own}
    assert struck == {lie.id for lie in lies}
    assert suspend_outliers(store, now_ms=4) == []
    with store.write() as connection, pytest.raises(ArenaError, match="no worker nobody"):
        suspend(connection, "nobody", "", now_ms=1)
