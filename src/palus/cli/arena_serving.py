"""A running arena inside this process: matches, and pages in a thread. `palus arena` and `palus demo` share it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from palus.cli.arena_start import make_admin
from palus.cli.output import opened
from palus.errors import ArenaError

if TYPE_CHECKING:
    import uvicorn

    from palus.arena.ladder.service import Sources
    from palus.arena.ladder.settings import ArenaSettings
    from palus.store import Store
    from palus.web.names import Names


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that the address is known before anything starts. Raises ArenaError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ArenaError(f"{host}:{port}: cannot listen there ({error.strerror}); choose another --port") from error
    return listener


@contextmanager
def serving(
    data: Path,
    database: str | None,
    listener: socket.socket,
    settings: ArenaSettings,
    sources: Sources,
    workers: int,
    *,
    names: Names | None = None,
    proxies: Sequence[str] = (),
) -> Iterator[tuple[Store, bool, threading.Thread]]:
    """Pages, hub and matches until the block ends. Yields the store, whether its administrator is new, and the pages'
    thread, once they answer.

    names, proxies: as `make_app` and `make_uvicorn` take them.
    """
    from palus.arena.ladder.service import ArenaService
    from palus.web.api.view import Arena
    from palus.web.app import make_app
    from palus.web.serving import make_uvicorn
    from palus.web.worker_api import make_worker_router

    with opened(data, database, create=True) as store:
        new_admin = make_admin(store)
        app = make_app(
            store,
            arena=Arena(envs=settings.envs, mode=settings.mode, season=settings.season),
            extra_routers=(make_worker_router(store, settings),),
            names=names,
        )
        server = make_uvicorn(app, proxies)
        # In a thread uvicorn leaves signals alone, so that the service ends in order: pages first, then matches.
        pages = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="arena pages")
        with ArenaService(store, settings, sources, workers=workers, url=database):
            pages.start()
            try:
                if not _answers(server, pages):
                    raise ArenaError("the arena's pages did not start; see the message above")
                yield store, new_admin, pages
            finally:
                server.should_exit = True
                pages.join()


def _answers(server: uvicorn.Server, pages: threading.Thread) -> bool:
    """Wait until the server answers; False when it ended instead."""
    while pages.is_alive() and not server.started:
        pages.join(0.05)
    return pages.is_alive()
