"""A real server on a free loopback port, for tests that need sockets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from palus.web.serving import make_uvicorn


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application while the block runs; gives its address without a slash at the end."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)  # from now on connections wait instead of failing: nobody has to poll
    server = make_uvicorn(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listener.close()
        assert not thread.is_alive(), "the server did not stop"
