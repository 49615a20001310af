"""Who takes part: sources, equal files, revisions, withdrawals."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from arena_records import record, sha
from sqlalchemy import delete, event, select, update

from palus.arena.ladder import queue, scheduler
from palus.arena.ladder.discovery import Entry, FolderPool, Source, Sweep, sweep_house
from palus.arena.ladder.entries import decide, forget, read_lineup, take_in
from palus.arena.ladder.field_picture import Ledger, take_picture
from palus.arena.ladder.log import append
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler, run_sweep
from palus.arena.ladder.service import _is_new
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.models.entity import Entity
from palus.arena.models.refusal import Refusal
from palus.hub.accounts import create_account
from palus.store import Store
from palus.store.tables import entries, jobs

ENV = "SoccerTwos"
BAD = Refusal("wrong-contract", "obs_1 is missing", "export again")


def found(repo: str, file: str = "", revision: str = "1") -> Entry:
    """A revision whose model has the bytes `file`."""
    made = Entity(sha(file or repo), repo, sha(repo + revision)[:40], ((ENV, sha(file or repo)),))
    return Entry(made, 5)


def sweep(*revisions: Entry, source: Source = "hub") -> Sweep:
    return Sweep(source, ENV, revisions, frozenset(f.entity.repo for f in revisions))


def take(store: Store, *revisions: Entry, source: Source = "hub") -> list[tuple[str, str]]:
    with store.write() as connection:
        return [(c.repo, c.state) for c in take_in(connection, sweep(*revisions, source=source), {}, now_ms=9)]


def accept_file(store: Store, file: str, computes: str = "") -> None:
    with store.write() as connection:
        decide(connection, ENV, sha(file), None, {"p99_ms": 0.1, "computation": sha(computes or file)}, now_ms=10)


def on_board(store: Store, repos_per_owner: int = 0) -> list[str]:
    with store.read() as connection:
        return sorted(e.repo for e in read_lineup(connection, ENV, repos_per_owner=repos_per_owner).ranked.values())


def waiting(store: Store) -> list[str]:
    with store.read() as connection:
        return [job["contender"]["repo"] for job in map(json.loads, queue.open_payloads(connection, "validate", ENV))]


def test_a_push_is_validated_once_and_then_ranked(store: Store) -> None:
    assert take(store, found("ann/a")) == [("ann/a", "pending")]
    assert take(store, found("ann/a")) == []
    assert (waiting(store), on_board(store)) == (["ann/a"], [])
    accept_file(store, "ann/a")
    assert on_board(store) == ["ann/a"]


def test_models_of_a_game_that_is_not_played_here_wait_with_a_reason_until_it_is(store: Store) -> None:
    def look(params: dict[str, object] | None, *revisions: Entry) -> list[tuple[str, str]]:
        with store.write() as connection:
            return [(c.repo, c.state) for c in take_in(connection, sweep(*revisions), params, now_ms=9)]

    assert look(None, found("ann/a"), found("bob/b")) == [("ann/a", "waiting"), ("bob/b", "waiting")]
    assert look(None, found("ann/a"), found("bob/b")) == [] == waiting(store)
    with store.read() as connection:
        row = connection.execute(select(entries).where(entries.c.repo == "ann/a")).one()
    assert (row.code, row.sentence) == ("not-played", "waiting: this arena does not play SoccerTwos")
    assert "--game SoccerTwos" in row.remedy and row.checked_ms is None
    assert look(None, found("ann/a")) == [("bob/b", "withdrawn")]
    assert look({}, found("ann/a"), found("bob/b")) == [("ann/a", "pending"), ("bob/b", "pending")]
    assert waiting(store) == ["ann/a", "bob/b"]
    assert look(None, found("ann/a"), found("bob/b")) == [("ann/a", "waiting"), ("bob/b", "waiting")]
    accept_file(store, "ann/a")
    assert look({}, found("ann/a"), found("bob/b")) == [("ann/a", "accepted"), ("bob/b", "pending")]
    assert on_board(store) == ["ann/a"]
    with store.read() as connection:
        assert connection.execute(select(entries.c.code).where(entries.c.repo == "bob/b")).scalar() is None


def test_equal_files_are_one_entity_credited_to_the_first_and_share_one_validation(store: Store) -> None:
    take(store, found("ann/a", "same"), found("bob/b", "same"))
    assert waiting(store) == ["ann/a"]
    accept_file(store, "same")
    assert take(store, found("ann/a", "same"), found("bob/b", "same"), found("cy/c", "same")) == [("cy/c", "accepted")]
    with store.read() as connection:
        (entity,) = read_lineup(connection, ENV, repos_per_owner=0).ranked.values()
    assert (entity.repo, entity.owner) == ("ann/a", "ann")


def test_files_that_compute_the_same_are_one_entity_too(store: Store) -> None:
    take(store, found("ann/a", "weights"))
    accept_file(store, "weights", computes="this")
    take(store, found("ann/a", "weights"), found("bob/b", "weights, and a comment"))
    assert waiting(store) == ["ann/a", "bob/b"], "nobody can tell before the check"
    accept_file(store, "weights, and a comment", computes="this")
    take(
        store,
        found("ann/a", "weights"),
        found("bob/b", "weights, and a comment"),
        found("cy/c", "weights, and a comment"),
    )
    with store.read() as connection:
        assert {key: e.repo for key, e in read_lineup(connection, ENV, repos_per_owner=0).ranked.items()} == {
            sha("weights"): "ann/a"
        }
        rows = {row.repo: row for row in connection.execute(select(entries))}
    assert {row.sha256 for row in rows.values()} == {sha("weights")}
    assert rows["cy/c"].file_sha256 == rows["bob/b"].file_sha256 == sha("weights, and a comment")


def test_copies_of_everybodys_models_keep_nobody_apart(store: Store) -> None:
    students = ["ann", "bob", "cy", "dan", "eva", "flo"]
    theirs = [found(f"{name}/a", name) for name in students]
    copies = [found(f"mal/copy-of-{name}", name) for name in students]
    take(store, *theirs, *copies)
    for name in students:
        accept_file(store, name)
    with store.read() as connection:
        ranked = read_lineup(connection, ENV, repos_per_owner=10).ranked
    assert sorted(entrant.owner for entrant in ranked.values()) == students
    seen = take_picture(list(ranked.values()), ranked, Ledger(ENV, 1), [], [], None, ArenaSettings())
    assert len(set(seen.owner.tolist())) == 6


def test_whoever_pushes_without_end_waits_while_others_are_checked_and_play(store: Store) -> None:
    flood = [found("mal/a", f"{number}", revision=str(number)) for number in range(25)]
    take(store, *flood)
    take(store, *flood, found("ann/a"))
    with store.write() as connection:
        match = {"env": ENV, "contender": {"repo": "x/y"}}
        queue.enqueue(connection, "pair", {"pair:1": (queue.PRIORITY_LADDER, match)}, now_ms=9)
        taken = queue.take(connection, "w", [ENV], trusted=True, lease_s=60, now_ms=9, count=27)
    owners = [lease.payload["contender"]["repo"].partition("/")[0] for lease in taken]
    assert owners.index("ann") <= 1 and owners[22:] == ["x"] + ["mal"] * 4


def test_many_new_models_are_taken_in_few_at_once_and_what_was_asked_before_is_read_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "TAKEN_AT_ONCE", 20)
    pushed = sweep(*(found(f"ann/{number}", f"{number}") for number in range(50)))
    writes, read = list[int](), list[str]()
    event.listen(store.engine, "commit", lambda connection: writes.append(len(read)))
    event.listen(store.engine, "before_cursor_execute", lambda *call: read.append(call[2]))
    run_sweep(store, PeriodicSweep(lambda env: pushed, 1e9), ArenaSettings())
    assert len(writes) == 3 and sum(text.startswith("SELECT jobs.payload") for text in read) == 3
    assert sorted(waiting(store)) == sorted(f"ann/{number}" for number in range(50))


def test_a_refused_file_is_refused_with_its_reason_for_everybody(store: Store) -> None:
    take(store, found("ann/a", "bad"))
    with store.write() as connection:
        decide(connection, ENV, sha("bad"), BAD, {}, now_ms=10)
        assert connection.execute(select(entries.c.repo, entries.c.state)).all() == [("ann/a", "refused")]
    assert take(store, found("ann/a", "bad"), found("bob/b", "bad")) == [("bob/b", "refused")]
    with store.read() as connection:
        rows = connection.execute(select(entries.c.code, entries.c.sentence, entries.c.remedy)).all()
    assert [tuple(row) for row in rows] == [("wrong-contract", "obs_1 is missing", "export again")] * 2


def test_a_model_that_no_worker_could_check_is_checked_again_with_the_next_revision(store: Store) -> None:
    take(store, found("ann/a", "same"))
    with store.write() as connection:
        connection.execute(update(jobs).values(state="failed", fault="no process"))
    Scheduler(store, ArenaSettings(), []).take_back()
    assert take(store, found("ann/a", "same"), found("ann/a", "same", "2")) == [("ann/a", "pending")]
    assert waiting(store) == ["ann/a"] and Scheduler(store, ArenaSettings(), []).take_back() is None
    accept_file(store, "same")
    assert on_board(store) == ["ann/a"]


def test_the_board_shows_the_newest_accepted_revision_and_older_ones_stay_as_history(store: Store) -> None:
    take(store, found("ann/a", "one"))
    accept_file(store, "one")
    take(store, found("ann/a", "two", revision="2"))
    with store.read() as connection:
        assert set(read_lineup(connection, ENV, repos_per_owner=0).ranked) == {sha("one")}
    accept_file(store, "two")
    with store.read() as connection:
        assert set(read_lineup(connection, ENV, repos_per_owner=0).ranked) == {sha("two")}
        assert set(read_lineup(connection, ENV, repos_per_owner=0).credited) == {sha("one"), sha("two")}


def test_a_revision_that_is_offered_again_is_ranked_in_place_of_those_that_came_after_it(store: Store) -> None:
    one, two = found("ann/a", "one"), found("ann/a", "two", revision="2")
    take(store, one)
    take(store, two)  # before the first was checked
    take(store, one)
    accept_file(store, "one")
    accept_file(store, "two")
    other = found("ann/a", "elsewhere", revision="3")
    take(store, other, source="folder")
    accept_file(store, "elsewhere")

    def ranked() -> set[str]:
        with store.read() as connection:
            return set(read_lineup(connection, ENV, repos_per_owner=0).ranked)

    assert take(store, one) == [("ann/a", "withdrawn")]
    assert take(store, one) == [] == take(store, other, source="folder"), "sources do not compete"
    with store.write() as connection:
        connection.execute(delete(entries).where(entries.c.source == "folder"))
    assert ranked() == {sha("one")}
    assert take(store, two) == [("ann/a", "accepted")]
    assert ranked() == {sha("two")}
    assert take(store, one) == [("ann/a", "withdrawn")]
    assert ranked() == {sha("one")}


def test_of_another_hub_revisions_are_fetched_that_are_new_or_come_back(store: Store) -> None:
    one, two = found("ann/a", "one").entity, found("ann/a", "two", revision="2").entity
    for revision in ("1", "2"):
        take(store, found("ann/a", "one" if revision == "1" else "two", revision), source="hf")
    accept_file(store, "one")
    accept_file(store, "two")

    def wanted() -> list[bool]:
        is_new = _is_new(store, ENV)
        return [is_new("ann/a", revision) for revision in (one.revision, two.revision, "3" * 40)]

    assert wanted() == [True, False, True]
    take(store, found("ann/a", "one"), source="hf")
    assert wanted() == [False, True, True]
    take(store, source="hf")
    assert wanted() == [True, True, True]


def test_of_an_owner_only_the_repositories_pushed_last_are_ranked(store: Store) -> None:
    names = [f"ann/{i}" for i in range(4)]
    take(store, *(found(name) for name in names), found("bob/b"))
    for name in [*names, "bob/b"]:
        accept_file(store, name)
    assert on_board(store, repos_per_owner=2) == ["ann/2", "ann/3", "bob/b"]
    take(store, *(found(name) for name in names), found("bob/b"), found("ann/0", "better", revision="2"))
    accept_file(store, "better")
    assert on_board(store, repos_per_owner=2) == ["ann/0", "ann/3", "bob/b"]


def test_a_repository_that_is_gone_is_withdrawn_and_comes_back_with_its_verdict(store: Store) -> None:
    take(store, found("ann/a"), found("bob/b"))
    accept_file(store, "ann/a")
    assert take(store) == [("ann/a", "withdrawn"), ("bob/b", "withdrawn")]
    assert on_board(store) == []
    with store.write() as connection:
        decide(connection, ENV, sha("bob/b"), BAD, {}, now_ms=11)
    for _ in range(2):  # who was refused goes and comes, too
        assert take(store, found("ann/a"), found("bob/b")) == [("ann/a", "accepted"), ("bob/b", "refused")]
        assert on_board(store) == ["ann/a"]
        assert take(store) == [("ann/a", "withdrawn"), ("bob/b", "withdrawn")]


def test_a_sweep_that_changes_nothing_keeps_nobody_from_writing(store: Store) -> None:
    offered = [sweep(found("ann/a"), found("bob/b"))]
    periodic = PeriodicSweep(lambda env: offered[-1], 1.0)
    written: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        written.extend(word for word in ("BEGIN IMMEDIATE", "UPDATE", "INSERT") if statement.startswith(word))

    event.listen(store.engine, "before_cursor_execute", note)
    run_sweep(store, periodic, ArenaSettings())
    assert written.count("BEGIN IMMEDIATE") == 1
    accept_file(store, "ann/a")
    for changed, then in ((False, offered[-1]), (True, sweep(found("ann/a"))), (False, sweep(found("ann/a")))):
        offered.append(then)
        written.clear()
        run_sweep(store, periodic, ArenaSettings())
        assert bool(written) == changed, then


def test_a_source_that_takes_much_work_is_looked_at_as_rarely(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now, worked, takes, work, looked = 0.0, 0.0, 0.0, 0.0, list[float]()

    def look(env: str) -> Sweep:
        nonlocal now, worked
        looked.append(now)
        now, worked = now + takes, worked + work
        return sweep()

    monkeypatch.setattr(scheduler, "time", SimpleNamespace(monotonic=lambda: now, thread_time=lambda: worked))
    # As long as no model is there no pair is drawn from them either.
    plan = Scheduler(store, ArenaSettings(uniform_share=1.0), [PeriodicSweep(look, 1.0)])
    for begun, lasts, costs in (
        (100.0, 0.01, 0.01),
        (100.9, 0.01, 0.01),
        (101.1, 0.5, 0.4),
        (105.0, 0.4, 0.4),
        (105.2, 9.0, 0.01),  # it waits, most of the time
        (114.3, 0.4, 0.4),
    ):
        now, takes, work = begun, lasts, costs
        plan.tick()
    assert looked == [100.0, 101.1, 105.2, 114.3]


def test_refused_revisions_that_no_repository_shows_are_forgotten_with_their_checks(store: Store) -> None:
    played = record(1, blue="ann/lost", purple="bob/b")
    with store.write() as connection:
        append(connection, [played], finished_ms=1)
    revisions = [found("ann/a", f"bad {n}", str(n)) for n in range(3)]
    others = [found("ann/lost", "ann/lost"), found("bob/b"), found("gone/a", "gone")]
    take(store, *revisions, *others)
    with store.write() as connection:
        for file in ("bad 0", "bad 1", "bad 2", "ann/lost", "gone"):
            decide(connection, ENV, sha(file), BAD, {}, now_ms=10)
        connection.execute(update(jobs).values(state="done"))
    accept_file(store, "bob/b")
    take(store, revisions[-1], found("bob/b"))
    assert forget(store, before_ms=10) == 0, "for some time they stay"
    assert forget(store, before_ms=11) == 3 and forget(store, before_ms=11) == 0
    with store.read() as connection:
        rows = connection.execute(select(entries.c.repo, entries.c.state).order_by(entries.c.id)).all()
        kept = {key.rpartition(":")[2] for key in connection.scalars(select(jobs.c.key))}
    assert rows == [("ann/a", "refused"), ("ann/lost", "withdrawn"), ("bob/b", "accepted")]
    assert kept == {sha("bad 2"), sha("ann/lost"), sha("bob/b")}
    assert take(store, revisions[-1], found("bob/b"), found("cy/c", "gone")) == [("cy/c", "pending")]
    assert waiting(store) == ["cy/c"], "it is checked again"


def test_a_file_that_is_forgotten_in_one_game_and_stays_in_another_is_checked_again(store: Store) -> None:
    def offer(env: str, file: str, revision: str) -> list[tuple[str, str]]:
        entry = Entry(Entity(sha(file), "ann/a", sha(revision)[:40], ((env, sha(file)),)), 5)
        with store.write() as connection:
            changes = take_in(connection, Sweep("hub", env, (entry,), frozenset({"ann/a"})), {}, now_ms=9)
        return [(change.repo, change.state) for change in changes]

    other = "doom_duel"
    offer(ENV, "same", "1")
    offer(other, "same", "1")
    accept_file(store, "same")
    with store.write() as connection:
        decide(connection, other, sha("same"), BAD, {}, now_ms=10)
        connection.execute(update(jobs).values(state="done"))
    offer(other, "better", "2")
    assert forget(store, before_ms=11) == 1
    with store.read() as connection:
        kept = connection.scalars(select(jobs.c.key).where(jobs.c.key.endswith(sha("same")))).all()
    assert kept == [f"validate:{ENV}:{sha('same')}"]
    assert offer(other, "same", "3") == [("ann/a", "pending")]
    with store.read() as connection:
        assert len(queue.open_payloads(connection, "validate", other)) == 2


def test_models_of_another_hub_do_not_take_the_names_of_people_here(store: Store) -> None:
    take(store, found("ann/a"))
    accept_file(store, "ann/a")
    theirs = found("ann/a", "stronger", "2"), found("Ann/b", "other"), found("bob/b")
    assert take(store, *theirs, source="hf") == [("bob/b", "pending")]
    accept_file(store, "bob/b")
    assert on_board(store) == ["ann/a", "bob/b"]
    with store.write() as connection:
        create_account(connection, "Bob")
    assert take(store, found("ann/a")) == [("bob/b", "withdrawn")]  # whether or not the other hub is asked again
    assert take(store, *theirs, source="hf") == []
    assert on_board(store) == ["ann/a"]


def test_tags_without_a_model_are_refused_with_what_to_push(store: Store) -> None:
    empty = Entry(Entity("", "ann/a", "1" * 40), 5, "missing-file")
    assert take(store, empty) == [("ann/a", "refused")]
    with store.read() as connection:
        row = connection.execute(select(entries)).one()
    assert (row.code, row.remedy) == ("missing-file", "push SoccerTwos.onnx, or remove the tag ML-Agents-SoccerTwos")


def test_house_players_are_there_from_the_start(store: Store) -> None:
    with store.write() as connection:
        take_in(connection, sweep_house(ENV), {}, now_ms=1)
        house = read_lineup(connection, ENV, repos_per_owner=1).ranked
    assert sorted((e.repo, e.house) for e in house.values()) == [
        ("palus/ball-chaser", "ball-chaser"),
        ("palus/goalie-striker", "goalie-striker"),
        ("palus/random", "random"),
    ]


def write_model(pool: Path, repo: str, content: bytes, seconds: int) -> None:
    path = pool / repo / f"{ENV}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (seconds, seconds))


def test_a_folder_pool_offers_files_that_have_rested_and_keeps_their_bytes(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "pool"
    write_model(folder, "ann/old", b"model", seconds=100)
    write_model(folder, "ann/being-copied", b"mod", seconds=200)
    write_model(folder, ".hidden/x", b"model", seconds=100)
    (folder / "ann" / "old" / "Other.onnx").write_bytes(b"x")
    pool = FolderPool(folder, store.blobs)
    seen = pool.sweep(ENV, quiet_since_ms=150_000)
    assert [(f.entity.repo, f.entity.owner, f.entity.file, f.pushed_ms) for f in seen.found] == [
        ("ann/old", "ann", "SoccerTwos.onnx", 0)
    ]
    assert seen.present == {"ann/old", "ann/being-copied"}
    assert store.blobs.read(seen.found[0].entity.sha256) == b"model"
    write_model(folder, "ann/old", b"better", seconds=120)
    again = pool.sweep(ENV, quiet_since_ms=150_000)
    assert again.found[0].entity.revision != seen.found[0].entity.revision
    assert store.blobs.read(again.found[0].entity.sha256) == b"better"


def test_what_is_no_file_in_a_pool_is_not_opened_and_keeps_nobody_else_from_playing(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, secret = tmp_path / "pool", tmp_path / "secret"
    secret.write_bytes(b"a token")
    for repo in ("eve/link", "eve/pipe", "eve/folder"):
        (folder / repo).mkdir(parents=True)
    (folder / "eve/link" / f"{ENV}.onnx").symlink_to(secret)
    os.mkfifo(folder / "eve/pipe" / f"{ENV}.onnx")
    (folder / "eve/folder" / f"{ENV}.onnx").mkdir()
    write_model(folder, "zoe/model", b"model", seconds=100)
    write_model(folder, "zoe/.aside.old.7", b"aside", seconds=100)  # of a push that was killed between its renames
    pool = FolderPool(folder, store.blobs)
    for _ in range(2):
        seen = pool.sweep(ENV, quiet_since_ms=150_000)
        assert {entry.entity.repo for entry in seen.found} == {"zoe/model", "zoe/aside"}
        assert seen.present >= {"eve/link", "eve/pipe", "eve/folder"}, "whoever played from there plays on"
    assert not store.blobs.has(hashlib.sha256(b"a token").hexdigest())
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3 and all("no plain file" in text and f"{ENV}.onnx" in text for text in told), told


def test_a_pool_has_the_models_that_lie_in_it_and_none_that_a_link_leads_to(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path / "home", "teacher/mine", b"not published", seconds=100)
    write_model(tmp_path / "own", "zoe/model", b"model", seconds=100)
    (tmp_path / "own" / "eve").mkdir()
    (tmp_path / "own" / "eve" / "new").symlink_to(tmp_path / "home" / "teacher" / "mine")
    (tmp_path / "own" / "bob").symlink_to(tmp_path / "home" / "teacher")
    (tmp_path / "pool").symlink_to(tmp_path / "own")  # whoever keeps the arena says where the pool is
    seen = FolderPool(tmp_path / "pool", store.blobs).sweep(ENV, quiet_since_ms=150_000)
    assert [entry.entity.repo for entry in seen.found] == ["zoe/model"]
    assert not store.blobs.has(hashlib.sha256(b"not published").hexdigest())
    assert len([record for record in caplog.records if "a link" in record.getMessage()]) == 2


def test_a_model_that_becomes_a_pipe_or_grows_after_the_look_is_not_waited_for(store: Store, tmp_path: Path) -> None:
    write_model(tmp_path, "ann/a", b"model", seconds=100)
    path = tmp_path / "ann/a" / f"{ENV}.onnx"
    was = path.lstat()
    pool = FolderPool(tmp_path, store.blobs)
    assert pool._store(path, was, most=4) is None  # as large as it was then
    path.write_bytes(b"a larger model")
    assert pool._store(path, was, most=8) is None
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError, match="no plain file"):
        pool._store(path, was, most=100)


@pytest.mark.parametrize("swapped", ["own/ann/a", "own/ann"])
def test_a_folder_that_becomes_a_link_after_the_look_is_not_followed(
    store: Store, tmp_path: Path, swapped: str
) -> None:
    write_model(tmp_path / "home", "ann/a", b"not published", seconds=100)
    write_model(tmp_path / "own", "ann/a", b"model", seconds=100)
    (tmp_path / "pool").symlink_to(tmp_path / "own")
    pool, path = FolderPool(tmp_path / "pool", store.blobs), tmp_path / "pool" / "ann/a" / f"{ENV}.onnx"
    was = path.lstat()
    assert store.blobs.read(pool._store(path, was, most=100) or "") == b"model"
    (tmp_path / swapped).rename(tmp_path / "aside")
    (tmp_path / swapped).symlink_to(tmp_path / "home" / Path(swapped).relative_to("own"))
    pool = FolderPool(tmp_path / "pool", store.blobs)
    with pytest.raises(OSError, match="symbolic links"):
        pool._store(path, was, most=100)
    assert not store.blobs.has(hashlib.sha256(b"not published").hexdigest())


def test_a_pool_that_is_away_takes_nobody_out_and_is_told_of_once(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_model(tmp_path / "pool", "ann/a", b"model", seconds=100)
    pool = FolderPool(tmp_path / "pool", store.blobs)
    periodic = PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=150_000), 3.0)
    run_sweep(store, periodic, ArenaSettings())
    (tmp_path / "pool").rename(tmp_path / "away")
    for _ in range(2):
        run_sweep(store, periodic, ArenaSettings())
    with store.read() as connection:
        assert connection.execute(select(entries.c.repo, entries.c.state)).all() == [("ann/a", "pending")]
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        f"{tmp_path}/pool: no folder is there; models that came from it play on. Check --pool"
    ]
