"""A running arena in this process, for `palus arena` and `palus demo`: an account for whoever runs it, matches, pages,
and what to type next."""

from __future__ import annotations

import errno
import gc
import getpass
import ipaddress
import os
import secrets
import socket
import threading
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from rich.markup import escape

from palus.cli.output import opened, stderr, stdout, typed
from palus.errors import ArenaError, HubError

if TYPE_CHECKING:
    from palus.arena.ladder.service import Sources
    from palus.arena.ladder.settings import ArenaSettings
    from palus.store import Store
    from palus.web.names import Names

Role = Literal["all", "web", "scheduler"]
"""all: pages and matches in one process. web: pages, hub and what workers ask for, as many as wanted. scheduler: orders
and logs the matches; of several the first is in charge, the others wait."""
ADMIN = "admin"
ADMIN_TOKEN_FILE = "admin.token"
_ROLES = {"web": "[bold]{url}[/]   leaderboard, matches, hub", "scheduler": "Orders and logs the arena's matches."}
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Place:
    """Where this arena is and what it has."""

    host: str
    port: int
    data: Path
    workers: int
    open_browser: bool
    games: tuple[str, ...] = ("SoccerTwos",)
    public_urls: tuple[str, ...] = ()
    role: Role = "all"

    @property
    def is_private(self) -> bool:
        """Whether only this machine reaches it."""
        return self.host in _LOOPBACK

    @property
    def url(self) -> str:
        """As others reach it."""
        if self.public_urls:
            return self.public_urls[0]
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def local_url(self) -> str:
        """As this machine reaches it."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"


def check_public_urls(urls: Sequence[str]) -> tuple[str, ...]:
    """Addresses as others reach the arena, without a slash at the end. Raises ArenaError for what is none."""
    for url in urls:
        try:
            parts = urlsplit(url)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            sound = False
        if not sound or parts.path.strip("/") or parts.query or parts.username:
            raise ArenaError(f"--public-url {url}: not an address; write http://NAME, https://NAME or http://NAME:PORT")
    return tuple(url.rstrip("/") for url in urls)


def check_proxies(addresses: Sequence[str]) -> tuple[str, ...]:
    """Addresses and networks in numbers. Raises ArenaError for others."""
    for address in addresses:
        try:
            ipaddress.ip_network(address)
        except ValueError as error:
            raise ArenaError(
                f"--proxy {address}: {error}; give the address that the proxy calls from, such as 127.0.0.1"
            ) from error
    return tuple(addresses)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that its address can be told before anything starts: who comes early waits, and is not
    turned away. Raises ArenaError."""
    if not host:  # which the system takes for every network
        raise ArenaError("--host is empty; give an address of this machine, or 0.0.0.0 for the whole network")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        elsewhere = isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL
        advice = "give an address of this machine as --host" if elsewhere else "choose another --port"
        raise ArenaError(f"{host}:{port}: cannot listen there ({error.strerror}); {advice}") from error
    return listener


@contextmanager
def serving(
    data: Path,
    database: str | None,
    listener: socket.socket | None,
    settings: ArenaSettings,
    sources: Sources,
    workers: int,
    *,
    blobs: str | None = None,
    role: Role = "all",
    names: Names | None = None,
    proxies: Sequence[str] = (),
) -> Iterator[tuple[Store, bool, threading.Thread | None]]:
    """What the role has of pages, hub and matches, until the block ends. Yields the store, whether its administrator is
    new, and the pages' thread, once they answer; None in a scheduler.

    listener: for the pages. names, proxies: as `make_app` and `make_uvicorn` take them.
    """
    with opened(data, database, create=True, blobs=blobs) as store, ExitStack() as stack:
        new_admin = role != "web" and make_admin(store)
        if role != "web":
            from palus.arena.ladder.service import ArenaService

            waits = role == "scheduler"
            stack.enter_context(ArenaService(store, settings, sources, workers=workers, url=database, waits=waits))
        pages = None if listener is None else stack.enter_context(_pages(store, settings, listener, names, proxies))
        yield store, new_admin, pages


@contextmanager
def _pages(
    store: Store, settings: ArenaSettings, listener: socket.socket, names: Names | None, proxies: Sequence[str]
) -> Iterator[threading.Thread]:
    """Pages and hub, in a thread; it is given once they answer."""
    from palus.web.app import make_app
    from palus.web.serving import make_uvicorn
    from palus.web.worker_api import make_worker_router

    app = make_app(
        store,
        arena=settings,
        extra_routers=(make_worker_router(store, settings),),
        names=names,
    )
    server = make_uvicorn(app, proxies)
    # In a thread uvicorn leaves signals alone, so that all ends in order: pages first, then matches.
    pages = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="arena pages")
    pages.start()
    try:
        while pages.is_alive() and not server.started:
            pages.join(0.05)
        if not pages.is_alive():
            raise ArenaError("the arena's pages did not start; see the message above")
        gc.freeze()  # nobody waits while all that was made until here is looked through for garbage
        yield pages
    finally:
        gc.unfreeze()
        server.should_exit = True
        pages.join()


def welcome(store: Store, place: Place, new_admin: bool) -> None:
    """Say where the arena is and what to do next."""
    if place.role != "all":
        stdout.print(f"{_ROLES[place.role].format(url=place.url)}   Data: {escape(str(place.data))}\nStop with Ctrl-C.")
        return
    owner = sign_in_here(store, place.local_url) if place.is_private else None
    for line in _lines(place, owner, new_admin):
        stdout.print(line)
    if place.open_browser:
        webbrowser.open(place.local_url)


def _lines(place: Place, owner: str | None, new_admin: bool) -> list[str]:
    data = f" --data {typed(place.data)}" if place.data != Path("arena") else ""
    lines = [
        f"[bold]{place.url}[/]   leaderboard, matches, hub",
        f"Data: {escape(str(place.data))}   Games: {', '.join(place.games)}   Workers: {place.workers}   "
        f"Isolation of models: {_isolation()}",
    ]
    if owner is not None:
        lines.append(f"Next: palus push results/mine {owner}/mine --hub {place.local_url}")
    else:
        lines.append(
            f"Next, for everybody: palus login {place.url} and palus push results/mine NAME/mine --hub {place.url}"
        )
    if new_admin:
        lines.append(
            f"The administrator's token is in {escape(str(place.data / ADMIN_TOKEN_FILE))}; keep it to yourself."
        )
    lines.append(f"Accounts: palus account add NAME{data}, or palus account tokens class.txt{data} for a class")
    lines.append("Stop with Ctrl-C.")
    return lines


def _isolation() -> str:
    """The level that matches of strangers' models run at here."""
    from palus.arena.locked.sandbox import LockedProcessError, shared_sandbox
    from palus.arena.models.rules import Limits

    try:
        process = shared_sandbox().open(Limits())
    except LockedProcessError as error:
        return f"none, models cannot be played ({escape(str(error))})"
    process.close()
    return process.isolation


def make_admin(store: Store) -> bool:
    """On the first start: an account for whoever runs the arena, its token in a file that only they can read."""
    from palus.hub.accounts import find_account, issue_token

    path = store.folder / ADMIN_TOKEN_FILE
    with store.write() as connection:
        if find_account(connection, ADMIN) is not None:
            return False
        token = issue_token(connection, ADMIN, "first start", ("read", "write", "runner", "admin"))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
    return True


def sign_in_here(store: Store, url: str) -> str | None:
    """Let `palus push` from this machine work at once: an account named after the user, its token kept where
    `palus login` keeps it. None when that is not possible; `palus login` then is."""
    from palus.hub import client
    from palus.hub.accounts import issue_token
    from palus.hub.ids import check_owner

    try:
        return client.account(url)
    except HubError:
        pass
    try:
        name = check_owner(getpass.getuser())
    except (HubError, OSError, KeyError):
        name = "me"
    with store.write() as connection:
        token = issue_token(connection, name, f"this machine {secrets.token_hex(3)}")
    try:
        return client.log_in(url, token)
    except (HubError, OSError) as error:
        stderr.print(f"[yellow]not signed in here:[/] {escape(str(error))}")
        return None
