"""A player of several behaviors: pushed as a folder of models, found, entered, ordered, logged and rated as one."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from arena_records import read_log, record
from sqlalchemy import select

from palus.arena.ladder import queue
from palus.arena.ladder.discovery import FolderPool, Sweep, sweep_hub
from palus.arena.ladder.entries import decide, read_lineup, take_in
from palus.arena.ladder.log import append
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity
from palus.arena.referee.games import GAMES
from palus.envs.arena_game import ArenaGame
from palus.files import digest_of
from palus.hub.layout import read_run
from palus.hub.publish import publish
from palus.hub.target import FolderTarget
from palus.store import Store, open_store
from palus.store.derived import ratings
from palus.store.tables import entries

ENV, ROLES = "PenaltyToy", ("Striker", "Keeper")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setitem(GAMES, ENV, ArenaGame(ENV, ("toy",), roles=ROLES))
    return open_store(tmp_path / "arena")


def push(folder: Path, repo: str, models: dict[str, bytes]) -> str:
    """Push what a run of these behaviors leaves to the pool. Returns the name that the push gives it."""
    run = folder / repo.replace("/", "-")
    run.mkdir(exist_ok=True)
    (run / "configuration.yaml").write_text(yaml.safe_dump({"behaviors": {name: {} for name in ROLES}}))
    for name, model in models.items():
        (run / f"{name}.onnx").write_bytes(model)
    publish(read_run(run), repo, FolderTarget(folder / "pool"))
    return read_run(run).sha256


def sha(model: bytes) -> str:
    return hashlib.sha256(model).hexdigest()


def enter(store: Store, folder: Path) -> Sweep:
    seen = FolderPool(folder / "pool", store.blobs).sweep(ENV, quiet_since_ms=2**62)
    with store.write() as connection:
        take_in(connection, seen, {}, now_ms=1)
    return seen


def test_a_team_is_pushed_entered_ordered_and_rated_under_the_name_of_all_its_files(
    store: Store, tmp_path: Path
) -> None:
    teams = {
        "ann/a": {"Striker": b"strikes", "Keeper": b"keeps"},
        "bob/b": {"Striker": b"strikes", "Keeper": b"sleeps"},  # a half of ann's, and another player
    }
    names = {repo: push(tmp_path, repo, models) for repo, models in teams.items()}
    enter(store, tmp_path)
    with store.write() as connection:
        waiting = queue.open_payloads(connection, "validate", ENV)
        contenders = [Entity.from_json(json.loads(payload)["contender"]) for payload in waiting]
        for repo, name in names.items():
            decide(connection, ENV, name, None, {"p99_ms": 0.1, "computation": sha(repo.encode())}, now_ms=2)
        ranked = read_lineup(connection, ENV, repos_per_owner=0).ranked
    assert contenders == list(ranked.values())
    ann, bob = (ranked[names[repo]] for repo in teams)
    assert ann.files == (("Keeper", sha(b"keeps")), ("Striker", sha(b"strikes")))
    assert ann.sha256 == sha(json.dumps([["Keeper", sha(b"keeps")], ["Striker", sha(b"strikes")]]).encode())
    assert (ann.file, ann.with_models(store.blobs.read).models) == ("Keeper.onnx, Striker.onnx", (b"keeps", b"strikes"))

    order = Unit(ENV, 1, (ann, bob), season=1, rated=True)
    assert Unit.from_payload(json.loads(json.dumps(order.to_payload()))) == order
    made = [
        replace(record(n, unit=n // 2, leg=1 + n % 2, result="win2" if n % 2 else "win1"), sides=order.sides(1 + n % 2))
        for n in range(8)
    ]
    with store.write() as connection:
        append(connection, [replace(match, env=ENV) for match in made], finished_ms=3)
    with store.read() as connection:
        assert [row.sides for row in read_log(connection)] == [match.sides for match in made]
    Refresher(store, ArenaSettings(envs=(ENV,))).refresh()
    with store.read() as connection:
        rated = connection.execute(select(ratings.c.sha256).order_by(ratings.c.rank)).scalars().all()
    assert rated == [ann.sha256, bob.sha256]


def test_a_team_that_computes_what_another_does_plays_with_the_files_of_the_first(store: Store, tmp_path: Path) -> None:
    first = push(tmp_path, "ann/a", {"Striker": b"strikes", "Keeper": b"keeps"})
    enter(store, tmp_path)
    with store.write() as connection:
        decide(connection, ENV, first, None, {"computation": sha(b"same")}, now_ms=2)
    copy = push(tmp_path, "bob/b", {"Striker": b"strikes", "Keeper": b"keeps, and a comment"})
    enter(store, tmp_path)
    with store.write() as connection:
        decide(connection, ENV, copy, None, {"computation": sha(b"same")}, now_ms=3)
        shared = connection.execute(select(entries.c.sha256, entries.c.files, entries.c.file_sha256)).all()
    assert [row.file_sha256 for row in shared] == [first, copy]
    assert shared[0][:2] == shared[1][:2] == (first, shared[0].files)


def test_a_team_rests_when_the_last_of_its_files_does(store: Store, tmp_path: Path) -> None:
    push(tmp_path, "ann/a", {"Striker": b"strikes", "Keeper": b"kee"})
    for name, modified_s in (("Striker", 100), ("Keeper", 200)):
        os.utime(tmp_path / f"pool/ann/a/{name}.onnx", (modified_s, modified_s))
    pool = FolderPool(tmp_path / "pool", store.blobs)
    assert [len(pool.sweep(ENV, quiet_since_ms=1000 * s).found) for s in (150, 200)] == [0, 1]


def test_half_a_team_is_told_what_is_missing(store: Store, tmp_path: Path) -> None:
    push(tmp_path, "ann/half", {"Keeper": b"keeps"})
    enter(store, tmp_path)
    with store.read() as connection:
        row = connection.execute(select(entries)).one()
        assert sweep_hub(connection, ENV, quiet_since_ms=2**62).found == ()
    assert (row.state, row.code, row.sha256) == ("refused", "missing-file", None)
    assert row.sentence == "the repository holds models of PenaltyToy, but there is no Striker.onnx in its root"
    assert row.remedy == "push Striker.onnx, or remove Keeper.onnx"


def test_one_file_is_named_by_its_own_hash_and_several_by_which_plays_what() -> None:
    assert digest_of({"SoccerTwos": "a" * 64}) == "a" * 64
    apart = {digest_of(files) for files in ({"A": "1", "B": "2"}, {"A": "2", "B": "1"}, {"B": "2", "A": "1"})}
    assert len(apart) == 2


def test_a_later_push_of_a_team_drops_the_old_checkpoints_of_every_behavior(store: Store, tmp_path: Path) -> None:
    models = {"Striker": b"strikes", "Keeper": b"keeps"}
    for name in ROLES:
        models[f"{name}/old"] = b"checkpoint"
        (tmp_path / "ann-a" / name).mkdir(parents=True, exist_ok=True)
    push(tmp_path, "ann/a", models)
    for name in ROLES:
        (tmp_path / "ann-a" / name / "old.onnx").unlink()
    push(tmp_path, "ann/a", {"Striker": b"strikes", "Keeper": b"keeps better"})
    assert sorted(path.stem for path in (tmp_path / "pool").rglob("*.onnx")) == ["Keeper", "Striker"]
