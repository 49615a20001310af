"""A real server on a free loopback port, for tests that need sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from palus.web.connections import ConnectionLimits
from palus.web.serving import make_uvicorn


@contextmanager
def serving(app: FastAPI, proxies: Sequence[str] = (), connections: ConnectionLimits | None = None) -> Iterator[str]:
    """Serve an application while the block runs; gives its address without a slash at the end."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)  # from now on connections wait instead of failing: nobody has to poll
    server = make_uvicorn(app, proxies, connections)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"


@contextmanager
def serving_files(folder: Path) -> Iterator[str]:
    """Serve a folder as any static server does; gives its address without a slash at the end."""

    class Handler(SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, format: str, *args: object) -> None:
            """Tests that fail say what they missed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
