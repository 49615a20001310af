"""A unit gives the referee's own results, whatever the models' processes do."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import LAYOUT, SOCCER
from hostile import hostile, sensitive, stock
from units import LIMITS, contender, house, unit

from palus.arena.locked.play import play_unit
from palus.arena.locked.sandbox import LockedProcess, Sandbox
from palus.arena.locked.witness import ask_again
from palus.arena.models.policies import OnnxPlayer
from palus.arena.models.rules import Limits
from palus.arena.referee.actions import decode_actions, encode_actions, replay_match
from palus.arena.referee.match import play_pairs
from palus.errors import ArenaError, ReplayError

FORWARD = np.array([[0.1, 3.0, 0.1], [3.0, 0.1, 0.1], [1.0, 0.5, 0.4]])
BASIC = contender("ann/basic", sensitive(stock()))
EAGER = contender("bob/eager", sensitive(stock(logits=FORWARD)))
RANDOM = house("random")
SHORT = 11, 5
"""Seeds of pairs of BASIC and EAGER that end by goals within seconds of the game."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with contextlib.closing(Sandbox()) as sandbox:
        yield sandbox


def test_a_unit_equals_play_pairs_and_itself(sandbox: Sandbox, tmp_path: Path):
    players = []
    for entrant in (BASIC, EAGER):
        path = tmp_path / f"{entrant.owner}.onnx"
        path.write_bytes(*entrant.models)
        players.append(OnnxPlayer(path, SOCCER, entrant.repo))
    expected = play_pairs(players[0], players[1], 1, seed=SHORT[0])
    once = play_unit(unit(BASIC, EAGER, SHORT[0]), LIMITS, sandbox=sandbox)
    assert [dataclasses.replace(r, final_state=None) for r in once.results] == list(expected)
    again = play_unit(unit(BASIC, EAGER, SHORT[0]), LIMITS, sandbox=sandbox)
    assert again == once
    assert play_unit(unit(BASIC, EAGER, SHORT[1]), LIMITS, sandbox=sandbox).results != once.results


def test_scripted_players_take_part_under_their_repository_and_hash(sandbox: Sandbox):
    chaser = house("ball-chaser")
    outcome = play_unit(unit(BASIC, chaser), LIMITS, sandbox=sandbox)
    first, second = outcome.results
    assert [side.entity.repo for side in first.sides] == ["ann/basic", "palus/ball-chaser"]
    assert [side.entity.sha256 for side in second.sides] == [chaser.sha256, BASIC.sha256]
    assert "limits" in outcome.isolation
    assert play_unit(unit(RANDOM, chaser), LIMITS, sandbox=sandbox).isolation == "none"


def test_an_action_log_belongs_to_its_game_and_there_is_no_replay_beside_it(sandbox: Sandbox):
    outcome = play_unit(unit(BASIC, EAGER, SHORT[1]), LIMITS, sandbox=sandbox)
    for result, replay, actions in (vars(match).values() for match in outcome.matches):
        again = replay_match("SoccerTwos", result.seed, actions)
        assert (replay, again.state, again.ticks) == (b"", result.final_state, result.duration_ticks)


def test_a_changed_action_log_or_seed_does_not_reproduce_the_match(sandbox: Sandbox):
    outcome = play_unit(unit(BASIC, EAGER, SHORT[1]), LIMITS, sandbox=sandbox)
    result, actions = outcome.results[0], decode_actions(outcome.matches[0].actions, LAYOUT, 1000)
    changed = actions.copy()
    changed[0, 0] = (changed[0, 0] + 1) % 3
    assert replay_match("SoccerTwos", result.seed, encode_actions(changed, LAYOUT)).state != result.final_state
    assert replay_match("SoccerTwos", result.seed, encode_actions(actions[:-1], LAYOUT)).state != result.final_state
    assert replay_match("SoccerTwos", result.seed + 1, encode_actions(actions[:5], LAYOUT)).state != result.final_state
    with pytest.raises(ReplayError, match=r"the match ended after|at most 1000"):
        replay_match("SoccerTwos", result.seed, encode_actions(np.concatenate([actions, actions[:1]]), LAYOUT))


def test_damaged_action_logs_are_refused():
    actions = np.zeros((10, 4, 3), np.int8)
    data = encode_actions(actions, LAYOUT)
    for damaged in (b"text", data[:-1], data + b"\x00", encode_actions(np.zeros((1001, 4, 3), np.int16), LAYOUT)):
        with pytest.raises(ReplayError, match="not an action log"):
            decode_actions(damaged, LAYOUT, max_decisions=1000)
    assert len(decode_actions(b"", LAYOUT, max_decisions=1000)) == 0


@pytest.mark.parametrize(
    ("sample", "cause"),
    [("endless", "timeout"), ("17 GB", "crash"), ("NaN answers", "non_finite"), ("loop", "invalid")],
)
def test_a_model_that_fails_forfeits_both_games_to_a_healthy_one(sandbox: Sandbox, sample: str, cause: str):
    bad = contender("eve/bad", hostile(sample))
    outcome = play_unit(unit(bad, BASIC), Limits(cpu_s=2, niceness=0), sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("forfeit1", cause), ("forfeit2", cause)]
    assert [match.replay for match in outcome.matches] == [b"", b""]
    assert (outcome.failures[0] != "") == (cause != "non_finite")
    assert outcome.failures[1] == ""
    for result, _, actions in (vars(match).values() for match in outcome.matches):
        assert replay_match("SoccerTwos", result.seed, actions).state == result.final_state


def test_a_model_whose_agents_see_each_other_through_the_batch_is_found_while_it_plays(sandbox: Sandbox):
    """Whatever it did when it was validated. The same match finds it at the same decision."""
    gossip = contender("eve/gossip", hostile("gossip"))
    first, again = (play_unit(unit(gossip, BASIC), LIMITS, sandbox=sandbox) for _ in range(2))
    assert [(r.result, r.cause) for r in first.results] == [("forfeit1", "invalid"), ("forfeit2", "invalid")]
    assert "when others are asked with it" in first.failures[0]
    assert first == again
    alone = play_unit(unit(gossip, BASIC), LIMITS, sandbox=sandbox, check_share=0.0)
    assert {r.cause for r in alone.results} <= {"goal", "time_limit"}


def test_a_witness_asks_all_that_was_asked_in_the_match_with_the_same_rows_beside(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    asked, ask = set[tuple[Any, ...]](), LockedProcess.ask

    def noted(self: LockedProcess, *question: Any) -> bytes:
        asked.add(question)
        return ask(self, *question)

    monkeypatch.setattr(LockedProcess, "ask", noted)
    plain = play_unit(unit(BASIC, EAGER, SHORT[1]), LIMITS, sandbox=sandbox, check_share=0.0)
    unchecked = set(asked)
    assert play_unit(unit(BASIC, EAGER, SHORT[1]), LIMITS, sandbox=sandbox) == plain
    in_match = set(asked)
    assert len(in_match - unchecked) > 3
    for others in (False, True):  # who would not have chosen so is asked about rounding, too, which changes nothing
        asked.clear()
        for result, _, actions in (vars(match).values() for match in plain.matches):
            turn = -1 if (result.leg == 2) != others else 1
            ask_again("SoccerTwos", result.seed, result.leg, actions, (BASIC, EAGER)[::turn], "stochastic")
        assert len(in_match) < len(asked) and in_match <= asked


def test_two_models_that_fail_are_void(sandbox: Sandbox):
    outcome = play_unit(
        unit(contender("eve/one", hostile("loop")), contender("eve/two", b"junk")), LIMITS, sandbox=sandbox
    )
    assert [(r.result, r.cause) for r in outcome.results] == [("void", "invalid")] * 2


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_a_kill_from_outside_is_nobodys_forfeit_and_leaves_nothing(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    """An operator, or a system without memory: models cannot send signals, so it was none of their doing."""
    pids = interrupt(monkeypatch, signal.SIGKILL)
    outcome = play_unit(unit(BASIC, RANDOM), LIMITS, sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("void", "engine")] * 2
    assert "killed from outside (signal SIGKILL)" in outcome.failures[0]
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert play_unit(unit(BASIC, RANDOM), LIMITS, sandbox=sandbox).results  # and the next unit is played


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes through /proc")
def test_a_crash_in_the_middle_is_a_forfeit_of_that_side_and_leaves_nothing(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
):
    pids = interrupt(monkeypatch, signal.SIGSEGV)
    outcome = play_unit(unit(BASIC, RANDOM), LIMITS, sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("forfeit1", "crash"), ("forfeit2", "crash")]
    assert "SIGSEGV" in outcome.failures[0]
    for result, replay, actions in (vars(match).values() for match in outcome.matches):
        assert len(decode_actions(actions, LAYOUT, 1000)) == 1, "each leg is asked for itself"
        again = replay_match("SoccerTwos", result.seed, actions)
        assert (replay, again.state, again.ticks) == (b"", result.final_state, result.duration_ticks)
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
def test_a_process_that_gets_no_processor_time_is_not_to_blame(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch):
    interrupt(monkeypatch, signal.SIGSTOP)
    outcome = play_unit(unit(BASIC, RANDOM), Limits(wall_s=1.0, niceness=0), sandbox=sandbox)
    assert [(r.result, r.cause) for r in outcome.results] == [("void", "engine")] * 2


def test_units_on_several_threads_share_a_sandbox(sandbox: Sandbox):
    units = [unit(BASIC, EAGER, seed) for seed in SHORT]
    alone = [play_unit(u, LIMITS, sandbox=sandbox) for u in units]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda u: play_unit(u, LIMITS, sandbox=sandbox), units))
    assert together == alone


def test_whoever_is_no_house_player_plays_with_one_model():
    for models in ((), (b"model", b"another")):
        with pytest.raises(ArenaError, match=f"ann/basic: brings {len(models)} models"):
            play_unit(unit(dataclasses.replace(BASIC, models=models), RANDOM), LIMITS)


def interrupt(monkeypatch: pytest.MonkeyPatch, number: signal.Signals) -> list[int]:
    """Send the signal to a locked process before its fourth answer. Returns a list that its id is put in."""
    pids: list[int] = []
    calls: dict[int, int] = {}
    ask = LockedProcess.ask

    def interrupted(self: LockedProcess, *question: Any) -> bytes:
        calls[self.pid] = calls.get(self.pid, 0) + 1
        if calls[self.pid] == 4:
            pids.append(self.pid)
            os.kill(self.pid, number)
        return ask(self, *question)

    monkeypatch.setattr(LockedProcess, "ask", interrupted)
    return pids
