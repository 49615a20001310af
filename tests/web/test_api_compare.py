"""The JSON of comparisons: what the games between two say, what the ratings say, and both as one verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from small_arena import get
from sqlalchemy import event, update
from synthetic_arena import ENV, SyntheticArena, match_id, sha_of

from histories import arrange, variance_of_gaps
from palus.ratings.bradley_terry import fit
from palus.store import Store
from palus.store.derived import fields
from palus.web.api import compare, summaries
from palus.web.api.compare import SequentialTest, verdict


def test_comparing_says_whether_the_second_is_better(
    client: TestClient, arena: SyntheticArena, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = get(client, f"compare/{ENV}/bob/two/ada/one")
    assert (page["head_to_head"]["wins"], page["head_to_head"]["draws"], page["head_to_head"]["losses"]) == (9, 3, 0)
    assert (page["test"]["state"], page["test"]["pairs"]) == ("undecided", 6)
    assert page["difference"] > 100 and len(page["matches"]) == 12
    assert page["expected"] == pytest.approx(1 / (1 + 10 ** (-page["difference"] / 400)))
    arena.play("ada/one", "bob/two", "win1")  # the second game of its pair is still to come
    monkeypatch.setattr(compare, "MATCHES", 6)
    page = get(client, f"compare/{ENV}/bob/two/ada/one")
    assert (page["test"]["pairs"], page["head_to_head"]["games"]) == (6, 13)
    assert [match["id"] for match in page["matches"]] == [match_id(seq) for seq in (25, 20, 19, 18, 17, 12)]
    for _ in range(30):
        arena.play("ada/one", "bob/two", "win1", "win2")
    assert get(client, f"compare/{ENV}/bob/two/ada/one")["test"]["state"] == "better"
    assert get(client, f"compare/{ENV}/ada/one/bob/two")["test"]["state"] == "worse"


def test_a_comparison_is_decided_by_games_that_one_of_the_two_always_wins(
    client: TestClient, arena: SyntheticArena
) -> None:
    for repo in ("dan/four", "eli/five", "fay/six", "gus/seven"):
        arena.add_entry(repo)
    for _ in range(20):
        arena.play("dan/four", "eli/five", "win1", "win2")  # blue in the first game, purple in the second
        arena.play("fay/six", "gus/seven", "win1", "win1")
    lost, won = (get(client, f"compare/{ENV}/{a}/{b}") for a, b in (("dan/four", "eli/five"), ("eli/five", "dan/four")))
    assert (lost["test"]["state"], won["test"]["state"]) == ("worse", "better")
    assert lost["test"]["sentence"] == "After 20 pairs dan/four is better than eli/five (error rate 1%)."
    assert lost["verdict"] == "dan/four is better than eli/five, by the games between them."
    assert lost["test"]["llr"] == pytest.approx(-won["test"]["llr"]) and lost["test"]["llr"] <= lost["test"]["lower"]
    for _ in range(40):
        arena.play("fay/six", "gus/seven", "win1", "win1")
    even = get(client, f"compare/{ENV}/fay/six/gus/seven")["test"]
    assert (even["state"], even["elo1"]) == ("not better", 35.0)  # nor worse


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


def test_the_interval_of_a_difference_is_that_of_the_joint_fit(
    client: TestClient, arena: SyntheticArena, store: Store
) -> None:
    # Between two models alone each rating is half of the difference: as independent ones they would be too sure of it.
    page = get(client, f"compare/{ENV}/bob/two/ada/one")
    table = arrange(arena.history)
    joint = fit(table.games, len(table), side_term=True)
    i, j = (table.names.index(sha_of(repo)) for repo in ("ada/one", "bob/two"))
    assert page["half_width"] == pytest.approx(1.96 * np.sqrt(variance_of_gaps(joint.covariance)[i, j]), rel=1e-3)
    independent = np.hypot(*joint.half_width[[i, j]])
    assert page["half_width"] != pytest.approx(independent, rel=0.02)
    with store.write() as connection:  # as in a large field
        connection.execute(update(fields).values(covariance=None, upto_seq=fields.c.upto_seq + 1))
    assert get(client, f"compare/{ENV}/bob/two/ada/one")["half_width"] == pytest.approx(independent, rel=1e-3)


def test_two_repositories_with_the_same_model_are_equal_once_it_is_rated(
    client: TestClient, arena: SyntheticArena
) -> None:
    for repo, file in (("dan/four", "new"), ("eli/five", "new"), ("fay/six", "bob/two")):
        arena.add_entry(repo, file=file)
    new, rated = (get(client, f"compare/{ENV}/{pair}") for pair in ("dan/four/eli/five", "bob/two/fay/six"))
    assert [(page["difference"], page["half_width"]) for page in (new, rated)] == [(None, None), (0.0, 0.0)]


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
        ("not better", 50.0, "b is better than a by the ratings (50 ± 20 points), but by less than 35 points"),
        ("not better", 90.0, "It does not show in the games between them"),
        ("not better", -60.0, "a is better than b"),
        ("worse", 60.0, "a beats b in the games between them, although b is better against everybody (60 ± 20 points)"),
        ("worse", 5.0, "a is better than b in the games between them. Against everybody the two are too close"),
        ("worse", -60.0, "a is better than b: the games between them and the ratings (60 ± 20 points) agree."),
        ("worse", None, "a is better than b, by the games between them."),
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
    arena.play("ada/new", "ada/one", "win1", "win2")
    arena.rate()
    page = get(client, f"compare/{ENV}/ada/one/ada/one")
    comparison = get(client, "models/ada/one")["performance"][0]["revision_comparisons"][0]
    assert comparison["difference"] == page["difference"] > 0
