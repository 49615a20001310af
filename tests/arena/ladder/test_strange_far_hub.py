"""A hub somewhere else that answers what no honest one would: `--huggingface` writes nothing but blobs for it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import HfApi

from palus.arena.ladder import discovery
from palus.arena.ladder.discovery import HuggingFace, Sweep
from palus.errors import ArenaError
from palus.store import Store

ENV = "SoccerTwos"


class _Handler(BaseHTTPRequestHandler):
    """Answers as a hub of one model does, but for what a test sets."""

    sha, commit, etag, size, spaces, pages = "a" * 40, "a" * 40, "b" * 40, 4, 0, 1

    def do_GET(self) -> None:
        if self.path.startswith("/api/models"):
            model = {"id": "eve/evil", "sha": self.sha, "siblings": [{"rfilename": f"{ENV}.onnx"}], "tags": []}
            self._answer(json.dumps([model]).encode() + b" " * self.spaces)
        else:
            self._answer(b"e" * self.size)

    def do_POST(self) -> None:  # of paths
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(json.dumps([{"type": "file", "path": f"{ENV}.onnx", "size": 4, "oid": "b" * 40}]).encode())

    def do_HEAD(self) -> None:
        self.do_GET()

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        for name, value in {"Content-Length": len(body), "ETag": self.etag, "X-Repo-Commit": self.commit}.items():
            self.send_header(name, str(value))
        if self.pages > 1 and self.path.startswith("/api/models"):
            type(self).pages -= 1
            self.send_header("Link", f'<http://{self.headers["Host"]}/api/models>; rel="next"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Tests that fail say what they missed."""


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HfApi]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        yield HfApi(f"http://127.0.0.1:{server.server_port}", False)
        server.shutdown()


def swept(store: Store, api: HfApi) -> Sweep:
    return HuggingFace(store.blobs, api).sweep(ENV, wanted=lambda repo, revision: True)


@pytest.mark.parametrize("field", ["commit", "etag"])
@pytest.mark.parametrize("path", ["../../../beside", "{folder}/beside"])
def test_what_a_hub_says_of_a_file_names_none_here(
    store: Store, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str, path: str
) -> None:
    monkeypatch.setattr(_Handler, field, path.format(folder=tmp_path / "home"))
    (entry,) = swept(store, api).found
    assert store.blobs.read(entry.entity.sha256) == b"eeee"
    assert not list(tmp_path.rglob("*beside*"))


@pytest.mark.parametrize("sha", ["../../../beside", "{folder}/beside", "main", "", None])
def test_a_model_whose_commit_is_none_is_left_out(
    store: Store, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sha: str | None
) -> None:
    monkeypatch.setattr(_Handler, "sha", sha and sha.format(folder=tmp_path / "home"))
    assert not swept(store, api).found
    assert not list(tmp_path.rglob("*beside*"))


def test_a_file_is_read_no_further_than_a_model_may_be_long(
    store: Store, api: HfApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Handler, "size", 64 * 2**20 + 1)
    (entry,) = swept(store, api).found
    assert entry.fault == discovery.TOO_LARGE


def test_a_list_without_end_is_none(store: Store, api: HfApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Handler, "spaces", 16 * 2**20)
    with pytest.raises(ArenaError, match=r"models cannot be listed .*more than 16 MiB"):
        swept(store, api)


def test_pages_without_end_are_not_all_asked_for(store: Store, api: HfApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "MAX_LISTED", 5)
    monkeypatch.setattr(_Handler, "pages", 100)
    with pytest.raises(ArenaError, match="lists more than 5 models of SoccerTwos; check HF_ENDPOINT"):
        swept(store, api)
    assert _Handler.pages == 94
