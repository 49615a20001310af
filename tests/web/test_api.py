"""The arena's JSON: what each endpoint says about a small arena whose results are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from postgres import postgres_server, postgres_url  # noqa: F401
from small_arena import AT_ONCE, get, small_arena
from sqlalchemy import delete, insert, select, update
from synthetic_arena import ENV, SyntheticArena, sha_of

from palus.arena.ladder.audit import annul_unit
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.replay import encode_replay
from palus.envs.recording import Recording
from palus.store import Store, open_store
from palus.store.derived import DERIVED, ratings
from palus.store.tables import annulments, jobs, matches, workers
from palus.web.api.view import Views, read_version
from palus.web.app import make_app


def test_the_head_of_the_log_is_published(client: TestClient, store: Store, arena: SyntheticArena) -> None:
    with store.read() as connection:
        newest = connection.execute(select(matches.c.hash).order_by(matches.c.seq.desc()).limit(1)).scalar()
    head = get(client, "head")
    assert (head["seq"], head["hash"], head["annulled"]) == (24, newest, 0)
    with store.write() as connection:
        match = connection.execute(select(matches.c.id).limit(1)).scalar_one()
        annul_unit(connection, match, "forged", now_ms=1)
    again = get(client, "head")
    assert (again["annulled"], again["annulled_hash"] == head["annulled_hash"]) == (2, False)


def test_a_number_that_no_match_has_does_not_stop_the_pages(client: TestClient, arena: SyntheticArena) -> None:
    (match,) = arena.play("ada/one", "cy/three", "win1", ticks=10**30)
    for path in (f"leaderboard/{ENV}", f"analytics/{ENV}", f"matches/{match}", "status"):
        get(client, path)


def test_the_board_lists_players_by_rating_with_their_games(client: TestClient) -> None:
    board = get(client, f"leaderboard/{ENV}")
    rows = [(row["rank"], row["repo"], row["games"], row["wins"], row["draws"], row["losses"]) for row in board["rows"]]
    assert rows == [(1, "ada/one", 12, 9, 3, 0), (2, "bob/two", 24, 9, 6, 9), (3, "cy/three", 12, 0, 3, 9)]
    assert board["matches"] == 24 and board["upto_seq"] == board["log_seq"] == 24
    top = board["rows"][0]
    assert top["provisional"] and top["rating"] > 1300 and top["sha256"] == sha_of("ada/one")
    assert top["openskill"] == pytest.approx(top["openskill_mu"] - 3 * top["openskill_sigma"])
    shown = {column["title"]: f"{top[column['field']]:.{column['decimals']}f}" for column in board["measures"]}
    assert shown["Elo"] == f"{top['elo']:.1f}" and shown["openskill"] == f"{top['openskill']:.2f}"


def test_the_match_page_places_a_match_in_the_chain(client: TestClient, store: Store) -> None:
    recent = get(client, f"recent/{ENV}")["matches"]
    assert [match["seq"] for match in recent] == list(range(24, 0, -1))
    page = get(client, f"matches/{recent[1]['id']}")
    assert (page["result"], page["cause"], page["leg"]) == ("draw", "time_limit", 1)
    assert (page["blue"]["repo"], page["purple"]["repo"]) == ("bob/two", "cy/three")
    assert page["seed"] == str(2**63 + 23)  # more than JavaScript's numbers hold
    assert page["other_leg"] == recent[0]["id"]
    assert page["chain"]["intact"] and page["chain"]["seq"] == 23 and page["chain"]["head_seq"] == 24
    with store.write() as connection:
        text = connection.execute(matches.select().where(matches.c.seq == 22)).one().record
        connection.execute(update(matches).where(matches.c.seq == 22).values(record=text.replace("goal", "lead")))
    assert not get(client, f"matches/{recent[2]['id']}")["chain"]["intact"]


def test_the_newest_matches_say_whether_there_is_something_to_watch(client: TestClient, arena: SyntheticArena) -> None:
    arena.play("ada/one", "cy/three", "win1", replay=b"kept")
    assert [match["has_replay"] for match in get(client, f"recent/{ENV}")["matches"][:2]] == [True, False]


def test_a_struck_out_match_stays_in_the_log_and_leaves_the_statistics(client: TestClient, store: Store) -> None:
    match = get(client, f"recent/{ENV}")["matches"][-1]["id"]
    with store.write() as connection:
        connection.execute(insert(annulments).values(match_id=match, reason="audit differs", created_ms=1))
    page = get(client, f"matches/{match}")
    assert (page["rated"], page["annulled"]) == (False, "audit differs")
    assert get(client, "models/ada/one")["performance"][0]["head_to_head"][0]["games"] == 11
    assert get(client, f"analytics/{ENV}")["matches"] == 23


def test_pages_from_the_sums_of_the_log_say_what_those_from_the_log_itself_said(
    client: TestClient, store: Store, arena: SyntheticArena
) -> None:
    def counted() -> list[Any]:
        shown = {name: get(client, f"matrix/{ENV}")[name] for name in ("share", "games")}
        board = [(row["repo"], row["last_match_ms"]) for row in get(client, f"leaderboard/{ENV}")["rows"]]
        return [get(client, "envs"), get(client, f"analytics/{ENV}"), shown, board]

    from_log = counted()
    assert Views(store).current().tail(ENV).n == 24
    Refresher(store, ArenaSettings()).refresh()
    assert Views(store).current().tail(ENV).n == 0, "nothing of the log is read"
    assert counted() == from_log
    arena.play("ada/one", "cy/three", "win1", "win2")
    assert Views(store).current().tail(ENV).n == 2
    with_more = counted()
    assert with_more != from_log
    with store.write() as connection:
        for table in DERIVED:
            if table.name in ("intake", "pair_sums", "player_sums", "census"):
                connection.execute(delete(table))
    assert counted() == with_more


def test_the_matrix_has_shares_counts_and_what_the_fit_found(client: TestClient, arena: SyntheticArena) -> None:
    ada, bob, cy = (sha_of(repo) for repo in ("ada/one", "bob/two", "cy/three"))
    summary = {
        "support": [{"sha256": ada, "mass": 1.0, "low": 0.4, "high": 1.0}],
        "skill": {ada: 0.0, bob: -100.0, cy: -200.0},
        "unexplained_share": 0.1,
        "cycles": [{"players": [ada, bob, cy], "shares": [0.9, 0.9, 0.8]}],
    }
    arena.play("ada/one", "cy/three", "void", "void")
    arena.rate(summary)
    page = get(client, f"matrix/{ENV}")
    assert [player["repo"] for player in page["players"]] == ["ada/one", "bob/two", "cy/three"]
    assert page["share"] == [[None, 0.875, None], [0.125, None, 0.875], [None, 0.125, None]]
    assert page["games"] == [[0, 12, 0], [12, 0, 12], [0, 12, 0]]
    assert page["nash_skill"] == [0.0, -100.0, -200.0] and page["unexplained_share"] == 0.1
    assert page["cycles"] == [{"players": [ada, bob, cy], "shares": [0.9, 0.9, 0.8]}]


def test_the_board_and_status_count_alike_what_no_rating_includes_yet(
    client: TestClient, arena: SyntheticArena
) -> None:
    arena.play("ada/one", "ada/one", "draw", "draw", rated=False)  # never will be included
    other = SyntheticArena(arena.store, "StrikersVsGoalie", seq=arena.seq)
    other.play("ada/one", "bob/two", "win1", "win2")
    assert [get(client, f"leaderboard/{env}")["ratings_behind"] for env in (ENV, other.env)] == [0, 2]
    arena.seq = other.seq
    arena.play("ada/one", "bob/two", "win1", "win2")
    assert get(client, f"leaderboard/{ENV}")["ratings_behind"] == 2
    assert get(client, "status")["ratings_behind"] == 4


def test_status_counts_jobs_and_knows_who_is_alive(client: TestClient, store: Store) -> None:
    job = {"payload": "{}", "priority": 0, "attempts": 1, "created_ms": 1}
    worker = {"isolation": "namespaces", "platform": '{"system": "Linux"}', "first_seen_ms": 1, "matches": 7}
    with store.write() as connection:
        connection.execute(insert(jobs).values(kind="pair", key="a against b", state="leased", worker="w1", **job))
        connection.execute(insert(jobs).values(kind="pair", key="c against d", state="ready", **job))
        connection.execute(insert(workers).values(name="w1", last_seen_ms=2**52, **worker))
        long = job | {"lease_until_ms": 2**52}  # a match of more than a minute
        connection.execute(insert(jobs).values(kind="pair", key="e against f", state="leased", worker="w2", **long))
        connection.execute(insert(workers).values(name="w2", last_seen_ms=7, **worker))
        connection.execute(insert(workers).values(name="w3", last_seen_ms=6, **worker))
        connection.execute(insert(workers).values(name="w0", last_seen_ms=2**51, suspended="odd results", **worker))
    page = get(client, "status")
    assert page["jobs"] == [{"kind": "pair", "ready": 1, "leased": 2, "done": 0, "failed": 0}]
    assert [(job["what"], job["worker"]) for job in page["running"]] == [("a against b", "w1"), ("e against f", "w2")]
    seen = [(line["name"], line["alive"], line["suspended"]) for line in page["workers"]]
    assert seen == [("w1", True, None), ("w0", False, "odd results"), ("w2", True, None), ("w3", False, None)]
    assert (page["matches"], page["head_seq"], page["ratings_behind"]) == (24, 24, 0)
    assert page["untended"] is None
    with store.write() as connection:
        connection.execute(insert(jobs).values(kind="validate", key="v", state="ready", trusted_only=True, **job))
    page = get(client, "status")
    assert "none is there: 1 of SoccerTwos" in page["untended"]
    assert [line["trusted"] for line in page["workers"]] == [False] * 4


def test_analytics_count_like_the_reference(client: TestClient, arena: SyntheticArena) -> None:
    arena.play("Zoe/z", "ada/one", "draw", "forfeit1")
    page = get(client, f"analytics/{ENV}")
    assert [team["team"] for team in page["teams"]] == ["ada/one", "bob/two", "cy/three", "Zoe/z"]
    assert (page["matches"], page["models"]) == (26, 4)
    assert page["days"] == [{"day": "2023-11-14", "matches": 26, "cumulative": 26}]
    team = get(client, f"analytics/{ENV}/ada/one")
    assert (team["wins"], team["draws"], team["losses"], team["win_rate"]) == (9, 4, 1, 64.29)
    assert team["games"][0]["result"] == "loss" and team["games"][0]["opponent_model"] == "z"
    assert team["days"] == [{"day": "2023-11-14", "losses": 1, "draws": 4, "wins": 9}]


def test_a_replay_comes_as_stored_and_as_a_page(client: TestClient, arena: SyntheticArena) -> None:
    frames = np.zeros((11, 14), np.float32)
    actions = np.zeros((2, 4, 3), np.int8)
    recording = Recording("SoccerTwos", 1, ("a", "b"), frames, actions, None, (), (0, 0), "draw")
    data = encode_replay([recording])
    match = arena.play("ada/one", "bob/two", "draw", "draw", replay=data)[0]
    page = get(client, f"matches/{match}")
    assert page["replay"]["bytes"] == len(data) and client.get(page["replay"]["url"]).content == data
    html = client.get(f"/api/arena/matches/{match}/page.html")
    assert html.headers["content-disposition"] == f'attachment; filename="{match}.html"'
    assert 'id="replay"' in html.text


def test_answers_are_not_sent_again_to_who_has_them(client: TestClient, arena: SyntheticArena) -> None:
    first = client.get(f"/api/arena/leaderboard/{ENV}")
    known = {"If-None-Match": first.headers["etag"]}
    assert client.get(f"/api/arena/leaderboard/{ENV}", headers=known).status_code == 304
    arena.play("ada/one", "bob/two", "draw", "draw")
    assert client.get(f"/api/arena/leaderboard/{ENV}", headers=known).status_code == 200
    assert first.headers["content-encoding"] == "gzip"


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("leaderboard/Chess", 404, "unknown_env"),
        ("models/no/body", 404, "not_found"),
        ("matches/ffff", 404, "not_found"),
        ("matches/xyz", 422, "invalid_input"),
        ("matches/ffff/replay", 404, "no_file"),
        (f"compare/{ENV}/ada/one/no/body", 404, "not_found"),
        ("downloads/SoccerTwos/passwords.csv", 404, "unknown_file"),
        ("nothing/here", 404, "not_found"),
    ],
)
def test_faults_have_a_code_and_a_sentence(client: TestClient, path: str, status: int, code: str) -> None:
    answer = client.get(f"/api/arena/{path}")
    assert answer.status_code == status
    assert answer.json()["code"] == code and len(answer.json()["error"]) > 20


def test_pages_are_the_same_from_both_databases(
    client: TestClient, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    other = open_store(tmp_path / "other", request.getfixturevalue("postgres_url"))
    small_arena(other)
    match = get(client, f"recent/{ENV}")["matches"][0]["id"]
    pages = [f"{name}/{ENV}" for name in ("leaderboard", "recent", "matrix", "analytics")]
    pages += [
        "envs",
        "models/ada/one",
        f"compare/{ENV}/ada/one/bob/two",
        f"analytics/{ENV}/ada/one",
        f"matches/{match}",
    ]
    with TestClient(make_app(other, limits=AT_ONCE)) as second:
        for page in pages:
            assert get(second, page) == get(client, page), page
        get(second, "status")
        assert second.get(f"/api/arena/downloads/{ENV}/matches.json").status_code == 200
    other.close()


def test_pages_go_on_where_the_last_of_thousands_has_played_hundreds_of_thousands_of_games(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    other = open_store(tmp_path, request.getfixturevalue("postgres_url"))
    row = dict.fromkeys(ratings.c.keys(), 0) | {"env": ENV, "sha256": "a" * 64, "rank": 10_000, "games": 300_000}
    with other.write() as connection:
        connection.execute(insert(ratings).values(row))
    with other.read() as connection:
        assert 10_000 * 300_001 in read_version(connection).roster  # more than 32 bits hold
    other.close()


def test_an_empty_arena_has_empty_pages(store: Store) -> None:
    with TestClient(make_app(store, limits=AT_ONCE)) as client:
        assert get(client, "envs")["environments"] == [{"env": ENV, "models": 0, "matches": 0, "updated_ms": None}]
        for path in (f"leaderboard/{ENV}", f"recent/{ENV}", f"matrix/{ENV}", f"analytics/{ENV}", "status"):
            get(client, path)
