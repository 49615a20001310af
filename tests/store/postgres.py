"""A real PostgreSQL server for tests: Debian's package, a data folder of its own, a free loopback port.

    from postgres import postgres_server, postgres_url  # noqa: F401

    def test_it(postgres_url: str, tmp_path: Path) -> None:
        store = open_store(tmp_path, postgres_url)

The server is started once per test session; every test gets a database of its own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ports import free_port

START_TIMEOUT_S = 120
ATTEMPTS = 3


def find_programs() -> Path | None:
    """The folder of initdb and postgres: on the PATH, or where Debian puts them; the newest of several."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda p: float(p.parent.name), reverse=True)
    return next((f for f in folders if (f / "initdb").exists() and (f / "postgres").exists()), None)


def _unprivileged() -> dict[str, object]:
    """Popen arguments that leave root, as which PostgreSQL refuses to run; none for anybody else."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            account = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no account postgres or nobody")


@contextmanager
def running_server(programs: Path) -> Iterator[str]:
    """Start a server, give the URL of its first database, stop it and remove its files."""
    import psycopg

    identity = _unprivileged()
    home = Path(tempfile.mkdtemp(prefix="palus-postgres-"))
    log = home / "log"
    try:
        if identity:
            os.chown(home, identity["user"], identity["group"])
        common = {
            "cwd": home,
            "env": {**os.environ, "LC_ALL": "C", "TZ": "UTC"},
            "stdin": subprocess.DEVNULL,
            **identity,
        }
        made = subprocess.run(
            [programs / "initdb", "-D", home / "data", "-A", "trust", "-U", "palus", "-E", "UTF8", "--no-sync"],
            capture_output=True,
            text=True,
            **common,
        )
        assert made.returncode == 0, made.stderr
        for _ in range(ATTEMPTS):
            # Another program may take the port between the look and the start, so a second try is fair.
            port = free_port()
            options = ["-h", "127.0.0.1", "-p", str(port), "-k", str(home), "-c", "fsync=off"]
            with log.open("ab") as output:
                server = subprocess.Popen(
                    [programs / "postgres", "-D", home / "data", *options], stdout=output, stderr=output, **common
                )
            try:
                address = f"127.0.0.1:{port}"
                if _answers(psycopg, f"postgresql://palus@{address}/postgres", server):
                    yield f"postgresql+psycopg://palus@{address}"
                    return
            finally:
                if server.poll() is None:
                    server.send_signal(signal.SIGINT)  # PostgreSQL's fast shutdown
                    server.wait(60)
        pytest.fail(f"PostgreSQL did not start in {ATTEMPTS} attempts:\n{log.read_text()[-2000:]}")
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _answers(psycopg, address: str, server: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + START_TIMEOUT_S
    while server.poll() is None and time.monotonic() < deadline:
        try:
            psycopg.connect(address, connect_timeout=5).close()
        except psycopg.OperationalError:
            time.sleep(0.05)
            continue
        return True
    return False


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """SQLAlchemy URL of a running server, without a database."""
    programs = find_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt install postgresql)")
    pytest.importorskip("psycopg", reason="psycopg is not installed (pip install 'palus[postgres]')")
    with running_server(programs) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """SQLAlchemy URL of a new, empty database."""
    import psycopg

    name = f"test_{uuid.uuid4().hex[:12]}"
    plain = postgres_server.replace("postgresql+psycopg", "postgresql")
    with psycopg.connect(f"{plain}/postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return f"{postgres_server}/{name}"
