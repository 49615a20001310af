"""Finding models on a real hub: by tags, by file, not before a push has come to rest."""

from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvicorn
from fastapi import FastAPI
from flaky_storage import Flaky, flaky  # noqa: F401
from huggingface_hub import HfApi
from sqlalchemy import delete, select

from palus.arena.ladder.discovery import FolderPool, HuggingFace, Sweep, sweep_house, sweep_hub
from palus.arena.ladder.entries import decide, read_lineup, take_in
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.games import GAMES
from palus.envs.arena_game import ArenaGame
from palus.errors import ArenaError
from palus.hub.accounts import create_account, issue_token
from palus.hub.limits import HubLimits
from palus.hub.server.router import include_hub
from palus.store import BlobStore, Store, open_store
from palus.store.depot import Depot
from palus.store.tables import entries, jobs, repos

ENV = "SoccerTwos"
TAGS = "---\nlibrary_name: ml-agents\ntags:\n- ML-Agents-SoccerTwos\n- reinforcement-learning\n---\n"


@pytest.fixture
def api(store: Store) -> Iterator[HfApi]:
    """huggingface_hub's own client, signed in as ann."""
    app = FastAPI()
    include_hub(app, store, HubLimits())
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=5))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    with store.write() as connection:
        create_account(connection, "ann")
        token = issue_token(connection, "ann", "test")
    yield HfApi(f"http://127.0.0.1:{listener.getsockname()[1]}", token)
    server.should_exit = True
    thread.join()
    listener.close()


def push(api: HfApi, name: str, files: dict[str, bytes], *, private: bool = False) -> None:
    api.create_repo(f"ann/{name}", private=private)
    for path, data in files.items():
        api.upload_file(path_or_fileobj=data, path_in_repo=path, repo_id=f"ann/{name}")


def push_all(api: HfApi) -> None:
    push(api, "tagged", {"README.md": TAGS.encode(), f"{ENV}.onnx": b"tagged"})
    push(api, "bare", {f"{ENV}.onnx": b"bare"})
    push(api, "empty", {"README.md": TAGS.encode()})
    push(api, "hidden", {"README.md": TAGS.encode(), f"{ENV}.onnx": b"x"}, private=True)
    push(api, "other", {"Pong.onnx": b"x", f"sub/{ENV}.onnx": b"x"})


def look(store: Store, quiet_since_ms: int = 2**62) -> Sweep:
    with store.read() as connection:
        return sweep_hub(connection, ENV, quiet_since_ms=quiet_since_ms)


def test_the_hubs_models_are_found_by_tags_or_by_their_file(store: Store, api: HfApi) -> None:
    push_all(api)
    found = {f.entity.repo: f for f in look(store).found}
    assert set(found) == {"ann/tagged", "ann/bare", "ann/empty"}
    assert (found["ann/empty"].entity.files, found["ann/empty"].fault) == ((), "missing-file")
    assert store.blobs.read(found["ann/bare"].entity.sha256) == b"bare"
    with store.read() as connection:
        head = connection.execute(select(repos.c.head).where(repos.c.name == "ann/tagged")).scalar_one()
    assert (found["ann/tagged"].entity.revision, found["ann/tagged"].entity.owner) == (head, "ann")


def test_a_copy_takes_no_place_whoever_is_found_first_and_whatever_its_author_pushes_later(
    store: Store, api: HfApi
) -> None:
    api.create_repo("ann/copy")  # an older repository
    push(api, "best", {f"{ENV}.onnx": b"a model"})
    api.upload_file(path_or_fileobj=b"a model", path_in_repo=f"{ENV}.onnx", repo_id="ann/copy")
    with store.read() as connection:
        moved_ms = connection.scalar(select(repos.c.modified_ms).where(repos.c.name == "ann/copy"))

    def credited(seen: Sweep) -> set[str]:
        with store.write() as connection:
            take_in(connection, seen, {}, now_ms=2**50)
            decide(connection, ENV, hashlib.sha256(b"a model").hexdigest(), None, {}, now_ms=2**50)
            return {player.repo for player in read_lineup(connection, ENV, repos_per_owner=0).ranked.values()}

    assert credited(look(store)) == {"ann/best"}, "both found at once"
    api.upload_file(path_or_fileobj=TAGS.encode(), path_in_repo="README.md", repo_id="ann/best")
    assert credited(look(store)) == {"ann/best"}, "with a new revision of it"
    with store.write() as connection:
        connection.execute(delete(entries))
    assert credited(look(store, quiet_since_ms=moved_ms)) == {"ann/copy"}, "its author still pushes"
    assert credited(look(store)) == {"ann/best"}


def test_the_models_of_a_team_are_found_together(
    store: Store, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GAMES, "PenaltyToy", ArenaGame("PenaltyToy", ("toy",), roles=("Striker", "Keeper")))
    push(api, "team", {"README.md": b"---\ntags:\n- toy\n---\n", "Striker.onnx": b"strikes", "Keeper.onnx": b"keeps"})
    push(api, "half", {"Keeper.onnx": b"keeps"})
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    with store.read() as connection:
        here = sweep_hub(connection, "PenaltyToy", quiet_since_ms=2**62)
    far = HuggingFace(store.blobs, api).sweep("PenaltyToy", wanted=lambda repo, revision: True)
    for seen in (here, far):
        assert [store.blobs.read(sha256) for _, sha256 in seen.found[0].entity.files] == [b"keeps", b"strikes"]
    assert [(entry.entity.repo, entry.fault) for entry in here.found] == [
        ("ann/team", None),
        ("ann/half", "missing-file"),
    ]


def test_a_push_that_has_not_come_to_rest_is_present_but_not_found(store: Store, api: HfApi) -> None:
    push(api, "bare", {f"{ENV}.onnx": b"bare"})
    assert look(store, quiet_since_ms=0) == Sweep("hub", ENV, (), frozenset({"ann/bare"}))


def test_another_hub_is_searched_by_tags_and_its_new_models_are_fetched(
    store: Store, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_all(api)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    mine = open_store(tmp_path / "mine")
    far = HuggingFace(mine.blobs, api)
    seen = far.sweep(ENV, wanted=lambda repo, revision: True)
    found = {f.entity.repo: f for f in seen.found}
    assert set(found) == {"ann/tagged", "ann/empty", "ann/hidden"}  # ann's own token sees her private one
    assert found["ann/empty"].fault == "missing-file"
    assert mine.blobs.read(found["ann/tagged"].entity.sha256) == b"tagged"
    assert found["ann/tagged"].pushed_ms > 1_700_000_000_000
    again = far.sweep(ENV, wanted=lambda repo, revision: False)
    assert (again.found, again.present) == ((), seen.present)
    mine.close()


def test_another_hub_brings_no_names_that_nobody_may_have_here(store: Store) -> None:
    names = ("palus/random", "api/x", "gpt2", "ann/x")
    there = [SimpleNamespace(id=name, sha=None) for name in names]
    stranger = SimpleNamespace(endpoint="far", list_models=lambda **_: there)
    assert HuggingFace(store.blobs, stranger).sweep(ENV, wanted=lambda *_: True).present == {"ann/x"}


def test_a_hub_that_refuses_is_named_and_one_lost_file_stops_nobody_else(
    store: Store, api: HfApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_all(api)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    for blob in store.blobs.folder.glob("??/*"):
        if blob.read_bytes() == b"tagged":
            blob.unlink()
    mine = open_store(tmp_path / "mine")
    seen = HuggingFace(mine.blobs, api).sweep(ENV, wanted=lambda repo, revision: True)
    assert {f.entity.repo for f in seen.found} == {"ann/empty", "ann/hidden"}
    assert "ann/tagged" in seen.present
    with pytest.raises(ArenaError, match="models cannot be listed"):
        HuggingFace(mine.blobs, HfApi(api.endpoint, "hf_wrong")).sweep(ENV, wanted=lambda repo, revision: True)
    mine.close()


def test_a_storage_that_is_away_stops_no_matches_of_those_who_are_in(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = open_store(tmp_path / "arena", blobs=flaky.place)
    (tmp_path / "pool/ann/one").mkdir(parents=True)
    (tmp_path / f"pool/ann/one/{ENV}.onnx").write_bytes(b"one")
    pool = FolderPool(tmp_path / "pool", store.blobs)
    sweeps = [PeriodicSweep(sweep_house, 1e9), PeriodicSweep(lambda env: pool.sweep(env, quiet_since_ms=2**62), 0.0)]
    with flaky.gone():
        Scheduler(store, ArenaSettings(), sweeps).tick()
    assert caplog.text.count("the storage did not do it (ConnectionError: connection refused)") == 1
    with store.read() as connection:
        assert len(connection.execute(select(jobs.c.id).where(jobs.c.kind == "pair")).all()) == 3
    store.close()


def test_a_storage_elsewhere_is_asked_nothing_about_models_that_lie_in_a_pool_as_before(
    tmp_path: Path,
    flaky: Flaky,  # noqa: F811
) -> None:
    (tmp_path / "pool/ann/one").mkdir(parents=True)
    (tmp_path / f"pool/ann/one/{ENV}.onnx").write_bytes(b"one")
    pool = FolderPool(tmp_path / "pool", BlobStore(tmp_path / "blobs", Depot(flaky.place)))
    found = pool.sweep(ENV, quiet_since_ms=2**62).found
    with flaky.gone():
        assert pool.sweep(ENV, quiet_since_ms=2**62).found == found != ()


def offer(pool: Path, repo: str, model: bytes, modified_s: float) -> None:
    path = pool / repo / f"{ENV}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model)
    os.utime(path, (modified_s, modified_s))


def test_a_copy_in_a_pool_takes_no_place_on_the_board_by_its_date(store: Store, tmp_path: Path) -> None:
    pool = FolderPool(tmp_path, store.blobs)
    offer(tmp_path, "zoe/first", b"model", 100)
    offer(tmp_path, "bob/second", b"model", 200)
    offer(tmp_path, "ann/own", b"own", 150)

    def look(now_ms: int) -> set[str]:
        with store.write() as connection:
            take_in(connection, pool.sweep(ENV, quiet_since_ms=2**62), {}, now_ms=now_ms)
            for model in (b"model", b"own"):
                decide(connection, ENV, hashlib.sha256(model).hexdigest(), None, {}, now_ms=now_ms)
            ranked = read_lineup(connection, ENV, repos_per_owner=0).ranked
        return {entity.repo for entity in ranked.values()}

    assert look(1000) == {"zoe/first", "ann/own"}
    offer(tmp_path, "eve/copy", b"model", 50)
    offer(tmp_path, "eve/other", b"own", 1)
    assert look(2000) == {"zoe/first", "ann/own"}


def test_a_model_whose_clock_is_ahead_is_found_when_nothing_changes_any_more(store: Store, tmp_path: Path) -> None:
    pool, now_s = FolderPool(tmp_path, store.blobs), time.time()

    def found() -> list[str]:
        return [entry.entity.repo for entry in pool.sweep(ENV, quiet_since_ms=round(1000 * now_s) - 5000).found]

    offer(tmp_path, "ann/ahead", b"mod", now_s + 7200)
    offer(tmp_path, "bob/now", b"model", now_s)
    assert found() == []
    offer(tmp_path, "ann/ahead", b"model", now_s + 7201)
    assert [found(), found()] == [[], ["ann/ahead"]]
