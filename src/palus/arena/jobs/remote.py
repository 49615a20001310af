"""The job source of a worker that reaches its arena over HTTP. Runner tokens only; see `palus.web.worker_api`."""

from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from palus.arena.jobs.reports import Report, to_json
from palus.arena.jobs.worker import Lease
from palus.arena.models.forms import MAX_BLOB_BYTES
from palus.errors import ArenaError, LeaseError

logger = logging.getLogger(__name__)

TIMEOUT_S = 60.0
MAX_ANSWER_BYTES = 8 * MAX_BLOB_BYTES
LEASE_LOST_STATUS = 409


class HttpSource:
    """Jobs from an arena somewhere else. Not for use by several workers at once: each needs a name of its own."""

    def __init__(self, url: str, token: str, worker: str, about: dict[str, Any]) -> None:
        """Raises ArenaError when the address is none, or the arena does not accept the token."""
        if urlsplit(url).scheme not in ("http", "https"):
            raise ArenaError(f"{url}: not an address of an arena; give one like http://192.168.0.10:8000")
        self._base = f"{url.rstrip('/')}/api/worker"
        self._token = token
        self._about = about
        self._models: dict[str, bytes] = {}
        hello = self._post("hello", {"worker": worker, "about": about})
        self.worker: str = hello["worker"]
        self.lease_s: float = hello["lease_s"]
        self.trusted: bool = hello["trusted"]
        self._told: str | None = None

    def take(self) -> Lease | None:
        """A job; None when nothing waits for this worker. What waits for another in vain is told, once."""
        answer = self._post("take", {"worker": self.worker, "about": self._about})
        if answer["untended"] and not self._told:
            logger.warning("%s", answer["untended"])
        self._told = answer["untended"]
        return Lease(**answer["job"]) if answer["job"] else None

    def renew(self, lease: Lease) -> None:
        """Prolong a lease."""
        self._post(f"jobs/{lease.job_id}/renew", {"secret": lease.secret})

    def model(self, sha256: str) -> bytes:
        """The bytes of a model file, fetched once."""
        if sha256 not in self._models:
            if len(self._models) > 50:
                self._models.clear()
            self._models[sha256] = self._request("GET", f"models/{sha256}", None)
        return self._models[sha256]

    def finish(self, lease: Lease, report: Report) -> None:
        """Hand in a report."""
        self._post(f"jobs/{lease.job_id}/finish", {"secret": lease.secret, "report": to_json(report)})

    def give_back(self, lease: Lease, fault: str) -> None:
        """Put a job back that could not be done."""
        self._post(f"jobs/{lease.job_id}/give-back", {"secret": lease.secret, "fault": fault[:500]})

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self._request("POST", path, json.dumps(body).encode()))
        return answer

    def _request(self, method: str, path: str, body: bytes | None) -> bytes:
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._base}/{path}", body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
                data: bytes = response.read(MAX_ANSWER_BYTES + 1)
        except urllib.error.HTTPError as error:
            said = _sentence(error)
            error.close()
            if error.code == LEASE_LOST_STATUS:
                raise LeaseError(said) from error
            raise ArenaError(f"{self._base}: answered {error.code}: {said}") from error
        except (OSError, ValueError) as error:
            raise ArenaError(f"{self._base}: cannot be reached ({error}); check the address and the network") from error
        if len(data) > MAX_ANSWER_BYTES:
            raise ArenaError(f"{self._base}/{path}: answered more than {MAX_ANSWER_BYTES} bytes")
        return data


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(4096))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return str(error.reason)
