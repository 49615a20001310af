"""The JSON of a model: its revisions, results, card and probe, and why it is not ranked."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from small_arena import get
from sqlalchemy import event, insert, update
from synthetic_arena import ENV, SyntheticArena, sha_of

from palus.hub.repos import find_repo, set_private
from palus.store import Store
from palus.store.derived import play_stats
from palus.store.tables import entries
from palus.web.api import models, performance


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
