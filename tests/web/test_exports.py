"""Downloads: the same rows in every form, and the reference competition's files as its own tools read them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, select
from synthetic_arena import ENV, SyntheticArena, sha_of

from palus.arena.ladder.derive import DECIMALS
from palus.arena.ladder.log import LogRecord
from palus.ratings.games import Played
from palus.ratings.online import Online, follow
from palus.store import Store
from palus.store.tables import annulments, matches
from palus.web.app import WebLimits, make_app


@pytest.fixture
def arena(store: Store) -> SyntheticArena:
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "ada/three"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "draw", "forfeit1", "win2")
    arena.play("bob/two", "ada/three", "win1", "win1", "void", "forfeit2")
    arena.play("ada/one", "ada/three", "win1", "win1", rated=False)
    arena.rate()
    return arena


@pytest.fixture
def client(store: Store, arena: SyntheticArena) -> Iterator[TestClient]:
    with TestClient(make_app(store, limits=WebLimits(fresh_s=0.0, keep_s=0.0))) as client:
        yield client


def download(client: TestClient, name: str) -> bytes:
    answer = client.get(f"/api/arena/downloads/{ENV}/{name}")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == f'attachment; filename="{name}"'
    return answer.content


def test_nobody_fills_the_disk_with_downloads_of_games_that_he_makes_up(client: TestClient, store: Store) -> None:
    assert client.get(f"/api/arena/downloads/{ENV}/elo.csv").status_code == 200
    assert client.get("/api/arena/downloads/MadeUp/elo.csv").status_code == 404
    assert len(list((store.folder / "exports").iterdir())) == 1


def test_a_file_that_another_process_removes_meanwhile_disturbs_no_download(client: TestClient, store: Store) -> None:
    (store.folder / "exports").mkdir()
    (store.folder / "exports" / "other.part.csv").symlink_to("gone")  # is listed, and not there when it is looked at
    assert download(client, "elo.csv")


def test_the_history_is_read_by_the_rules_of_the_reference_analytics(client: TestClient) -> None:
    """Those rules: four columns by name, ids split at the slash, Unix seconds, anything but 0 and 1 is a draw."""
    rows = list(csv.DictReader(io.StringIO(download(client, "history.csv").decode())))
    assert list(rows[0]) == ["model1", "model2", "timestamp", "result"]
    games: dict[str, list[str]] = {}
    for row in rows:
        owner, model = row["model1"].split("/")
        assert datetime.fromtimestamp(float(row["timestamp"]), UTC).year == 2023 and owner and model
        result = float(row["result"])
        for team, won in ((row["model1"], result == 1), (row["model2"], result == 0)):
            lost = result in (0, 1) and not won
            games.setdefault(team, []).append("win" if won else "loss" if lost else "draw")
    assert games["ada/one"] == ["win", "draw", "loss", "win"]
    assert games["bob/two"] == ["loss", "draw", "win", "loss", "win", "loss", "loss"]
    assert games["ada/three"] == ["loss", "win", "win"]


def test_a_file_of_a_quiet_arena_stays_until_there_is_a_newer_one(store: Store, arena: SyntheticArena) -> None:
    """Each new file sweeps old ones; what is given out now is none of these, however long ago it was written."""
    folder, url = store.folder / "exports", f"/api/arena/downloads/{ENV}"
    with TestClient(make_app(store)) as client:
        before = client.get(f"{url}/elo.csv")
        (left_behind := folder / "left-by-a-killed-arena.csv").write_text("")
        for file in folder.iterdir():
            os.utime(file, (0, 0))
        assert client.get(f"{url}/history.csv").status_code == 200
        assert not left_behind.exists()
        assert client.get(f"{url}/elo.csv").content == before.content
        for file in folder.iterdir():
            file.unlink()
        assert client.get(f"{url}/elo.csv").content == before.content


def test_the_history_is_the_one_of_the_log(client: TestClient, store: Store) -> None:
    with store.read() as connection:
        lines = connection.scalars(select(matches.c.record).where(matches.c.rated).order_by(matches.c.seq))
        records = [LogRecord.from_json(line) for line in lines]
    expected = [
        f"{blue.entity.repo},{purple.entity.repo},{record.finished_ms / 1000},{record.points}"
        for record in records
        for blue, purple in [record.sides]
    ]
    assert download(client, "history.csv").decode().splitlines() == ["model1,model2,timestamp,result", *expected]


def test_the_reference_elo_of_the_history_is_the_one_on_the_board(client: TestClient) -> None:
    history = csv.DictReader(io.StringIO(download(client, "history.csv").decode()))
    played = [
        Played(i, str(i), str(i), row["model1"], row["model2"], float(row["result"])) for i, row in enumerate(history)
    ]
    table = list(csv.DictReader(io.StringIO(download(client, "elo.csv").decode())))
    assert list(table[0]) == ["rank", "author", "model", "elo", "games_played"]
    assert [int(row["rank"]) for row in table] == [1, 2, 3]
    players: dict[str, Online] = {}
    follow(players, played)
    for row in table:
        name = f"{row['author']}/{row['model']}"
        assert float(row["elo"]) == pytest.approx(players[name].elo, abs=10**-DECIMALS)
        assert int(row["games_played"]) == sum(name in (game.first, game.second) for game in played)


def test_matches_are_the_same_rows_as_csv_json_and_parquet(client: TestClient, store: Store, tmp_path: Path) -> None:
    with store.write() as connection:
        struck = {"match_id": sha_of("match 2")[:16], "reason": "audit", "created_ms": 1}
        connection.execute(insert(annulments).values(**struck))
    rows = list(csv.DictReader(io.StringIO(download(client, "matches.csv").decode())))
    assert [(row["seq"], row["blue_repo"], row["result"], row["rated"], row["annulled"]) for row in rows[:3]] == [
        ("1", "ada/one", "win1", "true", "false"),
        ("2", "bob/two", "draw", "true", "true"),
        ("3", "ada/one", "forfeit1", "true", "false"),
    ]
    assert rows[0]["seed"] == str(2**63 + 1) and rows[6]["rated"] == "false"
    objects = json.loads(download(client, "matches.json"))
    assert [(row["seq"], row["seed"], row["rated"], row["replay_sha256"]) for row in objects] == [
        (int(row["seq"]), row["seed"], row["rated"] == "true", None) for row in rows
    ]
    (tmp_path / "matches.parquet").write_bytes(download(client, "matches.parquet"))
    with duckdb.connect() as database:
        found = database.execute(
            "SELECT count(*), sum(rated::int), max(seq), any_value(typeof(rated)) FROM read_parquet(?)",
            [str(tmp_path / "matches.parquet")],
        ).fetchone()
    assert found == (10, 7, 10, "BOOLEAN")


def test_ratings_come_in_three_forms(client: TestClient, tmp_path: Path) -> None:
    board = client.get(f"/api/arena/leaderboard/{ENV}").json()["rows"]
    objects = json.loads(download(client, "ratings.json"))
    assert [(row["repo"], row["rating"], row["half_width"]) for row in objects] == [
        (row["repo"], row["rating"], row["half_width"]) for row in board
    ]
    header, *lines = csv.reader(io.StringIO(download(client, "ratings.csv").decode()))
    assert header[:9] == ["rank", "rank_best", "rank_worst", "repo", "owner", "name", "revision", "sha256", "kind"]
    assert {*header} == {*board[0]} == {*objects[0]} and len(lines) == len(board)
    assert download(client, "ratings.parquet")[:4] == b"PAR1"


def test_a_download_follows_the_log_and_leaves_no_litter(
    client: TestClient, arena: SyntheticArena, store: Store
) -> None:
    before = download(client, "history.csv")
    assert download(client, "history.csv") == before
    assert len(list((store.folder / "exports").iterdir())) == 1
    arena.play("ada/one", "bob/two", "draw", "draw")
    assert len(download(client, "history.csv").splitlines()) == len(before.splitlines()) + 2
