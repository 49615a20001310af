"""The migrations on real databases: they make the declared tables, once, also when two processes start together."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, MetaData, create_engine, insert, inspect, select, text, update

from palus.arena.ladder.log import check_head, noted_head
from palus.errors import StorageError
from palus.store import Store, open_store
from palus.store.derived import DERIVED, census, play_stats, ratings
from palus.store.engine import REVISION, STEPS, is_current, open_engine, revision_of
from palus.store.tables import blobs, derived_tables, entries, jobs, metadata, repos

FACTS = metadata.tables.keys() - {table.name for table in DERIVED}


def test_migrations_make_exactly_the_declared_tables(store: Store) -> None:
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        difference = compare_metadata(context, metadata)
    assert difference == [], "tables.py and the files in store/migrations/versions disagree"


def test_foreign_keys_and_indexes_are_the_declared_ones(store: Store) -> None:
    # Alembic compares them by their columns; names and ON DELETE count too.
    with store.read() as connection:
        found = inspect(connection)
        for table in metadata.tables.values():
            declared = {(str(key.name), key.ondelete) for key in table.foreign_key_constraints}
            made = {(k["name"], k["options"].get("ondelete")) for k in found.get_foreign_keys(table.name)}
            assert made == declared, table.name
            indexes = {i["name"] for i in found.get_indexes(table.name) if not i.get("duplicates_constraint")}
            assert indexes == {index.name for index in table.indexes}, table.name


def test_the_newest_step_is_the_one_that_is_checked_for() -> None:
    config = Config()
    config.set_main_option("script_location", str(STEPS))
    assert ScriptDirectory.from_config(config).get_current_head() == REVISION


def test_entries_of_an_older_palus_keep_the_entity_that_they_were(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'palus.db'}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(STEPS))
        command.upgrade(config, "0002")
        row = "'hub', 'ann/a', 'ann', 'f', 'SoccerTwos', 'SoccerTwos.onnx', 'abc', 'accepted', '{}', 1"
        names = "source, repo, owner, revision, env, file, sha256, state, details, pushed_ms"
        connection.execute(text(f"INSERT INTO entries ({names}) VALUES ({row})"))
    engine.dispose()
    store = open_store(tmp_path)
    with store.read() as connection:
        columns = "sha256, file_sha256, computation"
        assert connection.execute(text(f"SELECT {columns} FROM entries")).one() == ("abc", "abc", None)
    store.close()


def test_what_repositories_of_an_older_palus_take_is_added_up_once(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'palus.db'}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(STEPS))
        command.upgrade(config, "0015")
        names = "id, name, key, kind, created_ms"
        connection.execute(text(f"INSERT INTO accounts ({names}) VALUES (1, 'a', 'a', 'user', 1)"))
        for repo in (1, 2):
            row = f"{repo}, 'model', 1, 'a/{repo}', 'a/{repo}', 0, '{{}}', 0, 1, 1"
            names = "id, kind, owner_id, name, key, private, card, downloads, created_ms, modified_ms"
            connection.execute(text(f"INSERT INTO repos ({names}) VALUES ({row})"))
        for sha256, size in (("x", 10), ("y", 100)):
            names = "sha256, size, git_sha1, created_ms, pinned"
            connection.execute(text(f"INSERT INTO blobs ({names}) VALUES ('{sha256}', {size}, '', 1, 0)"))
        for number, sha256s in enumerate(("", "x", "xy", "y")):
            row = f"'{number}', 1, {number}, '', '', 'a', 1"
            names = "id, repo_id, number, title, message, author, created_ms"
            connection.execute(text(f"INSERT INTO commits ({names}) VALUES ({row})"))
            for sha256 in sha256s:
                size = {"x": 10, "y": 100}[sha256]
                row = f"'{number}', 'path{sha256}', '{sha256}', {size}, 0"
                names = "commit_id, path, sha256, size, lfs"
                connection.execute(text(f"INSERT INTO commit_files ({names}) VALUES ({row})"))
    engine.dispose()
    store = open_store(tmp_path)
    with store.read() as connection:
        used = connection.execute(select(repos.c.id, repos.c.used_bytes).order_by(repos.c.id)).all()
    assert used == [(1, 10 + 100 + 4 * (300 + 2 * len("pathx"))), (2, 0)]
    store.close()


def test_the_log_of_an_older_palus_ends_where_it_is_found(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'palus.db'}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(STEPS))
        command.upgrade(config, "0004")
        names = "seq, id, unit_id, leg, env, season, blue, purple, result, rated, worker, finished_ms, record"
        names += ", prev_hash, hash"
        for seq, match in ((1, "a"), (2, "b")):
            row = f"{seq}, '{match}', 'u', 1, 'e', 1, 'x', 'y', 'win1', 1, 'w', 5, '{{}}', '', 'hash {seq}'"
            connection.execute(text(f"INSERT INTO matches ({names}) VALUES ({row})"))
        connection.execute(text("INSERT INTO annulments VALUES ('a', 'forged', 7)"))
    engine.dispose()
    store = open_store(tmp_path)
    with store.read() as connection:
        assert check_head(connection) == (2, "hash 2")
        noted = noted_head(connection, "annulments")
    assert noted == (1, hashlib.sha256(b'[["a","forged",7]]').hexdigest())
    store.close()


def test_what_an_older_palus_leased_and_cannot_be_checked_later_waits_for_a_trusted_worker(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'palus.db'}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(STEPS))
        command.upgrade(config, "0005")
        names = "kind, key, env, payload, state, priority, attempts, lease, created_ms"
        for kind, env in (("validate", "SoccerTwos"), ("pair", "doom_duel"), ("pair", "SoccerTwos")):
            row = f"'{kind}', '{kind} {env}', '{env}', '{{}}', 'leased', 0, 1, 'secret', 1"
            connection.execute(text(f"INSERT INTO jobs ({names}) VALUES ({row})"))
    engine.dispose()
    store = open_store(tmp_path)
    with store.read() as connection:
        found = connection.execute(select(jobs.c.trusted_only, jobs.c.state, jobs.c.lease).order_by(jobs.c.id)).all()
    assert found == [(True, "ready", None), (True, "ready", None), (False, "leased", "secret")]
    store.close()


def test_files_that_an_entry_of_an_older_palus_names_are_kept_each_of_a_set_too(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'palus.db'}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(STEPS))
        command.upgrade(config, "0012")
        for name in ("alone", "striker", "goalie", "played", "orphan"):
            connection.execute(text(f"INSERT INTO blobs VALUES ('{name}', 1, 'g', 1, 0)"))
        names = "source, repo, owner, revision, env, files, sha256, state, details, pushed_ms"
        for files, sha256 in (('{"A": "alone"}', "alone"), ('{"G": "goalie", "S": "striker"}', "both")):
            row = f"'hub', 'ann/{sha256}', 'ann', 'f', 'e', '{files}', '{sha256}', 'withdrawn', '{{}}', 1"
            connection.execute(text(f"INSERT INTO entries ({names}) VALUES ({row})"))
        names = "seq, id, unit_id, leg, env, season, blue, purple, result, rated, worker, finished_ms, record"
        row = "1, 'a', 'u', 1, 'e', 0, 'played', 'both', 'win1', 1, 'w', 5, '{}', '', 'hash 1'"
        connection.execute(text(f"INSERT INTO matches ({names}, prev_hash, hash) VALUES ({row})"))
    engine.dispose()
    store = open_store(tmp_path)
    with store.read() as connection:
        pinned = set(connection.scalars(select(blobs.c.sha256).where(blobs.c.pinned)))
    assert pinned == {"alone", "striker", "goalie", "played"}
    store.close()


def test_the_first_step_without_derived_tables_keeps_facts_and_statistics_of_replays(
    tmp_path: Path, url: str | None
) -> None:
    engine = open_engine(url or f"sqlite:///{tmp_path / 'palus.db'}")
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(STEPS))
        command.upgrade(config, "0006")
        connection.execute(text("CREATE TABLE play_stats (match_id VARCHAR(32) PRIMARY KEY, stats TEXT NOT NULL)"))
        (found := MetaData()).reflect(connection)
        kept = [found.tables[name] for name in {*FACTS, "play_stats"} - {"derived_tables"}]
        for table in found.sorted_tables:
            if table in kept:
                connection.execute(insert(table).values({column.name: example(column) for column in table.columns}))
        before = {table.name: connection.execute(select(table)).all() for table in kept}
    entry = dict(before.pop("entries")[0]._mapping)
    assert entry.pop("file") == "x"
    engine.dispose()
    store = open_store(tmp_path, url)
    with store.read() as connection:
        assert {name: connection.execute(select(found.tables[name])).all() for name in before} == before
        assert connection.execute(select(entries)).mappings().one() == entry | {"files": '{"x": "x"}'}
        assert is_current(connection)
    store.close()


def example(column: Column[Any]) -> object:
    """A value that a column takes; all columns of a kind hold the same, so that foreign keys fit."""
    return {int: 1, str: "x", bool: True, float: 0.1, bytes: b"x"}[column.type.python_type]


def test_a_derived_table_that_was_declared_otherwise_is_made_anew_and_no_other(tmp_path: Path, url: str | None) -> None:
    open_store(tmp_path, url).close()
    engine = open_engine(url or f"sqlite:///{tmp_path / 'palus.db'}")
    with (
        engine.begin() as connection
    ):  # as a palus leaves them whose ratings lacked a column, and that had one table more
        for table in (ratings, play_stats, census):
            connection.execute(insert(table).values({column.name: example(column) for column in table.columns}))
        connection.execute(text("ALTER TABLE ratings DROP COLUMN elo"))
        changed = derived_tables.c.name.in_(["ratings", "intake"])
        connection.execute(update(derived_tables).where(changed).values(digest="other"))
        connection.execute(text("CREATE TABLE streaks (env VARCHAR(64))"))
        connection.execute(insert(derived_tables).values(name="streaks", digest="any"))
    engine.dispose()
    store = open_store(tmp_path, url)
    with store.read() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []
        assert connection.execute(select(ratings)).all() == []
        assert connection.execute(select(census)).all() == []  # what the log adds up to is one thing with `intake`
        assert len(connection.execute(select(play_stats)).all()) == 1
        assert is_current(connection)
    store.close()


def test_opening_again_changes_nothing(tmp_path: Path, url: str | None) -> None:
    for _ in range(2):
        store = open_store(tmp_path, url)
        with store.write() as connection:
            assert revision_of(connection) == REVISION
            connection.execute(text("INSERT INTO annulments VALUES (:id, 'test', 1)"), {"id": f"m{id(store)}"})
        store.close()
    store = open_store(tmp_path, url)
    with store.read() as connection:
        assert connection.execute(text("SELECT count(*) FROM annulments")).scalar() == 2
    store.close()


def test_a_database_of_a_newer_palus_is_refused_and_untouched(tmp_path: Path, url: str | None) -> None:
    store = open_store(tmp_path, url)
    with store.write() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StorageError, match=rf"version 9999.*up to {REVISION}.*update palus"):
        open_store(tmp_path, url)
    with store.read() as connection:
        assert revision_of(connection) == "9999"
    store.close()


OPEN = """
import sys
from pathlib import Path
from palus.store import open_store
input()
open_store(Path(sys.argv[1]), sys.argv[2] or None).close()
"""


def test_processes_that_start_together_make_the_tables_once(tmp_path: Path, url: str | None) -> None:
    line = [sys.executable, "-c", OPEN, str(tmp_path / "data"), url or ""]
    openers = [subprocess.Popen(line, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    for opener in openers:
        assert opener.stdin is not None
        opener.stdin.write("\n")
        opener.stdin.flush()
    faults = [opener.communicate(timeout=120)[1] for opener in openers]
    assert [opener.returncode for opener in openers] == [0, 0, 0], faults
    store = open_store(tmp_path / "data", url)
    with store.read() as connection:
        assert set(inspect(connection).get_table_names()) == {*metadata.tables, "alembic_version"}
    store.close()


def test_a_place_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="choose another data folder"):
        open_store(tmp_path / "file" / "data")
    (tmp_path / "palus.db").write_text("this is no database, and it is longer than a header of one hundred bytes " * 3)
    with pytest.raises(StorageError, match="cannot be opened"):
        open_store(tmp_path)


def test_a_password_is_never_shown(tmp_path: Path) -> None:
    with pytest.raises(StorageError) as refused:
        open_store(tmp_path, "postgresql+psycopg://palus:secret@127.0.0.1:1/none?connect_timeout=2")
    assert "secret" not in str(refused.value)
    assert "check the address" in str(refused.value)


@pytest.mark.parametrize("address", ["nonsense", "nosuch://palus:secret@host/name"])
def test_an_address_that_is_none_is_told_from_one_that_does_not_answer(tmp_path: Path, address: str) -> None:
    with pytest.raises(StorageError, match=r"expected something like postgresql\+psycopg://user@host/name") as refused:
        open_store(tmp_path, address)
    assert "secret" not in str(refused.value)


def test_opening_a_current_database_does_not_load_alembic(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    code = (
        "import sys; from pathlib import Path; from palus.store import open_store; "
        "open_store(Path(sys.argv[1])).close(); sys.exit('alembic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path]).returncode == 0
