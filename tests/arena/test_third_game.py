"""A third game is one folder (`tug`) and its row in the table: everything that an arena does with it follows."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arena_records import read_log
from fastapi.testclient import TestClient
from tug.env import Tug
from typer.testing import CliRunner

from palus import envs
from palus.arena.jobs.worker import describe_here, work
from palus.arena.ladder.discovery import sweep_house
from palus.arena.ladder.log import LogRecord, StoredBytes
from palus.arena.ladder.match_files import read_actions, read_replay, recording_of
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.verification import verify_record
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.live import LiveMatch
from palus.arena.models.players import load_player
from palus.arena.referee.actions import decode_actions, encode_actions, replay_match
from palus.arena.referee.games import GAMES, layout_of, source_of
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.arena.referee.replay import decode_replay, encode_replay
from palus.cli import app
from palus.envs.check import check_env
from palus.envs.recording import RecordedEvent
from palus.errors import ReplayError
from palus.store import Store, open_store
from palus.trust import Trust
from palus.web.app import make_app
from palus.web.live import encode_step

SETTINGS = ArenaSettings(envs=("Tug",), target_half_width=0.0)


@pytest.fixture(scope="module", autouse=True)
def row_in_the_table() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(envs.BUILT_IN, "Tug", envs.BuiltIn("tug.env:Tug", "tug.arena:GAME"))
        patch.setattr(envs, "_OURS", Trust(frozenset({"palus", "tug"})))
        envs.arena_games.cache_clear()
        patch.setitem(GAMES, "Tug", envs.arena_games()["Tug"])  # type: ignore[index]
        yield
    envs.arena_games.cache_clear()


@pytest.fixture(scope="module")
def store(row_in_the_table: None, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """An arena of the game in which its house players met once: scheduled, played, reported, checked, logged."""
    store = open_store(tmp_path_factory.mktemp("arena"))
    plan = Scheduler(store, SETTINGS, [PeriodicSweep(sweep_house, 1e9)], seed=1)
    plan.tick()
    assert work(StoreSource(store, "w", SETTINGS, describe_here()), threading.Event(), max_jobs=1) == 1
    plan.link()
    return store


def records(store: Store) -> list[LogRecord]:
    with store.read() as connection:
        return read_log(connection)


def test_it_keeps_the_contract_of_games() -> None:
    check_env(Tug(3), decisions=14)


def test_its_matches_are_played_scored_and_recorded_as_it_declares(tmp_path: Path) -> None:
    spec, recorder = source_of("Tug").spec, Recorder()
    strong, random = load_player("strong", spec), load_player("random", spec)
    results = play_pairs(strong, random, 3, 5, env_id="Tug", recorder=recorder)
    assert [(r.result, r.cause) for r in results] == [("win1", "whistle"), ("win2", "whistle")] * 3
    assert [r.events for r in results] == [(RecordedEvent(18, "whistle", team, -1),) for team in (0, 1)] * 3
    assert {(r.duration_ticks, min(r.score)) for r in results} == {(18, 0)}
    number = next(n for n in (1, 3, 5) if any(e.kind == "shout" for e in recorder.recordings[n].events))
    recording, result = recorder.recordings[number], results[number]
    assert max(result.score) == round(-100 * float(recording.frames[-1, 0]))
    shouts = [e for e in recording.events if e.kind == "shout"]
    assert shouts and {e.agent for e in shouts} == {2}  # blue's shouter chooses by chance, purple's is silent
    assert GAMES["Tug"].play_statistics(recording) == {"shouts": [len(shouts), 0]}
    data = encode_replay([recording, recorder.recordings[0]])
    header = json.loads(data[22 : 22 + struct.unpack_from("<8sHI", data)[2]])
    told = {name: header[name] for name in header if name not in ("title", "matches")}
    assert told == {"pitch": "tug/1", "frame_hz": 20, "ticks_per_decision": 3, "rope_unit_m": 0.01}
    seen = decode_replay(data).recordings[0]
    assert (seen.env_id, seen.score, seen.events) == ("Tug", result.score, recording.events)
    np.testing.assert_allclose(seen.frames, recording.frames, atol=1e-5)
    np.testing.assert_array_equal(seen.actions, recording.actions)
    assert seen.actions[:, 1, 0].tolist() == [299] * 6


def test_its_name_is_all_that_the_command_line_takes(tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*words, "--pairs", "2"])
        assert done.exit_code == code, done.output
        return done.stdout if code == 0 else done.output

    assert json.loads(run("match", "strong", "random", "--game", "Tug", "--json"))["score"] == 1.0
    board = json.loads(run("rank", str(tmp_path), "--with", "strong", "--game", "Tug", "--json"))
    assert [standing["name"] for standing in board["standings"]] == ["strong", "random"]
    for command in (("match", "strong", "random"), ("rank", str(tmp_path))):
        assert "'Tugg' is no game of an arena; did you mean Tug?" in run(*command, "--game", "Tugg", code=2)


def test_its_log_of_actions_takes_the_bytes_that_its_choices_need_and_plays_the_match_again() -> None:
    spec, recorder = source_of("Tug").spec, Recorder()
    random = load_player("random", spec)
    (result, _) = play_pairs(random, random, 1, 5, env_id="Tug", recorder=recorder)
    recording, layout = recorder.recordings[0], layout_of("Tug")
    log = encode_actions(recording.actions, layout)
    assert layout.code_bytes == (2, 2, 1, 1) and len(layout.encode_actions(recording.actions)) == 6 * 6
    np.testing.assert_array_equal(decode_actions(log, layout, 6), recording.actions)
    assert recording.probabilities is not None and recording.probabilities[0].sum(axis=1) == pytest.approx([1, 1, 2, 2])
    shown = decode_replay(encode_replay([recording])).recordings[0].probabilities
    assert shown is not None and np.abs(shown - recording.probabilities).max() < 0.5 / 255 + 1e-6
    again = replay_match("Tug", result.seed, log)
    assert (again.result, again.score, again.ticks) == (result.result, result.score, 18)
    np.testing.assert_array_equal(again.frames, recording.frames)
    with pytest.raises(ReplayError, match="at most 5 decisions"):
        decode_actions(log, layout, 5)
    with pytest.raises(ReplayError, match="code 700, expected 0 to 299"):
        decode_actions(_log(700), layout, 6)


def _log(code: int) -> bytes:
    layout = layout_of("Tug")
    wide = replace(layout, branches=((1000,), *layout.branches[1:]))
    return encode_actions(np.int16([[[code, 0], [0, 0], [0, 0], [0, 0]]]), wide)


def test_its_rated_matches_verify_and_what_was_changed_does_not(store: Store) -> None:
    first, second = records(store)
    assert {side.entity.repo for side in first.sides} == {"palus/random", "palus/strong"}
    assert (first.env, first.cause) == ("Tug", "whistle") and "pydantic" in first.runner.runtimes
    assert first.rated and first.actions is not None
    for record in (first, second):
        found = verify_record(store, record)
        assert found.ok and found.sentence.endswith("the same to the last bit"), found
    lie = verify_record(store, replace(first, score=(first.score[0] + 1, first.score[1])))
    assert lie.ok is False and lie.forged
    store.blobs.put(read_actions(store, second))
    swapped = verify_record(store, replace(first, id="other", actions=second.actions))
    assert swapped.ok is False and swapped.forged
    blob = store.blobs.put(read_replay(store, second))
    assert verify_record(store, replace(first, replay=StoredBytes(blob.sha256, blob.size))).ok is False


def test_its_pages_say_what_it_counts_and_measures(store: Store) -> None:
    Refresher(store, SETTINGS).refresh()
    first, second = records(store)
    shouts = [GAMES["Tug"].play_statistics(recording_of(r, read_actions(store, r))) for r in (first, second)]
    with TestClient(make_app(store, arena=SETTINGS), base_url="http://127.0.0.1") as client:
        page = client.get(f"/api/arena/matches/{first.id}").json()
        (shown,) = client.get("/api/arena/models/palus/random").json()["performance"]
    assert (page["score_word"], page["events"][-1]["type"]) == ("Centimetres", "whistle")
    assert (shown["scores"]["word"], shown["scores"]["timed"], shown["scores"]["scored"]) == ("Centimetres", False, 0)
    assert shown["scores"]["conceded"] == sum(first.score) + sum(second.score)
    own = [int(record.sides[1].entity.repo == "palus/random") for record in (first, second)]
    value = sum(told["shouts"][side] for told, side in zip(shouts, own, strict=True) if told is not None) / 2
    number = {"name": "Shouts", "under": "per match", "value": value, "unit": "", "digits": 1}
    assert shown["play"] == {"matches": 2, "numbers": [number], "ball_heat": None}
    assert (shown["drawn"], shown["measured"]) == (False, True)


def test_it_is_played_while_somebody_watches() -> None:
    spec = source_of("Tug").spec
    match = LiveMatch((load_player("strong", spec), load_player("random", spec)), 5, env_id="Tug", duration_ticks=20)
    steps = [match.step() for _ in range(7)]
    shouts = [event for step in steps for event in step.events]
    assert shouts and {(event.kind, event.agent) for event in shouts} == {("shout", 3)}
    assert steps[5].goal == 0 and steps[-1].score == (1, 0) and steps[-1].finished
    shown = encode_step(next(step for step in steps if step.events), layout_of("Tug"))
    assert bytes([1, 0, 0, 1, 3]) in shown  # one event, in the first step, the first kind, purple, agent 3


def test_events_that_it_does_not_declare_are_none_of_its_matches() -> None:
    layout = layout_of("Tug")
    layout.check_event(RecordedEvent(18, "shout", 1, 3), 18)
    for event in (RecordedEvent(19, "shout", 1, 3), RecordedEvent(1, "kick", 1, 3), RecordedEvent(1, "shout", 1, 4)):
        with pytest.raises(ValueError, match="impossible event"):
            layout.check_event(event, 18)
