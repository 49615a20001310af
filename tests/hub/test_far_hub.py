"""A hub whose files lie behind a URL: pushed by one machine, served by another, whose folder holds none of them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from far import s3_server  # noqa: F401
from hub_server import running_hub
from huggingface_hub import HfApi

from palus.store import open_store
from palus.store.backup import back_up


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
