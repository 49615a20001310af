"""What workers say to an arena, of themselves and of matches: its form, what of it is kept, and what a lie costs."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from sqlalchemy import delete, func, select
from worker_server import Served

from palus.arena.jobs.reports import to_json
from palus.arena.jobs.worker import play_order, work
from palus.arena.ladder.audit import reinstate
from palus.arena.locked.unit import Unit
from palus.hub.accounts import create_account, issue_token
from palus.store.tables import annulments, jobs, matches, workers
from palus.web.worker_api import Finished


def test_what_a_worker_says_is_kept_without_what_no_database_takes(served: Served) -> None:
    source = served.source()
    (lease,) = source.take(1)
    source.give_back(lease, "broken\0 engine")
    with served.store.read() as connection:
        assert connection.scalar(select(jobs.c.fault).where(jobs.c.id == lease.job_id)) == "lab: broken engine"


def test_nobody_works_in_somebody_elses_name(served: Served) -> None:
    status, answer = served.post("take", {"worker": "local-1", "about": {}})
    assert (status, answer["code"]) == (403, "not_your_worker")
    assert served.source(worker="eve/local-1").worker == "lab/local-1"


def test_a_worker_is_called_account_and_name_so_that_no_account_is_taken_for_several(served: Served) -> None:
    for name in ("lab/1/pc", "lab/", "lab//pc", "lab", "lab/pc/"):
        status, answer = served.post("take", {"worker": name, "about": {}})
        assert (status, answer["code"]) == (403, "not_your_worker"), name
    assert served.post("hello", {"worker": "lab/", "about": {}})[1]["code"] == "no_name"
    assert served.post("take", {"worker": "lab/pc", "about": {}})[0] == 200


def test_a_worker_with_a_long_name_gets_work_or_is_told_that_it_is_too_long(served: Served) -> None:
    assert len(served.source(worker="w" * 64).take()) == 1
    with served.store.write() as connection:
        create_account(connection, "university-of-somewhere-else-again")
        token = issue_token(connection, "university-of-somewhere-else-again", "pc", ("runner",))
    status, answer = served.post("hello", {"worker": "w" * 64, "about": {}}, token)
    assert (status, answer["code"]) == (422, "long_name") and "a worker's name 96 at the most" in answer["error"]


def test_a_false_report_costs_the_account_its_trust_and_an_administrator_gives_it_back(served: Served) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.kind == "validate"))
    assert work(served.source(), threading.Event(), max_jobs=1) == 1
    served.scheduler.link()
    source = served.source(worker="two")
    (lease,) = source.take()
    honest = to_json(play_order(source, Unit.from_payload(lease.payload)))
    result = json.loads(honest["games"][0]["result"]) | {"duration_ticks": 10**30}
    honest["games"][0]["result"] = json.dumps(result, separators=(",", ":"), sort_keys=True)

    def report(secret: str) -> dict[str, Any]:
        return {"reports": [{"job": lease.job_id, "secret": secret, "report": honest}]}

    status, _ = served.post("finish", report("0" * 32))
    assert status == 422 and served.source().worker == "lab/pc"  # without its lease nobody is harmed
    status, answer = served.post("finish", report(lease.secret))
    assert (status, answer["code"]) == (422, "false_report")
    assert "duration_ticks" in answer["error"] and answer["error"].endswith("is suspended")
    for path, body in (("finish", report(lease.secret)), ("hello", {"worker": "new", "about": {}})):
        status, answer = served.post(path, body)
        assert (status, answer["code"]) == (403, "suspended") and "false report" in answer["error"]
    with served.store.read() as connection:
        assert [connection.scalar(select(func.count()).select_from(table)) for table in (matches, annulments)] == [2, 2]
    served.scheduler.take_back()
    with served.store.write() as connection:
        assert connection.execute(select(jobs.c.state).where(jobs.c.id == lease.job_id)).scalar() == "ready"
        reinstate(connection, "lab/two")
    assert served.source(worker="new").take()


def test_what_a_stranger_writes_clears_no_terminal_and_adds_no_line_where_its_suspension_is_read(
    served: Served,
) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.kind == "validate"))
    source = served.source()
    (lease,) = source.take()
    report = to_json(play_order(source, Unit.from_payload(lease.payload)))
    result = json.loads(report["games"][0]["result"])
    result["sides"][0]["repo"] = "\x1b[2J\x1b]0;owned\x07\nERROR: \u202eenif si lla"
    report["games"][0]["result"] = json.dumps(result, separators=(",", ":"), sort_keys=True)
    body = {"reports": [{"job": lease.job_id, "secret": lease.secret, "report": report}]}
    assert served.post("finish", body)[1]["code"] == "false_report"
    with served.store.read() as connection:
        reason = connection.scalar(select(workers.c.suspended).where(workers.c.name == "lab/pc")) or ""
    assert "?[2J?]0;owned??ERROR: ?enif si lla" in reason and reason.isprintable()


@pytest.mark.parametrize(
    "about",
    [{"platform": ["x"]}, {"platform": "x" * 1000}, {"runtimes": ["numpy"]}, {"runtimes": {"a": {}}}, {"games": "all"}],
)
def test_what_a_worker_says_of_its_machine_has_a_form(served: Served, about: dict[str, Any]) -> None:
    assert served.post("hello", {"worker": "pc", "about": about})[0] == 422


def test_a_worker_with_another_build_of_the_game_is_told_so(served: Served) -> None:
    about = {"games": ["SoccerTwos"], "builds": {"SoccerTwos": "0" * 64}}
    status, answer = served.post("hello", {"worker": "pc", "about": about})
    assert (status, answer["code"]) == (422, "another_build")


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("finish", b"{", 422),
        ("finish", {"reports": []}, 422),
        ("finish", {"reports": [{"job": 1, "secret": "0" * 32, "report": {"games": []}}]}, 422),
        ("finish", {"reports": [{"job": 1, "secret": "0" * 32, "report": {}, "more": 1}]}, 422),
        ("finish", {"reports": [{"job": 99, "secret": "0" * 32, "report": {"refusal": None, "trial": None}}]}, 422),
        ("renew", {"jobs": [0], "secret": "0" * 32}, 422),
        ("renew", {"jobs": [1], "secret": "0" * 32}, 409),
        ("give-back", {"job": 1, "secret": "0" * 32, "fault": ""}, 409),
        ("take", {"worker": "lab/pc", "about": {}, "jobs": 1000}, 422),
        ("hello", {"worker": "a b", "about": {}}, 422),
    ],
)
def test_nonsense_is_refused_with_a_sentence(served: Served, path: str, body: Any, status: int) -> None:
    got, answer = served.post(path, body)
    assert got == status
    assert answer["error"].endswith(".") or ";" in answer["error"] or answer["code"]


def test_reports_of_brackets_and_commas_are_not_read(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[bytes] = []
    monkeypatch.setattr(Finished, "model_validate_json", read.append)
    for message in (b"{}," * 60_000, b"[" * 110_000, b"1," * 110_000):
        status, answer = served.post("finish", b'{"reports":[' + message)
        assert (status, answer["code"]) == (413, "too_large") and read == []
