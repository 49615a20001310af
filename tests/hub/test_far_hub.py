"""A hub whose files lie behind a URL: pushed by one machine, served by another, whose folder holds none of them."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from far import s3_server  # noqa: F401
from hub_server import running_hub
from huggingface_hub import HfApi
from web_server import serving

from palus.hub.accounts import create_account
from palus.hub.commits import Message, Put, add_commit
from palus.hub.limits import HubLimits
from palus.hub.repos import create_repo
from palus.hub.uploads import keep_uploads
from palus.store import open_store
from palus.store.backup import back_up
from palus.store.depot import Depot
from palus.store.engine import DATABASE_FILE
from palus.web.app import make_app


def test_files_are_pushed_to_and_served_from_the_storage(
    tmp_path: Path,
    s3_server: str,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    place, data = f"{s3_server}/{tmp_path.name}", tmp_path / "arena"
    open_store(data, blobs=place).close()
    model = os.urandom(200_000)
    with running_hub(data) as hub:
        api = HfApi(hub.url, token=hub.token("ada"))
        api.create_repo("ada/first")
        api.upload_file(path_or_fileobj=model, path_in_repo="SoccerTwos.onnx", repo_id="ada/first")
        assert any((data / "blobs").glob("??/*"))
        for copies in (data / "blobs").glob("??"):
            shutil.rmtree(copies)
        got = api.hf_hub_download("ada/first", "SoccerTwos.onnx", cache_dir=tmp_path / "cache")
        assert Path(got).read_bytes() == model
        for copies in (data / "blobs").glob("??"):
            shutil.rmtree(copies)
        made = back_up(data, tmp_path / "backup")
    assert made.missing == () and made.blobs == made.copied == 1
    kept = open_store(tmp_path / "backup")
    assert {path.read_bytes() for path in kept.blobs.folder.glob("??/*")} >= {model}
    kept.close()


def test_the_storage_is_asked_while_others_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, has, asked = open_store(tmp_path / "arena", blobs=str(tmp_path / "far")), Depot.has, list[str]()

    def watched(depot: Depot, name: str) -> bool:
        with closing(sqlite3.connect(store.folder / DATABASE_FILE, timeout=0)) as other:
            other.execute("BEGIN IMMEDIATE")  # nobody waits for an answer from elsewhere
        asked.append(name)
        return has(depot, name)

    monkeypatch.setattr(Depot, "has", watched)
    with store.write() as connection:
        account = create_account(connection, "ada")
    with store.blobs.open_writer() as writer:
        writer.write(b"bytes")
        keep_uploads(store, [writer], account.id, HubLimits())
    assert len(asked) == 1 and store.blobs.read(writer.seal().sha256) == b"bytes"
    store.close()


def test_the_size_of_a_file_is_told_without_bringing_it_here(tmp_path: Path) -> None:
    store = open_store(tmp_path / "arena", blobs=str(tmp_path / "far"))
    with store.write() as connection:
        account = create_account(connection, "ada")
        repo = create_repo(connection, "model", account, "one", False, HubLimits())
    with store.blobs.open_writer() as writer:
        writer.write(bytes(5000))
        keep_uploads(store, [writer], account.id, HubLimits())
    with store.write() as connection:
        changes = [Put("p\u00e4th/large.bin", writer.seal().sha256)]
        add_commit(connection, store.blobs, repo, changes, Message("t"), "ada", HubLimits())
    shutil.rmtree(store.blobs.folder)
    with serving(make_app(store)) as address, httpx.Client(base_url=address, timeout=60, trust_env=False) as client:
        told = client.head("/ada/one/resolve/main/p\u00e4th/large.bin")
        assert not store.blobs.folder.exists()
        got = client.get("/ada/one/resolve/main/p\u00e4th/large.bin")
    store.close()
    assert (told.status_code, told.headers["content-length"], told.content) == (200, "5000", b"")
    for response in (told, got):
        for name in ("date", "last-modified"):
            response.headers.pop(name, None)
    assert told.headers == got.headers and len(got.content) == 5000
