"""Accounts and their tokens. A token is shown once, when it is issued; only its hash is stored."""

from __future__ import annotations

import difflib
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, insert, select, update

from palus.hub.ids import check_owner
from palus.hub.refusals import AlreadyExistsError, InvalidInputError
from palus.store.engine import now_ms
from palus.store.tables import accounts, tokens

SCOPES = ("read", "write", "runner", "trusted", "admin")
"""read: private repositories of one's own. write: also push. runner: claim work, post results, nothing else.
trusted: as runner, and work whose results nobody could check later: validations, matches that do not repeat.
admin: everything, for everybody's repositories."""
TOKEN_BYTES = 32
_MAX_LABEL = 96


@dataclass(frozen=True)
class Account:
    """Somebody who owns repositories. Names differ ignoring case."""

    id: int
    name: str


@dataclass(frozen=True)
class Token:
    """What is known of a token after it was issued."""

    account: str
    label: str
    scopes: frozenset[str]
    created_ms: int
    revoked_ms: int | None


@dataclass(frozen=True)
class Caller:
    """Who makes a request, and what the token at hand allows."""

    account_id: int
    name: str
    token_id: int
    label: str
    scopes: frozenset[str]

    @property
    def is_admin(self) -> bool:
        """Whether this may act for everybody."""
        return "admin" in self.scopes

    def can_read_as(self, owner: str) -> bool:
        """Whether this may see the private repositories of an owner."""
        return self.is_admin or (owner.lower() == self.name.lower() and bool(self.scopes & {"read", "write"}))

    def can_write_as(self, owner: str) -> bool:
        """Whether this may change the repositories of an owner."""
        return self.is_admin or (owner.lower() == self.name.lower() and "write" in self.scopes)


def create_account(connection: Connection, name: str) -> Account:
    """Raises InvalidInputError for a name that breaks the rules, AlreadyExistsError for one that is taken."""
    check_owner(name)
    if find_account(connection, name) is not None:
        raise AlreadyExistsError(f"account {name} exists already; choose another name")
    row = {"name": name, "key": name.lower(), "kind": "user", "created_ms": now_ms()}
    return Account(connection.execute(insert(accounts).values(row).returning(accounts.c.id)).scalar_one(), name)


def find_account(connection: Connection, name: str) -> Account | None:
    """The account of this name in any case."""
    row = connection.execute(select(accounts.c.id, accounts.c.name).where(accounts.c.key == name.lower())).first()
    return Account(*row) if row else None


def issue_token(connection: Connection, name: str, label: str, scopes: Iterable[str] = ("read", "write")) -> str:
    """A new token of an account, which is made where there is none; the only time that the token is seen.

    Raises InvalidInputError.
    """
    wanted = [scope for scope in SCOPES if scope in set(scopes)]
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise InvalidInputError(f"scope {', '.join(unknown)} is unknown; there are {', '.join(SCOPES)}")
    if not wanted or not 1 <= len(label) <= _MAX_LABEL:
        raise InvalidInputError(f"a token needs a scope and a label of 1 to {_MAX_LABEL} characters")
    account = find_account(connection, name) or create_account(connection, name)
    token = f"palus_{secrets.token_urlsafe(TOKEN_BYTES)}"
    row = {"account_id": account.id, "label": label, "sha256": _hash(token), "scopes": ",".join(wanted)}
    connection.execute(insert(tokens).values({**row, "created_ms": now_ms()}))
    return token


def revoke_tokens(connection: Connection, name: str, label: str | None = None) -> int:
    """Make the tokens of an account, or those with one label, worthless at once. Returns how many were valid.

    Raises InvalidInputError for an account or a label that is not there.
    """
    account = find_account(connection, name)
    if account is None:
        names = connection.scalars(select(accounts.c.name).order_by(accounts.c.key)).all()
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]}?" if near else "palus account list shows which there are"
        raise InvalidInputError(f"there is no account {name}; {hint}")
    statement = update(tokens).where(tokens.c.account_id == account.id, tokens.c.revoked_ms.is_(None))
    if label is not None:
        labels = connection.scalars(select(tokens.c.label).where(tokens.c.account_id == account.id)).all()
        if label not in labels:
            near = difflib.get_close_matches(label, labels, 1)
            hint = f"did you mean {near[0]}?" if near else f"its labels: {', '.join(sorted(set(labels))) or 'none'}"
            raise InvalidInputError(f"{account.name} has no token labelled {label}; {hint}")
        statement = statement.where(tokens.c.label == label)
    return connection.execute(statement.values(revoked_ms=now_ms())).rowcount


def list_tokens(connection: Connection) -> list[Token]:
    """All, revoked ones too, by account and age."""
    columns = (accounts.c.name, tokens.c.label, tokens.c.scopes, tokens.c.created_ms, tokens.c.revoked_ms)
    query = select(*columns).join(accounts, accounts.c.id == tokens.c.account_id)
    rows = connection.execute(query.order_by(accounts.c.key, tokens.c.id))
    return [Token(name, label, frozenset(s.split(",")), made, gone) for name, label, s, made, gone in rows]


def authenticate(connection: Connection, token: str) -> Caller | None:
    """Whose token this is; None when nobody's or revoked."""
    columns = (accounts.c.id, accounts.c.name, tokens.c.id, tokens.c.label, tokens.c.scopes)
    query = select(*columns).join(accounts, accounts.c.id == tokens.c.account_id)
    row = connection.execute(query.where(tokens.c.sha256 == _hash(token), tokens.c.revoked_ms.is_(None))).first()
    return Caller(row[0], row[1], row[2], row[3], frozenset(row[4].split(","))) if row else None


def _hash(token: str) -> str:
    # 32 random bytes cannot be guessed, so a fast hash keeps them as well as a slow one.
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
