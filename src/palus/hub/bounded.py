"""Bounds of what a hub may answer, in the one HTTP client that all of `huggingface_hub` shares in a process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from huggingface_hub import constants, set_client_factory
from huggingface_hub.utils._http import default_client_factory

from palus.errors import HubError
from palus.hub.limits import HubLimits, show_bytes

MAX_ANSWER_BYTES = 16 << 20
"""Of what is read whole, into memory: lists and cards. JSON takes up to 25 times its length there."""
MAX_FILE_BYTES = HubLimits.lfs_bytes
"""Of what is read piece by piece, into a file."""
MAX_COPY_BYTES = 64 << 20
"""Of all that is read whole for one copy of a repository: a list of files comes in pages, and each may name a next."""
LEAST_BYTES = 16 << 10
"""What an answer counts for there at the least."""

_read = ContextVar[list[int] | None]("read", default=None)
"""Sizes of what was read whole for this copy."""


@cache
def bound_answers() -> None:
    """Let every answer end at these bounds, unpacked, with a HubError."""
    set_client_factory(_client)
    constants.HF_HUB_DISABLE_XET = True  # else files come by a client of its own, from wherever the hub says


@contextmanager
def one_copy() -> Iterator[None]:
    """Within it, what this thread reads whole ends at MAX_COPY_BYTES, with a HubError."""
    before = _read.set([])
    try:
        yield
    finally:
        _read.reset(before)


def _client() -> Any:
    client = default_client_factory()
    client.event_hooks["response"].append(_bound)
    return client


def _bound(answer: Any) -> None:
    """answer: a response whose body is still to come. Whatever reads it does so by `iter_bytes`."""
    if answer.request.method == "HEAD":  # of a file: the library names its copy by what it is told of its version
        for said in (answer.headers.get("X-Linked-Etag", ""), answer.headers.get("ETag", "").removeprefix("W/")):
            if "/" in said or "\\" in said:
                raise HubError(f"{answer.request.url}: the hub calls its version {said!r}; expected no path")
    unbounded = answer.iter_bytes

    def iter_bytes(chunk_size: int | None = None) -> Iterator[bytes]:
        most = MAX_ANSWER_BYTES if chunk_size is None else MAX_FILE_BYTES
        size = 0
        for part in unbounded(chunk_size):
            size += len(part)
            if size > most:
                text = f"{answer.request.url}: more than {show_bytes(most)}, as much as is read of a hub's answer"
                raise HubError(f"{text}; check the address")
            yield part
        read = _read.get()
        if chunk_size is None and read is not None:
            read.append(max(size, LEAST_BYTES))
            if sum(read) > MAX_COPY_BYTES:
                text = f"{answer.request.url}: the list of files has not ended after {len(read)} answers"
                raise HubError(f"{text}, as much as is read for one repository; check the address")

    answer.iter_bytes = iter_bytes
