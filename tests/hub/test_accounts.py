"""Accounts and tokens: what is stored, what a token is worth, and the command that hands them out."""

from __future__ import annotations

import errno
import json
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection
from typer.testing import CliRunner

from palus.arena.ladder.refresh import Refresher
from palus.cli import app
from palus.hub.accounts import Caller, authenticate, create_account, issue_token, revoke_tokens
from palus.hub.refusals import AlreadyExistsError, InvalidInputError
from palus.store import Store, open_store


def whose(store: Store, token: str) -> Caller | None:
    with store.read() as connection:
        return authenticate(connection, token)


def test_a_token_is_random_and_kept_only_as_a_hash(store: Store) -> None:
    with store.write() as connection:
        create_account(connection, "ada")
        tokens = {issue_token(connection, "ada", "laptop") for _ in range(2)}
    assert len(tokens) == 2 and all(len(token) == len("palus_") + 43 for token in tokens)
    caller = whose(store, tokens.pop())
    assert caller is not None and (caller.name, caller.label) == ("ada", "laptop")
    assert caller.can_write_as("Ada") and not caller.can_write_as("grace") and not caller.is_admin
    store.close()
    stored = b"".join(path.read_bytes() for path in store.folder.iterdir() if path.is_file())
    assert b"laptop" in stored and b"palus_" not in stored


def test_a_revoked_token_is_worth_nothing_at_once(store: Store) -> None:
    with store.write() as connection:
        create_account(connection, "ada")
        lost, kept = (issue_token(connection, "ada", label) for label in ("lost", "kept"))
        assert revoke_tokens(connection, "ada", "lost") == 1
        assert revoke_tokens(connection, "ada", "lost") == 0
        with pytest.raises(InvalidInputError, match="ada has no token labelled lots; did you mean lost\\?"):
            revoke_tokens(connection, "ada", "lots")
    assert whose(store, lost) is None
    assert whose(store, kept) is not None
    assert whose(store, "\ud800") is None


def test_names_differ_ignoring_case_and_scopes_are_known(store: Store) -> None:
    with store.write() as connection:
        create_account(connection, "Ada")
        with pytest.raises(AlreadyExistsError):
            create_account(connection, "ada")
        with pytest.raises(InvalidInputError, match="scope root is unknown"):
            issue_token(connection, "ada", "x", ["root"])


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["account", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def test_the_command_adds_lists_and_revokes(tmp_path: Path) -> None:
    where = ("--data", tmp_path / "arena")
    token = run("add", "ada", *where).strip()
    run("add", "ada", "--scope", "runner", "--label", "lab-pc", *where)
    with closing(open_store(tmp_path / "arena")) as store:
        assert whose(store, token) is not None
        assert "1 token of ada revoked" in run("revoke", "ada", "--label", "default", *where)
        assert whose(store, token) is None
    assert json.loads(run("list", "--json", *where)) == [
        {"account": "ada", "label": "default", "scopes": ["read", "write"], "revoked": True},
        {"account": "ada", "label": "lab-pc", "scopes": ["runner"], "revoked": False},
    ]


def test_a_class_gets_a_sheet_or_with_a_bad_name_nothing(tmp_path: Path) -> None:
    where = ("--data", tmp_path / "arena")
    names = tmp_path / "class.txt"
    names.write_text("ada\n\ngrace\nbad name\n")
    assert "'bad name'" in run("tokens", names, *where, code=2)
    assert json.loads(run("list", "--json", *where)) == []
    names.write_text("ada\n\ngrace\n")
    sheet = run("tokens", names, "--address", "http://10.0.0.1:7860", *where)
    tokens = [line.split("=")[1] for line in sheet.splitlines() if "HF_TOKEN=" in line]
    with closing(open_store(tmp_path / "arena")) as store:
        callers = [whose(store, token) for token in tokens]
    assert [caller.name for caller in callers if caller] == ["ada", "grace"]
    assert sheet.count("HF_ENDPOINT=http://10.0.0.1:7860") == 2


def test_to_list_or_revoke_tokens_makes_no_arena(tmp_path: Path) -> None:
    where = ("--data", tmp_path / "aerna")
    assert "no arena has its data there" in run("list", *where, code=2)
    assert "no arena has its data there" in run("revoke", "ada", *where, code=2)
    assert not (tmp_path / "aerna").exists()


def test_who_makes_an_arena_by_its_first_account_is_told(tmp_path: Path) -> None:
    words = ["account", "add", "ada", "--data", str(tmp_path / "aerna")]
    first, second = (CliRunner().invoke(app, words).stderr for _ in range(2))
    said = f"{tmp_path}/aerna: no arena was there, so this begins one: palus arena --data {tmp_path}/aerna\n"
    assert (first, second) == (said, "")


def test_who_may_not_write_to_an_arena_is_told_who_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write_as_another(connection: Connection, *_: object) -> None:
        connection.exec_driver_sql("PRAGMA query_only=ON")  # what SQLite says to who may only read the file
        connection.exec_driver_sql("DELETE FROM accounts")

    def lock_as_another(_refresher: Refresher) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", "arena.lock")

    monkeypatch.setattr("palus.hub.accounts.issue_token", write_as_another)
    said = run("add", "ada", "--data", tmp_path, code=2)
    assert f"{tmp_path}: cannot be written (attempt to write a readonly database); run this as the user who" in said
    monkeypatch.setattr(Refresher, "recompute", lock_as_another)
    result = CliRunner().invoke(app, ["recompute", "--data", str(tmp_path)])
    assert (result.exit_code, "'arena.lock'); run this as the user who runs the arena" in result.stderr) == (2, True)


def test_a_slip_of_an_account_is_told_the_near_one_or_who_lists_them(tmp_path: Path) -> None:
    where = ("--data", tmp_path)
    run("add", "ada", *where)
    assert "there is no account adda; did you mean ada?" in run("revoke", "adda", *where, code=2)
    assert "there is no account grace; palus account list shows which there are" in run(
        "revoke", "grace", *where, code=2
    )


def test_a_slip_of_a_label_is_an_error_and_revokes_nothing(tmp_path: Path) -> None:
    palus = CliRunner()
    folder = ["--data", str(tmp_path)]
    palus.invoke(app, ["account", "add", "ada", "--label", "lab-pc", *folder])
    slip = palus.invoke(app, ["account", "revoke", "ada", "--label", "lab_pc", *folder])
    assert (slip.exit_code, "did you mean lab-pc?" in slip.stderr) == (2, True)
    far = palus.invoke(app, ["account", "revoke", "ada", "--label", "x", *folder])
    assert (far.exit_code, "its labels: lab-pc" in far.stderr) == (2, True)
    assert palus.invoke(app, ["account", "revoke", "ada", *folder]).stdout == "1 token of ada revoked.\n"
    assert "revoked already" in palus.invoke(app, ["account", "revoke", "ada", *folder]).stdout
