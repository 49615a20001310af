"""The live page of runs: what it reads from their folders, whom it answers, and a run that trains in a real browser."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from browsing import AXE, end_and_home_scroll, eventually, needs_browser, tabs
from fastapi.testclient import TestClient
from tensorboardX import SummaryWriter
from viewing import recording
from web_server import serving

from palus.arena.referee.replay import encode_replay, read_replay
from palus.cli.live import check_run
from palus.errors import CheckpointError
from palus.export.policy_file import PolicyFile, write_policy
from palus.nn.network import Network
from palus.progress import PROGRESS, ProgressWriter
from palus.types import FROZEN, MEMBERS
from palus.web.watch.app import Runs, make_watch_app
from palus.web.watch.figures import MAX_POINTS, Figures, thinned
from palus.web.watch.matches import Stage


def opening(**more: Any) -> dict[str, Any]:
    said = {"kind": "run", "run_id": "mine", "game": "SoccerTwos", "env_options": {}, "behaviors": ["SoccerTwos"]}
    learners = {"learners": [["SoccerTwos", 0, "SoccerTwos"]], "max_steps": {"SoccerTwos": 9000}}
    return {**said, **learners, "max_minutes": 0.0, "started": 0.0, **more}


def summary(step: int, seconds: float, **values: float | None) -> dict[str, Any]:
    named = {"kind": "summary", "learner": "SoccerTwos", "policy": 0, "behavior": "SoccerTwos"}
    return {**named, "step": step, "seconds": seconds, "values": values}


def run_folder(folder: Path, *lines: dict[str, Any]) -> ProgressWriter:
    writer = ProgressWriter(folder / PROGRESS)
    for line in lines:
        writer.append(line)
    return writer


@pytest.mark.parametrize(
    ("told", "speed"),
    [
        ([(60_000, 100.0, "reward"), (60_800, 100.5, "Baselines/bot")], 600.0),
        ([(60_000, 100.0, "reward"), (60_000, 100.0, "Baselines/bot")], 600.0),
        ([(1000 * k, 50.0 if k <= 20 else 90.0, "reward") for k in range(1, 41)], 500.0),  # twenty of each update
        ([(100 * k if k <= 10 else 20 * k + 800, float(k), "reward") for k in range(1, 21)], 20.0),  # slower of late
    ],
)
def test_the_speed_of_a_run_is_that_of_its_summaries(
    tmp_path: Path, told: list[tuple[int, float, str]], speed: float
) -> None:
    lines = [summary(step, seconds, **{tag: 0.5}) for step, seconds, tag in told]
    run_folder(tmp_path, opening(), *lines)
    assert Runs([tmp_path]).look().runs[0].learners[0].speed == speed


def test_a_run_is_followed_from_nothing_to_its_end(tmp_path: Path) -> None:
    runs = Runs([tmp_path / "mine"])
    (tmp_path / "mine").mkdir()
    assert (runs.look().runs[0].state, runs.look().runs[0].learners) == ("waiting", [])
    writer = run_folder(tmp_path / "mine", opening(), summary(1000, 2.0, elo=1200.0), summary(3000, 4.0, elo=None))
    (run,) = runs.look().runs
    (curves,) = run.learners
    assert (run.state, run.game, run.name) == ("running", "SoccerTwos", "mine")
    assert (curves.steps, curves.seconds, curves.values) == ([1000, 3000], [2.0, 4.0], {"elo": [1200.0, None]})
    # 1000 steps a second, 6000 to go
    assert (curves.speed, curves.left_s, run.left_s) == (1000.0, 6.0, 6.0)
    writer.append({"kind": "end", "step": 3000, "seconds": 4.0, "finished": False})
    assert (runs.look().runs[0].state, runs.look().runs[0].left_s) == ("stopped", None)
    writer.cut_back({0: 1000})  # resumed at its checkpoint
    writer.append(opening())
    assert runs.look().runs[0].learners[0].steps == [1000]
    assert runs.look().runs[0].state == "running"


def test_a_run_with_a_time_limit_ends_by_it_where_it_does_not_end_before(tmp_path: Path) -> None:
    run_folder(tmp_path, opening(max_minutes=1.0, started=100.0), summary(1000, 2.0), summary(3000, 4.0))
    figures = Figures(tmp_path)
    figures.update()
    left_s = [figures.curves({"SoccerTwos": 9000}, now_s)[0].left_s for now_s in (104.0, 157.0, 200.0)]
    assert left_s == [6.0, 3.0, 0.0]


@pytest.mark.parametrize(
    "wrong",
    [
        opening(learners=[[1]]),
        opening(max_minutes="x"),
        opening(max_steps=[1]),
        opening(game={}),
        summary(3000, 4.0) | {"values": {"elo": "x"}},
        summary(3000, 4.0) | {"seconds": "x"},
        summary(10**400, 4.0),
    ],
    ids=str,
)
def test_a_line_that_no_run_writes_is_passed_over(tmp_path: Path, wrong: dict[str, Any]) -> None:
    writer = run_folder(tmp_path, opening(), summary(1000, 2.0, elo=1200.0), wrong)
    writer.path.write_bytes(writer.path.read_bytes() + b"[" * 100_000 + b"\n")
    answer = TestClient(make_watch_app([tmp_path]), base_url="http://localhost").get("/api/watch/runs")
    (curves,) = answer.json()["runs"][0]["learners"]
    assert (curves["steps"], curves["max_steps"]) == ([1000], 9000)


@pytest.mark.parametrize("damage", ["[" * 100_000, '{"rows": [[1e999, 0, 0.5, 1]]}'])
def test_a_damaged_table_of_payoffs_is_none(tmp_path: Path, damage: str) -> None:
    (tmp_path / "SoccerTwos").mkdir()
    (tmp_path / "SoccerTwos" / "payoffs.json").write_text(damage)
    assert Runs([tmp_path]).look().runs[0].league is None


def test_long_curves_are_thinned_and_keep_every_tag() -> None:
    rows = [(step, None, {"loss": float(step)} if step % 2 else {"score": float(step)}) for step in range(4001)]
    kept = thinned(rows)
    assert len(kept) <= MAX_POINTS
    assert kept[-1][0] == 4000
    assert all(set(values) == {"loss", "score"} for _, _, values in kept[1:])
    assert thinned(rows[:3]) == rows[:3]


def test_a_run_without_a_progress_file_shows_what_tensorboard_has(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path / "Chaser")) as writer:
        for step in (10, 20):
            writer.add_scalar("Reward", step / 10, step)
    (run,) = Runs([tmp_path]).look().runs
    (curves,) = run.learners
    assert (run.state, curves.learner, curves.steps, curves.seconds) == ("stopped", "Chaser", [10, 20], [None, None])
    assert curves.values["Reward"] == [1.0, 2.0]


def test_the_league_file_is_read_and_what_is_in_it_has_a_name(tmp_path: Path) -> None:
    run_folder(tmp_path, opening())
    rating = {"mean": 25.0, "low": 20.0, "high": 30.0}
    snapshot = {"id": FROZEN + 3, "behavior": "SoccerTwos", "parent": 0, "step": 700, "elo": 1210.0, "rating": rating}
    snapshot |= {"origin": FROZEN + 1}
    league = {
        "format": 1,
        "learners": [{"policy": 0, "behavior": "SoccerTwos", "role": "exploiter", "step": 900, "elo": 1220.0}],
        "snapshots": [{**snapshot, "landmark": True, "kept": False, "of_a_later_version": 1}],
        "members": [{"id": 99, "name": "ball-chaser", "behavior": "SoccerTwos"}],
        "training": [[0, FROZEN + 3, 1.5, 2], [FROZEN + 3, 0, 0.5, 2]],
        "evaluation": [],
        "mix": {"SoccerTwos": {"latest": 0.5, str(FROZEN + 3): 0.5}},
    }
    (tmp_path / "league").mkdir()
    (tmp_path / "league" / "league.json").write_text(json.dumps(league))
    (run,) = Runs([tmp_path]).look().runs
    assert [learner.step for learner in run.learners] == [900]  # it ended before its first summary
    found = run.league
    assert found is not None
    assert [(policy.kind, policy.label) for policy in found.policies] == [
        ("learner", "SoccerTwos exploiter"),
        ("snapshot", "#3"),
        ("member", "ball-chaser"),
    ]
    past = found.policies[1]
    assert (past.rating.mean if past.rating else None, past.landmark, past.kept, past.parent) == (25.0, True, False, 0)
    assert [policy.origin for policy in found.policies] == [None, FROZEN + 1, None]
    assert [(share.opponent, share.share) for share in found.mix] == [("latest", 0.5), ("#3", 0.5)]
    (tmp_path / "league" / "league.json").write_text("{")  # damaged: what else there is
    (tmp_path / "SoccerTwos").mkdir()
    (tmp_path / "SoccerTwos" / "payoffs.json").write_text(
        json.dumps({"rows": [[0, FROZEN + 7, 1.0, 1], [FROZEN + 7, 0, 0.0, 1]]})
    )
    found = Runs([tmp_path]).look().runs[0].league
    assert found is not None
    assert [policy.label for policy in found.policies] == ["SoccerTwos", "#7"]
    assert (found.evaluation, found.mix) == ([], [])


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    """Of a page of two runs of one name; the first has a past self, whose network is tiny."""
    from palus.config import load_run
    from palus.envs import GameSource

    first, second = tmp_path / "a" / "mine", tmp_path / "b" / "mine"
    run_folder(first, opening())
    run_folder(second, opening(game="CountdownToy"))
    spec = GameSource("SoccerTwos", {}).spec
    settings = load_run("debug").behaviors["SoccerTwos"].network_settings
    network = Network(spec.behaviors[0], settings, torch.Generator().manual_seed(0))
    for number in (0, 4):
        path = first / "SoccerTwos" / "snapshots" / f"snapshot-{number:05d}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_policy(path, PolicyFile.of(network, spec, "SoccerTwos", 100 * number))
    return TestClient(make_watch_app([first, second]))


def test_a_fresh_match_is_a_mirrored_pair_of_the_newest_policy(client: TestClient, tmp_path: Path) -> None:
    runs = client.get("/api/watch/runs").json()["runs"]
    assert [run["name"] for run in runs] == [str(tmp_path / "a" / "mine"), str(tmp_path / "b" / "mine")]
    words = [opponent["word"] for opponent in runs[0]["opponents"]]
    assert words[:4] == ["itself", "snapshot-4", "snapshot-0", "random"]
    (tmp_path / "now.match").write_bytes(client.post("/api/watch/runs/0/match?against=snapshot-0").content)
    _, replay = read_replay(tmp_path / "now.match")
    newest, past = "newest (400 steps)", "snapshot-0 (0 steps)"
    assert [recording.names for recording in replay.recordings] == [(newest, past), (past, newest)]


def test_a_match_that_is_asked_for_keeps_no_page_waiting_while_its_run_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_came, in_time = threading.Event(), list[bool]()
    monkeypatch.setattr(Figures, "update", lambda _: in_time.append(page_came.wait(5)))

    async def ask() -> None:
        app = httpx.ASGITransport(make_watch_app([tmp_path]))
        async with httpx.AsyncClient(transport=app, base_url="http://localhost") as client:
            match = asyncio.create_task(client.post("/api/watch/runs/0/match"))
            await asyncio.sleep(0.1)
            await client.get("/")
            page_came.set()
            await match

    asyncio.run(ask())
    assert in_time == [True]


@pytest.mark.parametrize("against", ["snapshot-3", "../../etc/passwd", "snapshot-", "snapshot-0/../0", ""])
def test_who_was_not_offered_is_not_played(client: TestClient, against: str) -> None:
    answer = client.post("/api/watch/runs/0/match", params={"against": against})
    assert (answer.status_code, answer.json()["code"]) == (404, "no_match")


def test_games_that_cannot_be_drawn_say_what_shows_them(client: TestClient) -> None:
    other = client.get("/api/watch/runs").json()["runs"][1]
    assert other["opponents"] == []
    assert "cannot be drawn here; see: palus enjoy" in other["no_match"]
    assert Stage(Path("my runs/a"), None, {}).refusal.endswith("see: palus enjoy 'my runs/a'")
    assert client.post("/api/watch/runs/1/match").status_code == 404
    assert client.post("/api/watch/runs/2/match").json()["code"] == "unknown_run"


def test_foreign_names_and_pages_are_refused(client: TestClient) -> None:
    assert client.get("/api/watch/runs", headers={"Host": "evil.example"}).status_code == 421
    answer = client.post("/api/watch/runs/0/match", headers={"Origin": "http://evil.example"})
    assert (answer.status_code, answer.json()["code"]) == (403, "foreign_page")
    page = client.get("/")
    assert "script-src" not in page.headers["content-security-policy"]  # default-src 'self' alone
    assert client.get("/static/../../api.d.ts").status_code == 404


def test_what_is_no_run_is_refused_with_the_runs_in_it(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="neither a replay nor the folder of a run; give results/RUN_ID"):
        check_run(tmp_path)
    (tmp_path / "best.match").touch()
    with pytest.raises(CheckpointError, match=r"best\.match: a file; a replay is watched by itself"):
        check_run(tmp_path / "best.match")
    run_folder(tmp_path / "mine", opening())
    with pytest.raises(CheckpointError, match="it holds the runs mine: name one of them"):
        check_run(tmp_path)
    check_run(tmp_path / "mine")


@contextmanager
def training(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`palus train --watch` of a tiny run that goes on until it is told to end, and the address of its page."""
    keys = ("max_steps=1e9", "summary_freq=1000", "checkpoint_interval=2000", "self_play.window=1000")
    settings = [*(f"behaviors.SoccerTwos.{key}" for key in keys), "palus.threads=1", "palus.matmul=highest"]
    command = [sys.executable, "-m", "palus", "train", "debug", *settings, "--run-id", "mine", "--results-dir"]
    process = subprocess.Popen(
        [*command, str(folder), "--watch", "--no-browser"],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stderr is not None
        address = next(line.split()[-1] for line in process.stderr if line.startswith("Watch it learn: "))
        yield process, address
    finally:
        process.kill()
        process.communicate()


@needs_browser
def test_a_run_is_watched_while_it_trains_and_afterwards(browser: Any, tmp_path: Path) -> None:
    with training(tmp_path) as (process, address), tabs(browser) as open_tab:
        tab = open_tab(address)
        page = tab.page

        def points(title: str) -> int:
            paths = page.locator(f".charts > div:has(h3:text-is('{title}')) path.line")
            return sum(len((paths.nth(i).get_attribute("d") or "").split("L")) for i in range(paths.count()))

        first = eventually(page, lambda: points("Value Loss") >= 2 and points("Value Loss"), "a curve of two points")
        assert tab.texts(".facts dd")[0] == "Training"
        eventually(page, lambda: points("Value Loss") > first, "a curve that grows")
        cells = ".matrix tbody td small"
        eventually(page, lambda: page.locator(cells).count() >= 2, "a win matrix with results")
        page.get_by_label("Against").select_option("snapshot-0")
        page.get_by_role("button", name="Watch now").press("Enter")
        page.wait_for_selector(".stage-panel canvas")
        assert "newest" in page.locator(".stage-panel").inner_text()
        if AXE.is_file():
            assert tab.violations() == []
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        said = process.stderr.read()
        assert process.wait() == 0, said
        assert "The live page ended with the run; again: palus watch" in said
        eventually(page, lambda: tab.texts(".live") == ["Not live"], "the sign that nobody answers")
        assert all("ERR_CONNECTION_REFUSED" in complaint for complaint in tab.complaints), tab.complaints
    with serving(make_watch_app([tmp_path / "mine", tmp_path / "mine"])) as address, tabs(browser) as open_tab:
        tab = open_tab(address)
        eventually(tab.page, lambda: "Stopped" in tab.texts(".facts dd"), "the state of a run that was ended")
        assert tab.page.locator(".charts > div:has(h3:text-is('ELO')) path.line").count() == 2  # overlaid
        tab.page.get_by_role("button", name="Time").press("Enter")
        assert "axis=time" in tab.page.url
        tab.page.set_viewport_size({"width": 390, "height": 844})
        width = "document.documentElement.scrollWidth"
        eventually(tab.page, lambda: tab.page.evaluate(width) <= 390, "nothing wider than a phone")
        assert tab.complaints == []


@needs_browser
def test_the_next_match_takes_the_place_of_the_one_before(client: TestClient, browser: Any, tmp_path: Path) -> None:
    with serving(client.app) as address, tabs(browser) as open_tab:  # type: ignore[arg-type]
        tab = open_tab(address)
        page, button = tab.page, tab.page.get_by_role("button", name="Watch now")
        played = encode_replay([recording()])
        page.route("**/match?against=itself", lambda route: route.fulfill(body=played))
        button.press("Enter")
        page.wait_for_selector(".stage-panel .controls")
        page.wait_for_selector("button:text-is('Watch now'):enabled")
        button.focus()
        end_and_home_scroll(page)
        page.evaluate("document.querySelector('.stage-panel .palus').id = 'before'")
        button.press("Enter")
        page.wait_for_selector(".stage-panel .palus:not(#before) .controls")
        page.locator(".stage-panel .stage").scroll_into_view_if_needed()
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("?")  # a help that is on the page no more cannot be opened
        assert page.get_by_role("dialog").is_visible()
        page.keyboard.press("Escape")
        button.focus()
        snapshots = tmp_path / "a" / "mine" / "SoccerTwos" / "snapshots"
        shutil.copy(snapshots / "snapshot-00004.npz", snapshots / "snapshot-00005.npz")
        page.wait_for_selector("option[value='snapshot-5']", state="attached")  # the next look
        assert page.evaluate("document.activeElement.textContent") == "Watch now"
        assert tab.complaints == []
        page.route("**/match?against=itself", lambda route: route.abort())
        button.press("Enter")
        words = "palus watch does not answer. Is it running? Try again in a moment."
        page.wait_for_selector(f"[role=status]:text-is('{words}')")


@needs_browser
def test_the_lineage_shows_who_went_on_from_whose_weights(browser: Any, tmp_path: Path) -> None:
    """Two learners: #2 of the second goes on from #0 of the first, and the first now from #2."""
    elos = [(1000, 1200.0), (2000, 1201.2)]
    values = [{"Self-play/ELO": elo, "Other/Figure": elo} for _, elo in elos]
    writer = run_folder(
        tmp_path, opening(), *(summary(step, 1.0, **v) for (step, _), v in zip(elos, values, strict=True))
    )
    parents, origins = (0, 1, 1), (None, None, FROZEN)
    league = {
        "format": 1,
        "learners": [
            {"policy": 0, "behavior": "SoccerTwos", "step": 900, "origin": FROZEN + 2},
            {"policy": 1, "behavior": "SoccerTwos", "step": 900, "origin": FROZEN + 2},
        ],
        "snapshots": [
            {"id": FROZEN + i, "behavior": "SoccerTwos", "parent": parent, "step": 100 + 200 * i, "origin": origin}
            for i, (parent, origin) in enumerate(zip(parents, origins, strict=True))
        ],
    }
    (tmp_path / "league").mkdir()
    (tmp_path / "league" / "league.json").write_text(json.dumps(league))
    with serving(make_watch_app([tmp_path])) as address, tabs(browser) as open_tab:
        page = open_tab(address).page
        lines = page.locator(".chart .handed-on")
        eventually(page, lambda: lines.count() == 2, "two lines between the lanes")
        ends = {name: [float(lines.nth(i).get_attribute(name)) for i in (0, 1)] for name in ("x1", "x2", "y1", "y2")}
        assert ends["x1"][0] < ends["x2"][0] and ends["x1"][1] < ends["x2"][1]  # in the order of time
        assert (ends["y1"][0], ends["y2"][0]) == (ends["y2"][1], ends["y1"][1])  # from lane 2 to 1, from 1 to 2
        levels = page.locator(".charts > div:has(h3:text-is('ELO')) text[text-anchor=end]").all_text_contents()
        assert len(levels) == len(set(levels)) >= 3, levels
        page.locator("summary").press("Enter")
        shown = page.locator("details[open] path.line")
        before = shown.get_attribute("d")
        writer.append(summary(3000, 2.0, **values[0]))
        eventually(page, lambda: shown.get_attribute("d") != before, "the next summary")
        assert page.evaluate("document.activeElement.localName") == "summary"


@needs_browser
def test_a_run_tells_whom_it_met_before_its_first_summary(browser: Any, tmp_path: Path) -> None:
    """Two snapshots have taken over all matches, and no summary has told of any."""
    run_folder(tmp_path, opening())
    member, first, second = MEMBERS, FROZEN, FROZEN + 1
    pairs = ((first, member, 5), (second, first, 12), (0, second, 3))
    league = {
        "format": 1,
        "learners": [{"policy": 0, "behavior": "SoccerTwos", "step": 900}],
        "snapshots": [{"id": id_, "behavior": "SoccerTwos", "parent": 0, "step": 100} for id_ in (first, second)],
        "members": [{"id": member, "name": "bot", "behavior": "SoccerTwos"}],
        "training": [[*pair, 0.5 * n, n] for a, b, n in pairs for pair in ((a, b), (b, a))],
    }
    (tmp_path / "league").mkdir()
    (tmp_path / "league" / "league.json").write_text(json.dumps(league))
    with serving(make_watch_app([tmp_path])) as address, tabs(browser) as open_tab:
        tab = open_tab(address)
        eventually(tab.page, lambda: tab.texts(".mix dt"), "somebody was met")
        assert "Trained for –" in tab.texts(".facts > div")  # the first summary will tell
        assert list(zip(tab.texts(".mix dt"), tab.texts(".mix dd"), strict=True)) == [
            ("#0", "60.0 %"), ("bot", "25.0 %"), ("#1", "15.0 %")]  # fmt: skip


@needs_browser
def test_colours_of_runs_with_long_names_can_be_told_on_a_phone(browser: Any, tmp_path: Path) -> None:
    runs = [tmp_path / (letter * 60) / "mine" for letter in "ab"]
    for folder in runs:
        run_folder(folder, opening(), summary(1000, 2.0, elo=1200.0), summary(3000, 4.0, elo=1210.0))
    with serving(make_watch_app(runs)) as address, tabs(browser) as open_tab:
        page = open_tab(address).page
        page.set_viewport_size({"width": 360, "height": 740})
        page.locator("summary").click()
        colours = page.locator("details[open] .key i")
        assert [colours.nth(i).bounding_box()["width"] for i in (0, 1)] == [12, 12]
