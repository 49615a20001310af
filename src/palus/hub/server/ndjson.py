"""Reads a commit's body while it arrives: one JSON object per line, files base64-coded inside them.

    {"key": "header", "value": {"summary": "...", "description": "...", "parentCommit": "..."}}
    {"key": "file", "value": {"content": "<base64>", "path": "...", "encoding": "base64"}}
    {"key": "lfsFile", "value": {"path": "...", "algo": "sha256", "oid": "...", "size": 1}}
    {"key": "deletedFile", "value": {"path": "..."}}            and deletedFolder

A line may be hundreds of megabytes, nearly all of it one string. That string is decoded, hashed and written piece by
piece; only the rest of the line is collected and parsed as JSON.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from palus.hub.card import plain_text
from palus.hub.commits import Message, Put, Remove, check_number
from palus.hub.ids import check_path
from palus.hub.limits import KIB, HubLimits, show_bytes
from palus.hub.refusals import InvalidInputError, TooLargeError
from palus.store.blobs import BlobWriter

# The key of a file's bytes with the quote that opens them. An escaped quote in front would be inside another string.
_CONTENT = re.compile(rb'(?<!\\)"content"\s*:\s*"')
_MAX_LINE = 64 * KIB  # without the content
_MAX_KEY = 64  # how far back a content's key may begin that two pieces of the body share
MAX_CHANGES = 10_000
KEPT_TOGETHER = 50
"""Files that are stored in one transaction: in one of its own, each would wait for all other writers."""
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_MAX_TITLE, _MAX_DESCRIPTION = 500, 20_000


class CommitReader:
    """Feed it the body, then `finish`. Files are opened and kept by the two functions it is given.

    all_bytes: of all files together. Raises InvalidInputError and TooLargeError; call `close` in any case, it drops
    the files that were not kept.
    """

    def __init__(
        self,
        open_writer: Callable[[], BlobWriter],
        keep: Callable[[Sequence[BlobWriter]], None],
        limits: HubLimits,
        all_bytes: int,
    ) -> None:
        self._open, self._keep, self._limits, self._bytes_left = open_writer, keep, limits, all_bytes
        self._line, self._searched, self._lines = bytearray(), 0, 0
        self._content: _Base64Writer | None = None
        self._content_open = False
        self._message: Message | None = None
        self._changes: list[Put | Remove] = []
        self._put: set[str] = set()
        self._finished: list[BlobWriter] = []  # to be kept together

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the body."""
        start = 0
        while start < len(data):
            start = self._feed_content(data, start) if self._content_open else self._feed_line(data, start)

    def finish(self) -> tuple[Message, list[Put | Remove]]:
        """The commit, once its whole body was fed; the bytes of its files are stored."""
        if self._content_open:
            raise InvalidInputError("the commit ends in the middle of a file; send it again")
        if self._line:
            self._end_line()
        if self._message is None:
            raise InvalidInputError("the commit has no header line; send one before or after its files")
        self._keep_finished()
        return self._message, self._changes

    def close(self) -> None:
        """Drop what is not finished."""
        for writer in [*self._finished, *([self._content.writer] if self._content else [])]:
            writer.discard()

    def _feed_line(self, data: bytes, start: int) -> int:
        """Collect bytes outside a content up to the end of the line or the start of a content; returns where that is
        in the data."""
        newline = data.find(b"\n", start)
        end = len(data) if newline < 0 else newline
        before = len(self._line)
        self._line += data[start : min(end, start + _MAX_LINE + 1)]
        if found := _CONTENT.search(self._line, self._searched):
            del self._line[found.end() :]
            self._searched = found.end()
            self._start_content()
            return start + found.end() - before
        self._searched = max(self._searched, len(self._line) - _MAX_KEY)
        if len(self._line) > _MAX_LINE:
            raise TooLargeError(f"a line of the commit is longer than {show_bytes(_MAX_LINE)} beside its content")
        if newline < 0:
            return end
        self._end_line()
        return newline + 1

    def _start_content(self) -> None:
        if self._content is not None:
            raise InvalidInputError("a line of the commit has two contents; send one file per line")
        limit = min(self._limits.file_bytes, self._bytes_left)
        self._content, self._content_open = _Base64Writer(self._open(), limit), True

    def _feed_content(self, data: bytes, start: int) -> int:
        assert self._content is not None
        quote = data.find(b'"', start)
        self._content.write(data[start:] if quote < 0 else data[start:quote])
        if quote < 0:
            return len(data)
        self._content.end()
        self._bytes_left -= self._content.writer.size
        self._content_open = False
        return quote  # it closes the string, empty by now, in the collected line

    def _end_line(self) -> None:
        line, content = bytes(self._line).strip(), self._content
        self._line, self._searched = bytearray(), 0
        self._lines += 1
        try:
            if self._lines > MAX_CHANGES + 1:  # the header is one; empty ones take time too
                raise TooLargeError(f"the commit has more than {MAX_CHANGES} lines of changes; split it")
            if line:
                key, value = _parse_line(line)
                self._take(key, value, content)
        finally:
            self._content = None
            if content is not None and content.writer not in self._finished:
                content.writer.discard()

    def _take(self, key: str, value: dict[str, Any], content: _Base64Writer | None) -> None:
        if key == "header":
            self._message = _read_message(value)
        elif key == "file":
            path = check_path(_string(value, "path"))
            if content is None or value.get("encoding", "base64") != "base64":
                raise InvalidInputError(f"{path}: a file needs a content with the encoding base64")
            self._add(Put(path, content.writer.seal().sha256))
            self._finished.append(content.writer)
            if len(self._finished) == KEPT_TOGETHER:
                self._keep_finished()
        elif key == "lfsFile":
            oid = _string(value, "oid")
            if not _SHA256.match(oid) or value.get("algo", "sha256") != "sha256":
                raise InvalidInputError("an lfsFile needs a SHA-256 of 64 lower-case hex digits as its oid")
            self._add(Put(check_path(_string(value, "path")), oid, lfs=True))
        elif key == "deletedFile":
            self._changes.append(Remove(check_path(_string(value, "path"))))
        elif key == "deletedFolder":
            folder = _string(value, "path").strip("/")
            self._changes.append(Remove(check_path(folder) if folder not in ("", ".") else "", folder=True))
        else:
            raise InvalidInputError(
                f"a line of the commit has the key {key[:40]!a}; expected file, lfsFile, deletedFile"
            )

    def _add(self, put: Put) -> None:
        self._put.add(put.path)
        check_number(len(self._put), self._limits)  # while they come: what is refused at the end is stored by then
        self._changes.append(put)

    def _keep_finished(self) -> None:
        if self._finished:
            self._keep(self._finished)
        self._finished = []


class _Base64Writer:
    """Decodes base64 in pieces of any length into a blob."""

    def __init__(self, writer: BlobWriter, limit: int) -> None:
        self.writer = writer
        self._limit, self._rest = limit, b""

    def write(self, coded: bytes) -> None:
        coded = self._rest + coded if self._rest else coded
        # Four characters are three bytes. The last four wait: only there padding is allowed.
        whole = max(0, (len(coded) - 1) // 4 * 4)
        self._rest = coded[whole:]
        self._decode(coded[:whole], padded=False)

    def end(self) -> None:
        self._decode(self._rest, padded=True)

    def _decode(self, coded: bytes, padded: bool) -> None:
        if not coded:
            return
        try:
            decoded = binascii.a2b_base64(coded, strict_mode=True)
        except binascii.Error as error:
            raise InvalidInputError(f"a file's content is not base64 ({error}); send it again") from error
        if len(decoded) < len(coded) // 4 * 3 and not padded:
            raise InvalidInputError("a file's content has base64 padding in its middle; send it again")
        if self.writer.size + len(decoded) > self._limit:
            raise TooLargeError(
                f"a file brings the commit above what may be sent now ({show_bytes(self._limit)}); leave large files "
                "out, send several commits, or wait until tomorrow"
            )
        self.writer.write(decoded)


def _parse_line(line: bytes) -> tuple[str, dict[str, Any]]:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"a line of the commit is not JSON ({error})") from error
    if not isinstance(entry, dict) or not isinstance(entry.get("value"), dict):
        raise InvalidInputError('a line of the commit is not {"key": ..., "value": {...}}')
    return _string(entry, "key"), entry["value"]


def _read_message(value: dict[str, Any]) -> Message:
    parent = value.get("parentCommit")
    if parent is not None and not (isinstance(parent, str) and re.fullmatch("[0-9a-f]{7,40}", parent)):
        raise InvalidInputError("parentCommit is not a commit id of 7 to 40 hex digits; leave it out or correct it")
    title, description = (str(value.get(name) or "") for name in ("summary", "description"))
    return Message(plain_text(title[:_MAX_TITLE]) or "commit", plain_text(description[:_MAX_DESCRIPTION]), parent)


def _string(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise InvalidInputError(f"a line of the commit has no text for {name!r}")
    return found
