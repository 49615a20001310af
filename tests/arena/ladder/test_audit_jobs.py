"""Logged pairs that other workers play again, without knowing: who is believed, and what it costs who lied."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from arena_records import read_log
from hostile import amplified, stock, treacherous
from sqlalchemy import delete, insert, select, update
from units import contender, house, passed_off

from palus.arena.jobs.worker import Lease, describe_here, play_order, work
from palus.arena.ladder import audit, audit_jobs, queue, refresh
from palus.arena.ladder.audit import strike_out, suspension
from palus.arena.ladder.audit_jobs import OVERDUE_MS, settle
from palus.arena.ladder.discovery import Entry, Sweep
from palus.arena.ladder.entries import decide, read_lineup, take_in
from palus.arena.ladder.inbox import accept, link
from palus.arena.ladder.log import LogRecord
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.verification import Verification
from palus.arena.ladder.workers import StoreSource, untended
from palus.arena.locked import steady
from palus.arena.locked.unit import Unit, UnitReport
from palus.arena.models.entity import Entity
from palus.arena.models.policies import RandomPlayer
from palus.arena.referee import sampling
from palus.arena.referee.games import env_build, layout_of
from palus.arena.referee.questions import Question
from palus.arena.referee.result import Mode, verdict_events
from palus.store import Store
from palus.store.tables import annulments, blobs, entries, jobs, matches, workers
from palus.types import F32, I32, I64
from palus.web.api.status import status
from palus.web.api.view import Views

SETTINGS = ArenaSettings(max_attempts=1)
ANN = contender("ann/a", stock())


def worker(store: Store, name: str, *, trusted: bool = False) -> StoreSource:
    return StoreSource(store, name, SETTINGS, describe_here(), trusted=trusted)


def order_pair(store: Store, first: Entity = ANN) -> Unit:
    for model in first.models:
        store.blobs.put(model)
    order = Unit("SoccerTwos", 0, (first, house("random")), season=1, rated=True)  # of ten seconds
    with store.write() as connection:
        queue.enqueue(connection, "pair", {"pair:1": (0, order.to_payload())}, now_ms=1)
    return order


def take(store: Store, name: str) -> Lease:
    (lease,) = worker(store, name).take()
    return lease


def take_audit(store: Store, name: str) -> Lease:
    (lease,) = worker(store, name, trusted=True).take()
    return lease


def hand_in(store: Store, lease: Lease, report: UnitReport, share: float = 1.0) -> None:
    assert accept(store, [(lease, report)], now_ms=1) == set()
    assert link(store, now_ms=1, audit_share=share) == 1


PLAYED: dict[tuple[Entity, ...], UnitReport] = {}
"""Players of a pair -> how it ends: it ends so wherever it is played, so it is played once for all tests."""


def played(store: Store, order: Unit) -> UnitReport:
    if order.contenders not in PLAYED:
        PLAYED[order.contenders] = play_order(worker(store, ""), order)
    return PLAYED[order.contenders]


def honest(store: Store, lease: Lease) -> UnitReport:
    return played(store, Unit.from_payload(lease.payload))


def forged(store: Store, lease: Lease) -> UnitReport:
    """A pair that was played, but by another in place of the first player."""
    order = replace(Unit.from_payload(lease.payload), contenders=(house("ball-chaser"),) * 2)
    return passed_off(played(store, order), honest(store, lease))


def records(store: Store) -> list[LogRecord]:
    with store.read() as connection:
        return read_log(connection)


def struck(store: Store) -> set[str]:
    with store.read() as connection:
        return set(connection.scalars(select(annulments.c.match_id)))


def suspended(store: Store) -> set[str]:
    with store.read() as connection:
        names = list(connection.scalars(select(workers.c.name)))
        return {name for name in names if suspension(connection, name)}


def states(store: Store) -> list[tuple[str, str]]:
    with store.read() as connection:
        return [(row.kind, row.state) for row in connection.execute(select(jobs).order_by(jobs.c.id))]


def test_a_pair_is_played_again_by_a_trusted_worker_of_another_account_that_cannot_tell(store: Store) -> None:
    order_pair(store)
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first))
    assert worker(store, "lab/other", trusted=True).take() == []
    again = take_audit(store, "bob/pc")
    assert [line.kind for line in status(Views(store).current()).running] == ["pair"]
    assert replace(again, job_id=first.job_id, secret=first.secret) == first
    hand_in(store, again, honest(store, again))
    assert states(store) == [("pair", "done"), ("audit", "done")]
    assert len(records(store)) == 2 and settle(store, now_ms=1) == [] and struck(store) == set()


def test_a_pair_whose_actions_are_damaged_is_left_to_the_arena_and_its_auditor_goes_on(store: Store) -> None:
    order_pair(store)
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first))
    again = take_audit(store, "bob/pc")
    with store.write() as connection:
        connection.execute(update(matches).values(actions=b"damaged"))
    hand_in(store, again, honest(store, again))
    assert states(store) == [("pair", "done"), ("audit", "disputed")]
    said = settle(store, now_ms=1)
    assert len(said) == 2 and all("are not those of its record; restore a backup" in sentence for sentence in said)
    assert states(store)[1] == ("audit", "done") and struck(store) == suspended(store) == set()


def test_the_arenas_own_workers_audit_each_other_and_nobody_itself(store: Store) -> None:
    order_pair(store)
    first = worker(store, "local-1", trusted=True)
    assert work(first, threading.Event(), max_jobs=1) == 1
    link(store, now_ms=1, audit_share=1.0)
    assert first.take() == []
    assert take_audit(store, "local-2").kind == "pair"


def test_who_reported_a_forged_pair_loses_its_trust_and_the_pair(store: Store) -> None:
    order_pair(store)
    first = take(store, "eve/pc")
    hand_in(store, first, forged(store, first))
    again = take_audit(store, "bob/pc")
    hand_in(store, again, honest(store, again))
    assert states(store)[1] == ("audit", "disputed")
    assert [line.model_dump() for line in status(Views(store).current()).jobs] == [
        {"kind": "pair", "ready": 0, "leased": 1, "done": 1, "failed": 0}
    ]
    sentences = settle(store, now_ms=2)
    assert any(sentence.startswith("worker eve/pc is suspended") for sentence in sentences), sentences
    assert suspended(store) == {"eve/pc"} and struck(store) == {row.id for row in records(store)}
    assert states(store)[1] == ("audit", "done") and settle(store, now_ms=3) == []


def test_a_second_account_of_who_forged_is_not_asked(store: Store) -> None:
    order_pair(store)
    first = take(store, "eve/pc")
    hand_in(store, first, forged(store, first))
    assert worker(store, "friend/pc").take() == []
    with store.read() as connection:
        assert untended(connection, 1) is None, "who is not asked is not told either"
    again = take_audit(store, "local-1")
    hand_in(store, again, honest(store, again))
    assert settle(store, now_ms=2) and suspended(store) == {"eve/pc"}


def test_an_auditor_that_lies_is_found_by_the_arena_itself(store: Store) -> None:
    order_pair(store)
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first))
    again = take_audit(store, "eve/pc")
    hand_in(store, again, forged(store, again))
    (sentence,) = settle(store, now_ms=2)
    assert sentence.startswith("worker eve/pc is suspended: in an audit match"), sentence
    assert suspended(store) == {"eve/pc"} and struck(store) == set() and len(records(store)) == 2


def test_an_auditor_that_dies_is_followed_by_another_and_at_last_by_the_arena_itself(store: Store) -> None:
    order_pair(store)
    first = take(store, "eve/pc")
    hand_in(store, first, forged(store, first))
    take_audit(store, "bob/pc")
    with store.write() as connection:
        connection.execute(update(jobs).where(jobs.c.kind == "audit").values(lease_until_ms=0))
        queue.reap(connection, max_attempts=2, now_ms=1)
    again = take_audit(store, "bob/other")
    assert again.attempts == 2
    assert settle(store, now_ms=OVERDUE_MS) == []
    assert settle(store, now_ms=OVERDUE_MS + 2) and suspended(store) == {"eve/pc"}, "it is held, and never done"
    assert accept(store, [(again, honest(store, again))], now_ms=1) == {again.job_id}
    assert worker(store, "bob/pc", trusted=True).take() == []


def test_every_forfeit_from_elsewhere_is_audited_and_what_cannot_be_played_again_is_not(store: Store) -> None:
    order_pair(store, contender("tom/t", treacherous()))
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first), share=0.0)
    assert states(store) == [("pair", "done"), ("audit", "ready")]
    again = take_audit(store, "bob/pc")
    hand_in(store, again, honest(store, again), share=0.0)
    assert states(store)[1] == ("audit", "done") and struck(store) == set()


def bent(monkeypatch: pytest.MonkeyPatch, store: Store, order: Unit, *, by: float, house: bool) -> UnitReport:
    """A pair in which one choice of a leg is what a number off by this would have drawn; the rest is honest.

    house: whether it is one of the player of the house, or of the model.
    """
    plain, bends = Question.choices, set[int]()

    def choices(self: Question, answer: F32, seeds: I64, decision: int, mode: Mode) -> I32:
        own = plain(self, answer, seeds, decision, mode)
        if isinstance(self.member, RandomPlayer) == house and not bends & set(seeds.tolist()):
            thrown = np.clip(self.thrown(seeds, decision) + by, 0.0, 1.0 - 2.0**-53)
            other = sampling.draw(answer, thrown, self.sizes)
            for row, branch in np.argwhere(other != own)[:1]:
                own[row, branch] = other[row, branch]
                bends.add(int(seeds[self.n[row]]))
        return own

    with monkeypatch.context() as patched:
        patched.setattr(Question, "choices", choices)
        report = play_order(worker(store, ""), order)
    assert bends
    return report


@pytest.mark.parametrize("house", [False, True])
def test_one_choice_that_rounding_does_not_explain_is_forged(
    store: Store, monkeypatch: pytest.MonkeyPatch, house: bool
) -> None:
    if house:  # which draws alike everywhere, however much rounding is granted to models
        monkeypatch.setattr(steady, "ROUNDING", 1e-3)
    order = order_pair(store)
    first = take(store, "eve/pc")
    hand_in(store, first, bent(monkeypatch, store, order, by=-9e-4 if house else 9e-4, house=house))
    again = take_audit(store, "bob/pc")
    hand_in(store, again, honest(store, again))
    sentences = settle(store, now_ms=2)
    assert any("would not have taken 1 of its" in sentence for sentence in sentences), sentences
    assert suspended(store) == {"eve/pc"} and struck(store) == {row.id for row in records(store)}


def test_a_pair_that_only_rounding_explains_is_struck_out_and_nobody_blamed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "ROUNDING", 1e-3)
    order = order_pair(store)
    first = take(store, "lab/pc")
    hand_in(store, first, bent(monkeypatch, store, order, by=9e-4, house=False))
    again = take_audit(store, "bob/pc")
    hand_in(store, again, honest(store, again))
    sentences = settle(store, now_ms=2)
    assert sentences and all("only where sums are rounded otherwise" in sentence for sentence in sentences), sentences
    assert suspended(store) == set() and struck(store) == {row.id for row in records(store)}
    monkeypatch.setattr(audit, "FORFEITS_FORGIVEN", 0)
    late = Verification(records(store)[0].id, False, "struck out already")
    with store.write() as connection:
        assert strike_out(connection, [late], {late.match_id: "lab/pc"}, now_ms=3) == [], "it was counted"


def test_a_logged_pair_stays_that_the_arena_draws_alike_where_only_the_auditor_rounds_otherwise(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steady, "ROUNDING", 1e-3)
    order = order_pair(store)
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first))
    again = take_audit(store, "bob/pc")
    hand_in(store, again, bent(monkeypatch, store, order, by=9e-4, house=False))
    assert states(store)[1] == ("audit", "disputed")
    assert settle(store, now_ms=2) == [] and suspended(store) == struck(store) == set()


def test_nobody_is_blamed_for_a_model_that_amplifies_rounding_and_it_is_refused(store: Store) -> None:
    model, elsewhere = contender("eve/trap", amplified()), contender("eve/trap", amplified("elsewhere"))
    with store.write() as connection:
        take_in(connection, Sweep("hub", "SoccerTwos", (Entry(model, 1),), frozenset({"eve/trap"})), {}, now_ms=1)
        decide(connection, "SoccerTwos", model.sha256, None, {"computation": "c" * 64}, now_ms=2)
        connection.execute(delete(jobs))
    order_pair(store, model)
    first = take(store, "lab/pc")
    order = replace(Unit.from_payload(first.payload), contenders=(elsewhere, house("random")))
    for data in elsewhere.models:
        store.blobs.put(data)
    hand_in(store, first, passed_off(played(store, order), honest(store, first)))
    again = take_audit(store, "bob/pc")
    hand_in(store, again, honest(store, again))
    sentences = settle(store, now_ms=2)
    assert sentences and all("eve/trap chooses otherwise" in sentence for sentence in sentences), sentences
    assert struck(store) == {row.id for row in records(store)} and suspended(store) == set()
    with store.read() as connection:
        entry = connection.execute(select(entries)).one()
        assert (entry.state, entry.code) == ("refused", "unsteady")
        assert read_lineup(connection, "SoccerTwos", repos_per_owner=0).ranked == {}
    with store.write() as connection:  # the same computation in another file is refused, too
        other = contender("eve/copy", b"the same, written otherwise")
        take_in(
            connection,
            Sweep("hub", "SoccerTwos", (Entry(other, 3),), frozenset({"eve/trap", "eve/copy"})),
            {},
            now_ms=3,
        )
        decide(connection, "SoccerTwos", other.sha256, None, {"computation": "c" * 64}, now_ms=4)
        assert connection.scalar(select(entries.c.code).where(entries.c.repo == "eve/copy")) == "unsteady"


def test_files_are_kept_when_a_match_that_was_played_with_them_is_logged(store: Store) -> None:
    (sha256,) = (sha256 for _, sha256 in ANN.files)
    with store.write() as connection:
        row = {"sha256": sha256, "size": 1, "git_sha1": "0" * 40, "created_ms": 1, "pinned": False}
        connection.execute(insert(blobs).values(row))
    order_pair(store)
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first), share=0.0)
    with store.read() as connection:
        assert connection.scalar(select(blobs.c.pinned)) is True


def contradicted(unit: UnitReport, *, by_state: bool) -> UnitReport:
    """With other ends than their actions lead to: other hashes of them, or other winners."""
    told = []
    for match in unit.matches:
        result = replace(match.result, final_state="f" * 64)
        if not by_state:
            won, score = ("win2", (0, 1)) if match.result.result == "win1" else ("win1", (1, 0))
            events = verdict_events(layout_of("SoccerTwos"), won, "goal", match.result.duration_ticks)
            result = replace(match.result, result=won, score=score, cause="goal", events=events)
        told.append(replace(match, result=result))
    return replace(unit, matches=tuple(told))


@pytest.mark.parametrize("by_state", [True, False])
def test_a_match_that_its_own_actions_contradict_is_found_without_any_audit(store: Store, by_state: bool) -> None:
    order_pair(store)
    first = take(store, "eve/pc")
    hand_in(store, first, contradicted(honest(store, first), by_state=by_state), share=0.0)
    assert states(store) == [("pair", "done")]
    Refresher(store, SETTINGS).refresh()
    assert suspended(store) == {"eve/pc"} and struck(store) == {row.id for row in records(store)}


def test_a_match_that_contradicts_itself_is_found_after_a_kill_while_it_is_looked_at(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def be_killed(*_: object) -> None:
        raise KeyboardInterrupt

    order_pair(store)
    first = take(store, "eve/pc")
    played = honest(store, first)
    forged = contradicted(played, by_state=True).matches[0]
    hand_in(store, first, replace(played, matches=(forged, *played.matches[1:])), share=0.0)
    with monkeypatch.context() as patch:
        patch.setattr(refresh, "look_again", be_killed)
        with pytest.raises(KeyboardInterrupt):
            Refresher(store, SETTINGS).refresh()
    assert suspended(store) == set()
    Refresher(store, SETTINGS).refresh()
    assert suspended(store) == {"eve/pc"} and struck(store) == {row.id for row in records(store)}


def test_an_honest_match_is_no_reason_to_look_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    order_pair(store, contender("tom/t", treacherous()))
    first = take(store, "lab/pc")
    hand_in(store, first, honest(store, first), share=0.0)
    monkeypatch.setattr(refresh, "look_again", None)
    Refresher(store, SETTINGS).refresh()
    assert struck(store) == set() and {row.result for row in records(store)} == {"forfeit1", "forfeit2"}


def test_a_pair_that_was_taken_before_an_update_of_the_game_is_not_audited(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    order_pair(store)
    first = take(store, "lab/pc")
    assert accept(store, [(first, honest(store, first))], now_ms=1) == set()
    newer = replace(env_build("SoccerTwos"), build_hash="0" * 64)
    monkeypatch.setattr(audit_jobs, "env_build", lambda env: newer)
    assert link(store, now_ms=1, audit_share=1.0) == 1
    assert states(store) == [("pair", "done")]
