"""A hub that lists what no honest one would: what a client fetches of it stays in the folder, and out of git's."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import threading
import tracemalloc
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from palus.errors import HubError
from palus.hub import bounded, client
from palus.hub.publish import fetch
from palus.hub.target import HubTarget

HARMLESS = ["SoccerTwos.onnx", "SoccerTwos/notes..txt", ".gitattributes", "my.git/notes.txt"]
HARMFUL = [
    *(".git", ".git/config", "SoccerTwos/.GIT/hooks/pre-commit", "SoccerTwos/.git"),
    *("../beside.txt", "SoccerTwos/../../beside.txt", "/tmp/beside-of-palus.txt", ".."),
]


class _Handler(BaseHTTPRequestHandler):
    sha = "a" * 40
    said: str | None = None
    bomb: bytes | None = None
    etag = "b" * 40
    page: bytes | None = None
    xet: str | None = None
    watched: Path | None = None
    seen: ClassVar[list[str]] = []
    asked: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.watched is not None:
            self.seen.extend(path.name for path in self.watched.iterdir())
        if self.bomb is not None:
            self._send(self.bomb, {"Content-Encoding": "gzip"})
            return
        if self.said is not None:
            body = self.said
        elif "/tree/" in self.path and self.page is not None:
            here = f"http://{self.headers['Host']}{self.path.partition('?')[0]}"
            self._send(self.page, {"Link": f'<{here}?cursor={len(self.asked)}>; rel="next"'})
            return
        elif "/tree/" in self.path:
            xet = {"xetHash": self.xet} if self.xet else {}
            body = json.dumps(
                [{"type": "file", "path": p, "size": 4, "oid": "b" * 40, **xet} for p in HARMLESS + HARMFUL]
            )
        elif self.path.startswith("/api/"):
            siblings = [{"rfilename": path} for path in HARMLESS + HARMFUL]
            body = json.dumps({"id": "eve/evil", "sha": self.sha, "siblings": siblings, "private": False, "tags": []})
        else:
            body = "evil"
        headers = {"ETag": f'"{self.etag}"', "X-Repo-Commit": "a" * 40}
        if self.xet:
            headers |= {"X-Xet-Hash": self.xet, "X-Xet-Refresh-Route": "/xet"}
        self._send(body.encode(), headers)

    def _send(self, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(200)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Tests that fail say what they missed."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """No token and no proxy."""
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)


def test_a_stranger_writes_neither_beside_the_folder_nor_into_git(url: str, tmp_path: Path) -> None:
    fetch("eve/evil", HubTarget(url), tmp_path / "pool" / "evil")
    found = [str(path.relative_to(tmp_path / "pool")) for path in (tmp_path / "pool").rglob("*") if path.is_file()]
    assert sorted(found) == sorted(f"evil/{path}" for path in HARMLESS)


@pytest.mark.parametrize("commit", ["../../../../beside", "{folder}/beside", "main", "", None])
def test_a_commit_that_is_a_path_names_no_file(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: str | None
) -> None:
    monkeypatch.setattr(_Handler, "sha", commit and commit.format(folder=tmp_path))
    with pytest.raises(HubError, match=r"calls its commit .*; expected 40 hex digits"):
        fetch("eve/evil", HubTarget(url), tmp_path / "pool" / "evil")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize("said", ["<html>Sign in to the network</html>", "", "[]", "null", "{}", "5", "[" * 100_000])
def test_what_is_no_hub_is_said_in_a_sentence(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    monkeypatch.setattr(_Handler, "said", said)
    monkeypatch.setattr(client, "token_for", lambda _: "palus_token")
    with pytest.raises(HubError, match="what answers there is no hub"):
        fetch("eve/evil", HubTarget(url), tmp_path / "evil")
    with pytest.raises(HubError, match="what answers there is no hub"):
        client.log_in(url, "palus_token")
    with pytest.raises(HubError, match="what answers there is no hub"):
        client.check_may_push(url, "eve/evil")


def test_an_answer_is_unpacked_no_further_than_its_bound(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Handler, "bomb", gzip.compress(b" " * (2 * bounded.MAX_ANSWER_BYTES) + b"{}"))
    monkeypatch.setattr(client, "token_for", lambda _: "palus_token")
    tracemalloc.start()
    try:
        with pytest.raises(HubError, match="more than 16 MiB, as much as is read of a hub's answer"):
            fetch("eve/evil", HubTarget(url), tmp_path / "evil")
        with pytest.raises(HubError, match="more than 16 MiB"):
            client.check_may_push(url, "eve/evil")
        with pytest.raises(HubError, match="more than 16 MiB"):
            client.read_card(url, "eve/evil")
        assert tracemalloc.get_traced_memory()[1] < 2 * bounded.MAX_ANSWER_BYTES
    finally:
        tracemalloc.stop()


def test_a_file_is_fetched_no_further_than_its_bound(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_FILE_BYTES", 3)
    with pytest.raises(HubError, match="more than 3 bytes"):
        fetch("eve/evil", HubTarget(url), tmp_path / "evil")


def test_a_version_that_is_a_path_names_no_file(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library begins a file's copy as .cache/huggingface/download/HASH.ETAG.UUID.incomplete, HASH that of its name;
    a folder HASH.x is there when another file lies in it."""
    name = base64.urlsafe_b64encode(hashlib.sha1(b"SoccerTwos.onnx.metadata").digest()).decode()
    monkeypatch.setattr(f"{__name__}.HARMLESS", [f".cache/huggingface/download/{name}.x/y", "SoccerTwos.onnx"])
    monkeypatch.setattr(_Handler, "etag", "x/../../../../../beside")
    monkeypatch.setattr(_Handler, "watched", tmp_path)
    with pytest.raises(HubError, match=r"the hub calls its version '?.x/../../../../../beside.*; expected no path"):
        fetch("eve/evil", HubTarget(url), tmp_path / "evil")
    assert set(_Handler.seen) <= {"evil"}


@pytest.mark.parametrize(("paths", "answers"), [(60, 5), (0, 17)])
def test_a_list_of_files_without_an_end_is_given_up(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paths: int, answers: int
) -> None:
    page = [{"type": "file", "path": f"{n:01000}", "size": 4, "oid": "b" * 40} for n in range(paths)]
    monkeypatch.setattr(_Handler, "page", json.dumps(page).encode())
    monkeypatch.setattr(_Handler, "asked", [])
    monkeypatch.setattr(bounded, "MAX_COPY_BYTES", 16 * bounded.LEAST_BYTES)
    with pytest.raises(HubError, match=f"the list of files has not ended after {answers} answers"):
        fetch("eve/evil", HubTarget(url), tmp_path / "evil")
    assert sum("/tree/" in path for path in _Handler.asked) == answers - 1


def test_files_come_from_the_hub_by_plain_http(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Handler, "xet", "c" * 64)
    monkeypatch.setattr(_Handler, "asked", [])
    fetch("eve/evil", HubTarget(url), tmp_path / "evil")
    assert (tmp_path / "evil" / "SoccerTwos.onnx").read_bytes() == b"evil"
    assert not [path for path in _Handler.asked if "xet" in path]
