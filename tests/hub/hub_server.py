"""A real hub on a free loopback port, in a process of its own: tests of the hub push to it and kill it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from palus.hub.accounts import issue_token
from palus.store import Store, open_store

SERVE = """
import json, sys
from pathlib import Path
import uvicorn
from palus.hub.limits import HubLimits
from palus.store import open_store
from palus.web.app import make_app

app = make_app(open_store(Path(sys.argv[1])), hub_limits=HubLimits(**json.loads(sys.argv[3])))
# The socket listens before this process starts: clients wait in its queue, nobody has to poll.
uvicorn.run(app, fd=int(sys.argv[2]), log_level="warning")
"""


@dataclass
class RunningHub:
    """An address and the store behind it, which tests may look into."""

    folder: Path
    limits: str = "{}"
    store: Store = field(init=False)
    url: str = field(init=False)
    process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.store = open_store(self.folder)
        self.start()

    def start(self) -> None:
        """Serve the folder; may be called again after a kill."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(64)
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            command = [sys.executable, "-c", SERVE, str(self.folder), str(listener.fileno()), self.limits]
            self.process = subprocess.Popen(command, pass_fds=[listener.fileno()])

    def kill(self) -> None:
        """End it as a power cut would."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def token(self, name: str, *scopes: str) -> str:
        """A token of an account, which is made where there is none."""
        with self.store.write() as connection:
            return issue_token(connection, name, "test", scopes or ("read", "write"))


@contextlib.contextmanager
def running_hub(folder: Path, limits: str = "{}") -> Iterator[RunningHub]:
    """A hub until the end of the block."""
    hub = RunningHub(folder, limits)
    try:
        yield hub
    finally:
        hub.kill()
        hub.store.close()


def client_environment(hub: RunningHub, home: Path, token: str | None = None) -> dict[str, str]:
    """The environment of a client that knows only this hub, whatever the machine is set to."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    own = {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1", "NO_PROXY": "*"}
    patient = {"HF_HUB_ETAG_TIMEOUT": "120", "HF_HUB_DOWNLOAD_TIMEOUT": "120"}  # 10 s are short on a busy machine
    return {**kept, **own, **patient, "no_proxy": "*", **({"HF_TOKEN": token} if token else {})}
