"""The arena's JSON: what each endpoint says about a small arena whose results are known."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import HTTPException
from fastapi.testclient import TestClient
from postgres import postgres_server, postgres_url  # noqa: F401
from sqlalchemy import delete, event, insert, select, update
from sqlalchemy.exc import OperationalError
from synthetic_arena import ENV, SyntheticArena, sha_of
from web_server import serving

from histories import arrange, variance_of_gaps
from palus.arena.ladder.audit import annul_unit
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.referee.replay import encode_replay
from palus.envs.recording import Recording
from palus.hub.repos import find_repo, set_private
from palus.ratings.bradley_terry import fit
from palus.ratings.interval import score_interval, share_intervals
from palus.store import Store, open_store
from palus.store.derived import DERIVED, play_stats, ratings
from palus.store.tables import annulments, entries, jobs, matches, workers
from palus.web.api import models, performance, summaries
from palus.web.api.answers import Answers
from palus.web.api.compare import SequentialTest, verdict
from palus.web.api.view import Views, read_version
from palus.web.app import WebLimits, make_app
from palus.web.events import RECONNECT_MS, Events

AT_ONCE = WebLimits(fresh_s=0.0, keep_s=0.0, poll_s=0.05)


@pytest.fixture
def arena(store: Store) -> SyntheticArena:
    return small_arena(store)


def small_arena(store: Store) -> SyntheticArena:
    """Ada beats Bob, Bob beats Cy; Ada and Cy have not met."""
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two", "cy/three"):
        arena.add_entry(repo)
    for _ in range(3):
        arena.play("ada/one", "bob/two", "win1", "win2", "win1", "draw")
        arena.play("bob/two", "cy/three", "win1", "win2", "draw", "forfeit1", ticks=1000)
    arena.rate()
    return arena


@pytest.fixture
def client(store: Store, arena: SyntheticArena) -> Iterator[TestClient]:
    with TestClient(make_app(store, limits=AT_ONCE)) as client:
        yield client


def get(client: TestClient, path: str) -> Any:
    answer = client.get(f"/api/arena/{path}")
    assert answer.status_code == 200, answer.text
    return answer.json()


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


def test_a_new_revision_replaces_the_old_one_only_when_it_is_ranked(client: TestClient, arena: SyntheticArena) -> None:
    newer = arena.add_entry("ada/one", file="ada/one v2")
    assert get(client, f"leaderboard/{ENV}")["rows"][0]["sha256"] == sha_of("ada/one")
    page = get(client, "models/ada/one")
    assert [(line["sha256"], line["current"]) for line in page["revisions"]] == [
        (newer, False),
        (sha_of("ada/one"), True),
    ]


def test_of_many_revisions_the_newest_are_shown_and_read_at_once(
    client: TestClient, arena: SyntheticArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "LISTED_REVISIONS", 3)
    monkeypatch.setattr(performance, "HISTORY_REVISIONS", 2)
    newer = [arena.add_entry("ada/one", file=f"ada/one v{number}") for number in range(2, 6)][::-1]
    asked: list[str] = []
    event.listen(arena.store.engine, "before_cursor_execute", lambda *what: asked.append(what[2]))
    page = get(client, "models/ada/one")
    assert [line["sha256"] for line in page["revisions"]] == newer[:3]
    [shown] = page["performance"]
    assert (page["revisions_pushed"], shown["revisions_accepted"]) == (5, 5)
    assert [series["sha256"] for series in shown["history"]] == [*newer[:2], sha_of("ada/one")]
    assert [len(series["points"]) for series in shown["history"]] == [0, 0, 1]
    assert sum("rating_points" in statement for statement in asked) == 1


def test_a_copy_of_a_file_is_credited_to_who_pushed_it_first(client: TestClient, arena: SyntheticArena) -> None:
    arena.add_entry("thief/copy", file="ada/one")
    rows = get(client, f"leaderboard/{ENV}")["rows"]
    assert [row["repo"] for row in rows] == ["ada/one", "bob/two", "cy/three"]
    (line,) = get(client, f"unranked/{ENV}")["models"]
    assert (line["repo"], line["state"], line["same_as"]) == ("thief/copy", "accepted", "ada/one")
    performance = get(client, "models/thief/copy")["performance"][0]
    assert (performance["same_as"], performance["standing"]["repo"]) == ("ada/one", "ada/one")


def test_every_model_without_a_row_on_the_board_is_listed_with_the_reason(
    client: TestClient, arena: SyntheticArena
) -> None:
    arena.add_entry("dan/new", state="pending")
    arena.add_entry("eve/duel", state="waiting", code="not_played", sentence="waiting: no duels", remedy="start it")
    arena.add_entry("fay/young")
    arena.add_entry("gus/gone", state="withdrawn")
    arena.add_entry("gus/bad", state="withdrawn", code="too_big", sentence="17 MB", remedy="less")
    listed = get(client, f"unranked/{ENV}")
    assert listed["of"] == 4
    assert [(line["repo"], line["state"], line["code"]) for line in listed["models"]] == [
        ("gus/gone", "withdrawn", None),
        ("fay/young", "accepted", None),
        ("eve/duel", "waiting", "not_played"),
        ("dan/new", "pending", None),
    ]
    reasons = [line["sentence"].split(" ", 2)[2] for line in listed["models"] if line["code"] is None]
    assert reasons[0] == "was withdrawn by its owner or an administrator."
    assert reasons[1].startswith("was accepted; it is ranked once")
    assert reasons[2] == "waits to be checked."
    status = get(client, "status")
    assert (status["unranked"], status["unranked_of"]) == (listed["models"], 4)


def test_the_model_page_sums_up_what_the_log_holds(client: TestClient) -> None:
    page = get(client, "models/bob/two")
    bob = page["performance"][0]
    assert [
        (line["opponent"]["repo"], line["wins"], line["draws"], line["losses"]) for line in bob["head_to_head"]
    ] == [
        ("ada/one", 0, 3, 9),
        ("cy/three", 9, 3, 0),
    ]
    assert (bob["blue"]["games"], bob["purple"]["games"]) == (12, 12)
    assert bob["blue"]["losses"] == 3 and bob["purple"]["losses"] == 6
    # A draw or a forfeit has no goal; the third leg of each unit with Cy is a draw, the fourth a forfeit.
    assert (bob["scores"]["scored"], bob["scores"]["conceded"]) == (6, 9)
    assert (bob["scores"]["mean_scored_s"], bob["scores"]["mean_conceded_s"]) == (20.0, 10.0)
    assert bob["scores"]["scored_bins"] == [0, 0, 6]
    assert [line["opponent"]["repo"] for line in bob["best_wins"]] == ["cy/three"]
    assert [line["opponent"]["repo"] for line in bob["worst_losses"]] == ["ada/one"]
    assert sum(line["games"] for line in bob["by_strength"]) == 24
    assert bob["play_next"][0]["opponent"]["repo"] in ("ada/one", "cy/three")
    assert len(bob["history"][0]["points"]) == 1


def test_the_page_of_a_refused_model_says_why_and_what_to_do(client: TestClient, arena: SyntheticArena) -> None:
    sentence, remedy = "The file has 17 MB; 16 MB are allowed.", "Export a smaller network."
    arena.add_entry("dan/four", state="refused", code="too_big", sentence=sentence, remedy=remedy)
    page = get(client, "models/dan/four")
    assert page["revisions"][0]["refusal"] == {"code": "too_big", "sentence": sentence, "remedy": remedy}
    assert sentence in page["performance"][0]["why_unranked"] and page["performance"][0]["standing"] is None
    unranked = get(client, "status")["unranked"]
    assert [(line["repo"], line["code"], line["remedy"]) for line in unranked] == [("dan/four", "too_big", remedy)]


def test_a_private_repository_has_no_page(client: TestClient, arena: SyntheticArena) -> None:
    arena.push_card("eve/five", "# secret", private=True)
    arena.push_card("eve/six", "# public")
    assert client.get("/api/arena/models/eve/five").status_code == 404
    assert get(client, "models/EVE/six")["card_html"] == "<h2>public</h2>\n"


def test_a_model_that_is_hidden_while_another_is_shown_loses_its_page(
    client: TestClient, arena: SyntheticArena
) -> None:
    arena.push_card("eve/five", "# five")
    arena.push_card("eve/six", "# six", private=True)
    pages = ("/api/arena/models/eve/five", "/api/arena/models/eve/six")
    assert [client.get(page).status_code for page in pages] == [200, 404]
    with arena.store.write() as connection:
        for repo, private in (("eve/five", True), ("eve/six", False)):
            found = find_repo(connection, "model", repo)
            assert found is not None
            set_private(connection, found, private)
    assert [client.get(page).status_code for page in pages] == [404, 200]


def test_a_probe_is_shown_as_a_claim_about_the_model_on_the_board_alone(
    client: TestClient, arena: SyntheticArena
) -> None:
    def shown(**change: Any) -> Any:
        point = {"steps": 0, "share": 0.7, "low": 0.6, "high": 0.8, "pairs": 40}
        told = {
            "schema": 1, "env_id": ENV, "behavior": ENV, "symmetric": True, "model_sha256": sha_of("ada/one"),
            "trainer_type": "ppo", "steps": 9000, "wall_seconds": 60.0, "seed": 1, "palus_version": "0.1.0",
            "best": point, "curve": [point],
        }  # fmt: skip
        arena.push_card("ada/one", "# one", more={"probe.json": json.dumps(told | change).encode()})
        return get(client, "models/ada/one")["probe"]

    found = shown()
    assert (found["bound"], found["best"]["share"], len(found["curve"])) == (pytest.approx(0.2), 0.7, 1)
    assert get(client, "models/bob/two")["probe"] is None
    for change in (
        {"model_sha256": sha_of("bob/two")}, {"env_id": "doom_duel"}, {"trainer_type": "<b>"}, {"curve": []},
        {"more": 40_000 * "x"},
    ):  # fmt: skip
        assert shown(**change) is None


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


def test_comparing_says_whether_the_second_is_better(client: TestClient, arena: SyntheticArena) -> None:
    page = get(client, f"compare/{ENV}/bob/two/ada/one")
    assert (page["head_to_head"]["wins"], page["head_to_head"]["draws"], page["head_to_head"]["losses"]) == (9, 3, 0)
    assert (page["test"]["state"], page["test"]["pairs"]) == ("undecided", 6)
    assert page["difference"] > 100 and len(page["matches"]) == 12
    for _ in range(30):
        arena.play("ada/one", "bob/two", "win1", "win2")
    assert get(client, f"compare/{ENV}/bob/two/ada/one")["test"]["state"] == "better"
    assert get(client, f"compare/{ENV}/ada/one/bob/two")["test"]["state"] == "not better"


def test_a_comparison_reads_the_newest_matches_between_the_two_and_no_others(
    client: TestClient, arena: SyntheticArena, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(20):
        arena.play("ada/one", "cy/three", "win1", "win2")
        arena.play("bob/two", "cy/three", "win1", "win2")
    asked: list[Any] = []
    event.listen(store.engine, "before_cursor_execute", lambda *what: asked.append(what[2:4]))
    assert get(client, f"compare/{ENV}/bob/two/ada/one")["head_to_head"]["games"] == 12
    of_matches = [(text, values) for text, values in asked if "matches.blue = ?" in text]
    assert len(of_matches) == 2
    with store.read() as connection:
        for text, values in of_matches:
            plan = [step[-1] for step in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}", values)]
            read = [step.split(" (")[0] for step in plan if "matches USING" in step]
            assert read == [f"SEARCH matches USING INDEX ix_matches_{side}_seq" for side in ("blue", "purple")]
    monkeypatch.setattr(summaries, "MOST_MEETINGS", 4)
    page = get(client, f"compare/{ENV}/ada/one/bob/two")
    assert [page["head_to_head"]["games"], len(page["matches"])] == [4, 4]


def test_players_of_two_games_are_compared_in_the_one_that_is_asked_for(client: TestClient, store: Store) -> None:
    other = SyntheticArena(store, "StrikersVsGoalie", seq=1000)
    for repo in ("ada/one", "bob/two"):
        other.add_entry(repo)
    other.play("ada/one", "bob/two", "win2", "win1")
    assert get(client, f"compare/{ENV}/bob/two/ada/one")["head_to_head"]["games"] == 12
    page = get(client, "compare/StrikersVsGoalie/bob/two/ada/one")
    assert (page["env"], page["head_to_head"]["games"], page["head_to_head"]["losses"]) == ("StrikersVsGoalie", 2, 2)
    names = {shown["env"]: shown["sides"] for shown in get(client, "models/ada/one")["performance"]}
    assert names == {ENV: ["", ""], "StrikersVsGoalie": ["strikers", "goalie"]}
    answer = client.get("/api/arena/compare/StrikersVsGoalie/bob/two/cy/three")
    assert answer.json()["error"].startswith("bob/two and cy/three have no accepted revisions in StrikersVsGoalie")


def test_the_interval_of_a_difference_is_that_of_the_joint_fit(client: TestClient, arena: SyntheticArena) -> None:
    # Between two models alone each rating is half of the difference: as independent ones they would be too sure of it.
    page = get(client, f"compare/{ENV}/bob/two/ada/one")
    table = arrange(arena.history)
    joint = fit(table.games, len(table), side_term=True)
    i, j = (table.names.index(sha_of(repo)) for repo in ("ada/one", "bob/two"))
    assert page["half_width"] == pytest.approx(1.96 * np.sqrt(variance_of_gaps(joint.covariance)[i, j]), rel=1e-3)
    assert page["half_width"] != pytest.approx(np.hypot(*joint.half_width[[i, j]]), rel=0.02)


def test_models_that_few_matches_tie_together_are_compared_with_a_warning(
    client: TestClient, arena: SyntheticArena
) -> None:
    assert get(client, f"compare/{ENV}/bob/two/ada/one")["caution"] is None
    group = {"players": [sha_of("bob/two"), sha_of("cy/three")], "pairs": 3}
    arena.play("ada/one", "bob/two", "win1", "win2")
    arena.rate({"loose": [group]})
    assert "Only 3 mirrored pairs tie a group of 2 models" in get(client, f"compare/{ENV}/bob/two/ada/one")["caution"]
    assert get(client, f"compare/{ENV}/bob/two/cy/three")["caution"] is None
    assert get(client, f"leaderboard/{ENV}")["loose"] == [{"repos": ["bob/two", "cy/three"], "pairs": 3}]


@pytest.mark.parametrize(
    ("state", "difference", "words"),
    [
        ("better", 60.0, "b is better than a: the games between them and the ratings (60 ± 20 points) agree."),
        ("better", 5.0, "too close to tell apart"),
        ("better", -60.0, "b beats a in the games between them, although a is better against everybody"),
        ("not better", 25.0, "b is better than a by the ratings (25 ± 20 points), but by less than 35 points"),
        ("not better", 90.0, "It does not show in the games between them"),
        ("not better", -60.0, "a is better than b"),
        ("undecided", 60.0, "b is better than a by the ratings (60 ± 20 points). The games between them alone do not"),
        ("undecided", 0.0, "too close to tell apart so far"),
        ("undecided", None, "Nobody knows yet"),
    ],
)
def test_the_two_verdicts_of_a_comparison_are_told_as_one(state: Any, difference: float | None, words: str) -> None:
    rule = {"elo0": 0.0, "elo1": 35.0, "alpha": 0.05, "beta": 0.05, "lower": -2.9, "upper": 2.9}
    test = SequentialTest(**rule, pairs=9, llr=0.0, state=state, sentence="")
    assert words in verdict(test, difference, None if difference is None else 20.0, "a", "b")


def test_revisions_are_compared_although_their_games_are_not_rated(client: TestClient, arena: SyntheticArena) -> None:
    arena.add_entry("ada/one", file="ada/new")
    arena.play("ada/new", "ada/one", "win1", "win2", "win1", "draw", rated=False)
    page = get(client, f"compare/{ENV}/ada/one/ada/one")
    assert page["b"]["sha256"] == sha_of("ada/new") and page["test"]["pairs"] == 2
    assert page["head_to_head"]["share"] == 0.875
    comparison = get(client, "models/ada/one")["performance"][0]["revision_comparisons"][0]
    assert comparison["test"] == page["test"] and comparison["difference"] is None
    assert get(client, f"analytics/{ENV}")["matches"] == 24


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


def test_status_counts_jobs_and_knows_who_is_alive(client: TestClient, store: Store) -> None:
    job = {"payload": "{}", "priority": 0, "attempts": 1, "created_ms": 1}
    worker = {"isolation": "namespaces", "platform": '{"system": "Linux"}', "first_seen_ms": 1, "matches": 7}
    with store.write() as connection:
        connection.execute(insert(jobs).values(kind="pair", key="a against b", state="leased", worker="w1", **job))
        connection.execute(insert(jobs).values(kind="pair", key="c against d", state="ready", **job))
        connection.execute(insert(workers).values(name="w1", last_seen_ms=2**52, **worker))
        connection.execute(insert(workers).values(name="w0", last_seen_ms=5, suspended="odd results", **worker))
    page = get(client, "status")
    assert page["jobs"] == [{"kind": "pair", "ready": 1, "leased": 1, "done": 0, "failed": 0}]
    assert [(job["what"], job["worker"]) for job in page["running"]] == [("a against b", "w1")]
    seen = [(line["name"], line["alive"], line["suspended"]) for line in page["workers"]]
    assert seen == [("w1", True, None), ("w0", False, "odd results")]
    assert (page["matches"], page["head_seq"], page["ratings_behind"]) == (24, 24, 0)
    assert page["untended"] is None
    with store.write() as connection:
        connection.execute(insert(jobs).values(kind="validate", key="v", state="ready", trusted_only=True, **job))
    page = get(client, "status")
    assert "none is there: 1 of SoccerTwos" in page["untended"]
    assert [line["trusted"] for line in page["workers"]] == [False, False]


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


def test_play_statistics_are_turned_to_the_players_side(client: TestClient, store: Store) -> None:
    match = get(client, f"recent/{ENV}")["matches"][1]  # Bob is blue
    stats = {"possession": [0.75, 0.25], "shots": [2, 1], "distance_m": [30.5, 20.0], "ball_heat": [[1, 0], [0, 0]]}
    with store.write() as connection:
        connection.execute(insert(play_stats).values(match_id=match["id"], stats=json.dumps(stats)))
    SyntheticArena(store, seq=24).play("ada/one", "bob/two", "draw", "draw")  # time goes on, pages are made again
    bob, cy = (get(client, f"models/{repo}")["performance"][0]["play"] for repo in ("bob/two", "cy/three"))
    assert [(n["name"], n["value"], n["unit"]) for n in bob["numbers"]] == [
        ("Possession", 0.75, "%"),
        ("Shots", 2, ""),
        ("Distance", 30.5, "m"),
    ]
    assert [number["value"] for number in cy["numbers"]] == [0.25, 1, 20]
    assert bob["ball_heat"] == [[1, 0], [0, 0]] and cy["ball_heat"] == [[0, 0], [0, 1]]


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


def test_intervals_of_many_are_the_intervals_of_each() -> None:
    rng = np.random.default_rng(5)
    of = np.repeat(np.arange(6), [2, 4, 8, 20, 40, 60])
    units = np.arange(len(of)) // 2
    points = rng.choice([0.0, 0.5, 1.0], len(of))
    points[of == 2] = 1.0
    low, high = share_intervals(points, units, of, 6)
    for group in range(6):
        pairs = points[of == group].reshape(-1, 2).mean(axis=1)
        assert (low[group], high[group]) == pytest.approx(score_interval(pairs))


def test_an_open_page_hears_of_matches_and_of_those_it_missed(store: Store, arena: SyntheticArena) -> None:
    with (
        serving(make_app(store, limits=AT_ONCE)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", headers={"Last-Event-ID": "23"}, timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert next_event(lines)["match"]["seq"] == 24  # missed while it was away
        # From another thread, as workers write from other processes.
        threading.Thread(target=arena.play, args=("ada/one", "cy/three", "win1", "draw")).start()
        heard = [next_event(lines), next_event(lines)]
        assert [event["match"]["seq"] for event in heard] == [25, 26]
        assert heard[0]["match"]["blue"]["repo"] == "ada/one"
        arena.add_entry("new/model", state="pending")
        entry = next_event(lines)
        assert (entry["type"], entry["repo"], entry["state"]) == ("entry", "new/model", "pending")


def test_an_open_page_hears_of_matches_after_the_database_was_away(
    store: Store, arena: SyntheticArena, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Semaphore(0)

    def away(connection: object) -> None:
        asked.release()
        raise OperationalError("SELECT", {}, Exception("the server is restarted"))

    with (
        serving(make_app(store, limits=AT_ONCE)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", headers={"Last-Event-ID": "23"}, timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert next_event(lines)["match"]["seq"] == 24
        with monkeypatch.context() as broken:
            broken.setattr("palus.web.api.view.read_version", away)
            assert asked.acquire(timeout=60) and asked.acquire(timeout=60)
        threading.Thread(target=arena.play, args=("ada/one", "cy/three", "win1", "draw")).start()
        assert next_event(lines)["match"]["seq"] == 25
    told = [record.getMessage() for record in caplog.records if "open pages wait for news" in record.getMessage()]
    assert len(told) == 1 and "the server is restarted" in told[0]


def test_more_listeners_than_allowed_are_sent_away(store: Store, arena: SyntheticArena) -> None:
    limits = WebLimits(listeners=1, fresh_s=0.0)
    with (
        serving(make_app(store, limits=limits)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", timeout=60) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        assert httpx.get(f"{address}/api/arena/events", timeout=60).json()["code"] == "too_many_listeners"
        del lines  # it held the stream open


def test_one_address_does_not_take_all_places_of_listeners(store: Store, arena: SyntheticArena) -> None:
    limits = WebLimits(listeners=5, client_listeners=1, fresh_s=0.0)
    with (
        serving(make_app(store, limits=limits)) as address,
        httpx.stream("GET", f"{address}/api/arena/events", timeout=30) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines) == "retry: 3000"
        assert httpx.get(f"{address}/api/arena/events", timeout=30).json()["code"] == "too_many_listeners"
        del lines


def test_listeners_count_before_their_streams_are_read_and_no_longer_than_they_are_held(store: Store) -> None:
    async def come_at_once() -> list[object]:
        answers = Answers(Views(store))
        events = Events(answers, poll_s=0.05, max_listeners=2, client_listeners=1)
        held = [await events.listen(None, "ada")]
        told: list[object] = []
        for client in ("ada", "bob", "cy"):
            try:
                held.append(await events.listen(None, client))
                told.append(await anext(held[-1]))
            except HTTPException as refusal:
                told.append(refusal.status_code)
        held.clear()  # two who left, one of them before a word was sent
        gc.collect()
        await asyncio.sleep(0.05)
        told.append(await anext(await events.listen(None, "ada")))
        answers.close()
        return told

    retry = f"retry: {RECONNECT_MS}\n\n"
    assert asyncio.run(come_at_once()) == [503, retry, 503, retry]


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


def test_a_server_that_stops_ends_open_streams(store: Store, arena: SyntheticArena) -> None:
    with httpx.Client(timeout=60) as client:
        with serving(make_app(store)) as address:
            request = client.build_request("GET", f"{address}/api/arena/events")
            lines = client.send(request, stream=True).iter_lines()
            assert next(lines) == "retry: 3000"
        assert list(lines) == [""]


def test_an_empty_arena_has_empty_pages(store: Store) -> None:
    with TestClient(make_app(store, limits=AT_ONCE)) as client:
        assert get(client, "envs")["environments"] == [{"env": ENV, "models": 0, "matches": 0, "updated_ms": None}]
        for path in (f"leaderboard/{ENV}", f"recent/{ENV}", f"matrix/{ENV}", f"analytics/{ENV}", "status"):
            get(client, path)


def next_event(lines: Iterator[str]) -> dict[str, Any]:
    for line in lines:
        if line.startswith("data: "):
            event: dict[str, Any] = json.loads(line.removeprefix("data: "))
            return event
    raise AssertionError("the stream ended")


def test_a_refusal_is_shown_although_the_clock_was_set_back(
    client: TestClient, store: Store, arena: SyntheticArena
) -> None:
    arena.add_entry("new/model", state="pending", checked_ms=None)
    assert get(client, "models/new/model")["revisions"][0]["state"] == "pending"
    refused = {"state": "refused", "code": "pickle", "sentence": "no", "remedy": "-", "checked_ms": 1}
    with store.write() as connection:
        connection.execute(update(entries).where(entries.c.repo == "new/model").values(refused))
    assert get(client, "models/new/model")["revisions"][0]["state"] == "refused"


def test_entries_of_the_store_are_read_anew_when_one_is_withdrawn(client: TestClient, store: Store) -> None:
    assert get(client, "models/cy/three")["revisions"][0]["state"] == "accepted"
    with store.write() as connection:
        connection.execute(update(entries).where(entries.c.repo == "cy/three").values(state="withdrawn"))
    (revision,) = get(client, "models/cy/three")["revisions"]
    assert (revision["state"], revision["details"]) == ("withdrawn", {})
