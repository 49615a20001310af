"""Workers over HTTP, on a real server: what a runner's token allows and nothing else, and which work it is given."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import delete, event, select, update
from worker_server import Served

from palus.arena.jobs.remote import HttpSource
from palus.arena.jobs.worker import work
from palus.arena.ladder import queue
from palus.arena.ladder.log import LogRecord, check_chain
from palus.arena.ladder.match_files import read_replay
from palus.arena.ladder.workers import GREETING_MS, untended
from palus.errors import ArenaError, LeaseError
from palus.hub.accounts import issue_token
from palus.store.engine import now_ms
from palus.store.tables import jobs, matches, workers
from palus.web import worker_api
from palus.web.worker_api import Pauses


def test_a_remote_worker_validates_and_plays_and_its_results_are_in_the_log(served: Served) -> None:
    assert work(served.source("trusted"), threading.Event(), max_jobs=3) == 3
    served.scheduler.link()
    with served.store.read() as connection:
        assert check_chain(connection) == 4
        rows = [LogRecord.from_json(line) for line in connection.scalars(select(matches.c.record))]
        assert {row.runner.worker for row in rows} == {"lab/pc"}
        assert {row.runner.platform for row in rows} == {"test"}
        assert all(read_replay(served.store, row) for row in rows if row.actions)
        assert connection.execute(select(workers.c.matches)).scalar_one() == 4


def test_a_runner_reads_the_models_of_jobs_that_it_holds_and_no_other_bytes(served: Served) -> None:
    source, secret = served.source("trusted"), served.store.blobs.put(b"a private file").sha256
    (lease,) = source.take()
    assert lease.kind == "validate"
    model = lease.payload["contender"]["sha256"]
    with served.store.write() as connection:
        other = issue_token(connection, "lab-2", "pc", ("runner", "trusted"))
    stranger = HttpSource(served.url, other, "pc", {})
    served.sources.append(stranger)
    assert source.model(model) == b"not a model, but somebody's"
    for asking, sha256 in ((source, secret), (stranger, model)):
        with pytest.raises(ArenaError, match="404: No job that you hold"):
            asking.model(sha256)
    source.give_back(lease, "not here")
    with pytest.raises(ArenaError, match="404"):
        served.source("trusted", "later").model(model)


def test_only_runner_tokens_are_let_in(served: Served) -> None:
    with pytest.raises(ArenaError, match="403: The token 'write' may not run matches"):
        served.source("write")
    assert served.post("hello", {"worker": "pc", "about": {}}, token="nonsense")[0] == 401
    with pytest.raises(ArenaError, match="cannot be reached"):
        HttpSource("http://127.0.0.1:1", "palus_x", "pc", {})


def test_what_nobody_could_check_later_goes_to_trusted_workers_alone(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with served.store.write() as connection:
        duels = {key: (99, {"env": "doom_duel"}) for key in ("one", "two")}
        queue.enqueue(connection, "pair", duels, now_ms=1)
    games = ["SoccerTwos", "doom_duel"]
    stranger, friend = (served.source(scope, scope, games=games) for scope in ("runner", "trusted"))
    assert (stranger.trusted, friend.trusted) == (False, True)
    given = stranger.take(9)
    assert len(given) == 3 and {(lease.kind, lease.payload["env"]) for lease in given} == {("pair", "SoccerTwos")}
    assert "wait for a worker" not in caplog.text  # a trusted one said hello just now
    assert stranger.take() == []
    assert [(lease.kind, lease.payload["env"]) for lease in friend.take(3)] == [
        ("pair", "doom_duel"),
        ("pair", "doom_duel"),
        ("validate", "SoccerTwos"),
    ]
    assert friend.take() == []


def test_pairs_that_strangers_give_back_are_played_by_a_trusted_worker(served: Served) -> None:
    with served.store.write() as connection:
        connection.execute(delete(jobs).where(jobs.c.kind == "validate"))
    stranger = served.source()
    while leases := stranger.take(3):
        for lease in leases:
            stranger.give_back(lease, "I would lose")
    with served.store.read() as connection:
        assert set(connection.scalars(select(jobs.c.state))) == {"ready"}
    assert work(served.source("trusted"), threading.Event(), max_jobs=3) == 3


def test_jobs_that_wait_for_a_trusted_worker_in_vain_are_told(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    stranger = served.source()
    assert [len(stranger.take(100)) for _ in range(3)] == [3, 0, 0]
    sentence = "Jobs wait for a worker that this arena trusts, and none is there: 1 of SoccerTwos."
    assert caplog.text.count(sentence) == 1 and "palus account add NAME --scope trusted" in caplog.text
    with served.store.read() as connection:
        assert (untended(connection, now_ms()) or "").startswith(sentence)
    assert served.source("trusted").take()
    with served.store.write() as connection:
        assert untended(connection, now_ms()) is None
        queue.enqueue(connection, "validate", {"v": (0, {"env": "SoccerTwos"})}, now_ms=1)
        connection.execute(update(workers).values(last_seen_ms=1))
        assert untended(connection, now_ms()) is None  # it is busy
        connection.execute(update(jobs).values(lease_until_ms=1))
        assert untended(connection, now_ms()) is not None


def test_an_idle_worker_s_question_writes_nothing(served: Served) -> None:
    source = served.source("trusted")
    with served.store.write() as connection:
        connection.execute(delete(jobs))
    written: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        written.extend(word for word in ("BEGIN IMMEDIATE", "UPDATE", "INSERT") if statement.startswith(word))

    event.listen(served.store.engine, "before_cursor_execute", note)
    assert [source.take() for _ in range(3)] == [[]] * 3 and written == []
    with served.store.write() as connection:
        connection.execute(update(workers).values(last_seen_ms=now_ms() - GREETING_MS))
    written.clear()
    assert source.take() == [] and written == ["BEGIN IMMEDIATE", "UPDATE"], "now and then it says that it is there"


def test_an_idle_worker_s_question_takes_two_turns_of_a_connection_and_one_more_to_say_that_it_is_there(
    served: Served,
) -> None:
    source = served.source()
    with served.store.write() as connection:
        connection.execute(delete(jobs))
    turns: list[str] = []
    event.listen(served.store.engine, "checkout", lambda *_: turns.append(threading.current_thread().name))
    assert source.take() == [] and len(turns) == 2, "whose token, and whether something waits"
    with served.store.write() as connection:
        connection.execute(update(workers).values(last_seen_ms=now_ms() - GREETING_MS))
    turns.clear()
    assert source.take() == [] and len(turns) == 3


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """Of an instant: whoever asks, on a busy machine too, asks at the same time."""
    monkeypatch.setattr(worker_api, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    return Pauses()


def test_idle_workers_ask_one_after_another_however_many_they_are(pauses: Pauses) -> None:
    given = [pauses.next_s("lab") for _ in range(2000)]
    assert given == sorted(given)
    assert [given[0], given[500], given[-1]] == pytest.approx([0.5, 20.5, 40.0])


def test_an_account_that_asks_and_asks_lets_only_itself_wait(pauses: Pauses) -> None:
    assert [pauses.next_s("eve") for _ in range(600)][-1] == pytest.approx(24.46)
    assert [pauses.next_s("lab") for _ in range(3)] == pytest.approx([0.5, 0.58, 0.66])


def test_wrong_tokens_are_metered_and_the_right_one_still_works(served: Served) -> None:
    hello = {"worker": "pc", "about": {}}
    codes = [served.post("hello", hello, token=f"palus_{number}")[0] for number in range(40)]
    assert set(codes[:30]) == {401} and codes[-1] == 429
    assert served.post("hello", hello)[0] == 200


def test_a_lease_that_was_lost_is_told_apart_from_other_refusals(served: Served) -> None:
    source = served.source()
    (lease,) = source.take()
    source.renew([lease])
    with served.store.write() as connection:
        connection.execute(update(jobs).where(jobs.c.id == lease.job_id).values(lease_until_ms=1))
    served.scheduler.take_back()
    with pytest.raises(LeaseError):
        source.renew([lease])
    with pytest.raises(LeaseError):
        source.give_back(lease, "too late")
