"""The job source of a worker that reaches its arena over HTTP. Runner tokens only; see `palus.web.worker_api`."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import re
import socket
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, ValidationError

from palus.arena.jobs.reports import to_json
from palus.arena.jobs.worker import IDLE_S, Done, Lease
from palus.arena.models.forms import MAX_BLOB_BYTES
from palus.errors import ArenaError, LeaseError, UnreachableError
from palus.threads import after

logger = logging.getLogger(__name__)

TIMEOUT_S, ANSWER_S = 60.0, 300.0
"""Of silence, and until an answer has to be whole."""
MAX_ANSWER_BYTES = 8 * MAX_BLOB_BYTES
REPORT_BYTES = MAX_ANSWER_BYTES // 2
"""Reports that are longer together are sent one after another."""
LEASE_LOST_STATUS = 409
_BUSY = (429, 502, 503, 504)
_TOKEN = re.compile(r"palus_[A-Za-z0-9_-]+")

_Seconds = Annotated[float, Field(ge=0.0, le=1e6, allow_inf_nan=False)]


class _Answer(BaseModel):
    """What an arena says to anything; what lacks a field of its kind was said by no arena."""


class _Hello(_Answer):
    worker: str
    lease_s: _Seconds
    trusted: bool


class _Taken(_Answer):
    jobs: list[Lease]
    pause_s: _Seconds
    untended: str | None


class _Finished(_Answer):
    void: set[int]


A = TypeVar("A", bound=_Answer)


class HttpSource:
    """Jobs from an arena somewhere else. Not for use by several workers at once: each needs a name of its own.

    Connections are kept between requests, until `close`.
    """

    play_s = 30.0
    """Of work that is taken at once: a question for work then costs the arena nothing beside what it hands out."""

    def __init__(self, url: str, token: str, worker: str, about: dict[str, Any]) -> None:
        """Raises ArenaError when the address or the token is none, when no arena answers, or it does not accept the
        token."""
        if not _is_address(url):
            raise ArenaError(f"{url}: not an address of an arena; give one like http://192.168.0.10:8000")
        if not _TOKEN.fullmatch(token):  # which nobody prints, whatever it is
            sentence = "expected one line that begins with palus_, as palus account add prints it"
            raise ArenaError(f"the token has not the form of one; {sentence}")
        self._base = f"{url.rstrip('/')}/api/worker"
        # What requests begin with: a proxy of plain HTTP is asked for whole addresses.
        self._root = self._base if urlsplit(url).scheme == "http" and _proxy(url) else urlsplit(self._base).path
        self._token = token
        self._about = about
        self._models: dict[str, bytes] = {}
        self._kept: list[http.client.HTTPConnection] = []
        self.pause_s = IDLE_S
        try:
            hello = self._post("hello", {"worker": worker, "about": about}, _Hello)
        except ArenaError:
            self.close()
            raise
        self.worker, self.lease_s, self.trusted = hello.worker, hello.lease_s, hello.trusted
        self._told: str | None = None

    def take(self, count: int = 1) -> list[Lease]:
        """At most so many jobs; none when nothing waits for it. What waits for another in vain is told, once."""
        answer = self._post("take", {"worker": self.worker, "about": self._about, "jobs": count}, _Taken)
        if answer.untended and not self._told:
            logger.warning("%s", answer.untended)
        self._told, self.pause_s = answer.untended, answer.pause_s
        return answer.jobs

    def renew(self, leases: Sequence[Lease]) -> None:
        """Prolong the leases of one `take`."""
        self._post("renew", {"jobs": [lease.job_id for lease in leases], "secret": leases[0].secret}, _Answer)

    def model(self, sha256: str) -> bytes:
        """The bytes of a model file, fetched once."""
        if sha256 not in self._models:
            if len(self._models) > 50:
                self._models.clear()
            data = self._request("GET", f"models/{sha256}", None)
            if hashlib.sha256(data).hexdigest() != sha256:
                raise self._no_arena()
            self._models[sha256] = data
        return self._models[sha256]

    def finish(self, done: Sequence[Done]) -> set[int]:
        """Hand in reports. Returns the jobs whose leases are void."""
        void: set[int] = set()
        for reports in _together(done):
            void.update(self._post("finish", b'{"reports":[%s]}' % b",".join(reports), _Finished).void)
        return void

    def give_back(self, lease: Lease, fault: str) -> None:
        """Put a job back that could not be done."""
        self._post("give-back", {"job": lease.job_id, "secret": lease.secret, "fault": fault[:500]}, _Answer)

    def close(self) -> None:
        """Close what is kept."""
        while self._kept:
            self._kept.pop().close()

    def _post(self, path: str, body: dict[str, Any] | bytes, form: type[A]) -> A:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        try:
            return form.model_validate_json(self._request("POST", path, data))
        except ValidationError as error:
            raise self._no_arena() from error

    def _no_arena(self) -> UnreachableError:
        """For an answer that no arena gives. The sign-in page of a network gives such for a while: what the arena was
        to be told is kept meanwhile."""
        sentence = "what answers there is no palus arena, or one of another version; check the address and the network"
        return UnreachableError(f"{self._base}: {sentence}")

    def _connection(self) -> http.client.HTTPConnection:
        """One that is kept, or a new one. Two threads may ask at once."""
        try:
            return self._kept.pop()
        except IndexError:
            return _connect(self._base)

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        connection = self._connection()
        for again in (connection.sock is not None, False):
            try:
                connection.request(method, f"{self._root}/{path}", body, headers)
                with _within(ANSWER_S, connection.sock):
                    response = connection.getresponse()
                    data = response.read(MAX_ANSWER_BYTES + 1)
                break
            except (OSError, http.client.HTTPException, ValueError) as error:
                connection.close()  # the next request opens it anew
                if not again or isinstance(error, TimeoutError):  # else the arena had closed it meanwhile
                    sentence = f"{self._base}: cannot be reached ({error}); check the address and the network"
                    raise UnreachableError(sentence) from error
        self._kept.append(connection)
        if len(data) > MAX_ANSWER_BYTES:
            connection.close()
            raise ArenaError(f"{self._base}/{path}: answered more than {MAX_ANSWER_BYTES} bytes")
        if response.status == LEASE_LOST_STATUS:
            raise LeaseError(_sentence(data, response.reason))
        if response.status != 200:
            elsewhere = 300 <= response.status < 400  # where no arena sends anybody
            kind = UnreachableError if elsewhere or response.status in _BUSY else ArenaError
            raise kind(f"{self._base}: answered {response.status}: {_sentence(data, response.reason)}")
        return data


@contextmanager
def _within(time_s: float, link: socket.socket) -> Iterator[None]:
    """End a connection on which an answer drips: a socket's own timeout begins anew with every byte. Raises
    TimeoutError."""
    late = threading.Event()

    def end() -> None:
        late.set()
        with suppress(OSError):
            socket.socket.shutdown(link, socket.SHUT_RDWR)  # of TLS too, the connection below it

    try:
        with after(time_s, end):
            yield
    finally:
        if late.is_set():
            raise TimeoutError(f"no whole answer after {time_s:g} s")


def _is_address(url: str) -> bool:
    """Whether it can be asked over HTTP: scheme and host are there, and the port is one."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _connect(url: str) -> http.client.HTTPConnection:
    """A connection to an address, through the proxy that the environment names for it."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    proxy = _proxy(url)
    if proxy is None:
        # Without a port the library would look for one in a numeric address.
        return kind(parts.hostname or "", parts.port or kind.default_port, timeout=TIMEOUT_S)
    connection = kind(proxy, timeout=TIMEOUT_S)
    if parts.scheme == "https":
        connection.set_tunnel(parts.hostname or "", parts.port)
    return connection


def _proxy(url: str) -> str | None:
    """Host and port of the proxy for an address."""
    parts = urlsplit(url)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if proxy is None or urllib.request.proxy_bypass(parts.netloc):
        return None
    return urlsplit(proxy).netloc or proxy


def _together(done: Sequence[Done]) -> Iterator[list[bytes]]:
    """Reports as JSON, as many together as one request takes."""
    batch: list[bytes] = []
    for lease, report in done:
        told = {"job": lease.job_id, "secret": lease.secret, "report": to_json(report)}
        text = json.dumps(told).encode()
        if batch and sum(map(len, batch)) + len(text) > REPORT_BYTES:
            yield batch
            batch = []
        batch.append(text)
    if batch:
        yield batch


def _sentence(data: bytes, reason: str) -> str:
    try:
        return str(json.loads(data[:4096])["error"])
    except (ValueError, KeyError, TypeError):
        return reason
