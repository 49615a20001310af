"""Evaluation counts a fixed set of whole episodes, whatever runs beside them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from countdown import Countdown
from processes import children

from palus.config.network import NetworkSettings
from palus.envs import make_game
from palus.envs.game import GameStep
from palus.errors import EnvError
from palus.nn.network import Network
from palus.rollout.rollout import Episode
from palus.run.agents import AgentPlayer
from palus.run.evaluate import evaluate
from palus.types import ActionSpec, BehaviorSpec, Continuous, ObservationSpec


class CountsItsDecisions:
    """Acts by its memory: the n-th decision of an episode is n, at most 8."""

    state_size = 1

    def __call__(self, observations: Mapping[str, Any], states: Any, episodes: Any, decisions: Any) -> Any:
        assert np.array_equal(states[:, 0], decisions), "memory begins anew with every episode and is kept within it"
        return np.minimum(decisions, 8).astype(np.float32)[:, None], states + 1


COUNTS = {"": CountsItsDecisions()}


def test_episodes_do_not_depend_on_how_many_games_run_side_by_side() -> None:
    made: list[Countdown] = []

    def make() -> Countdown:
        made.append(Countdown())
        return made[-1]

    alone, together = (evaluate(make, COUNTS, episodes=40, games=g, seed=3) for g in (1, 7))
    assert alone.episodes == together.episodes
    assert len(alone.episodes) == 40  # 20 games of two agents
    assert all(game.closed for game in made)
    seeds = np.random.SeedSequence(3).generate_state(20)
    starts = np.array([np.random.default_rng(int(s)).integers(1, 30, 2) for s in seeds])
    assert together.mean == pytest.approx(starts.mean())  # short episodes are counted no more often than long ones
    assert together.std == pytest.approx(starts.std())
    first, paid = together.episodes[0], float(np.minimum(np.arange(starts[0, 0]), 8).sum())
    assert (first.reward, first.length) == (paid, starts[0, 0])
    assert together.mean_length == 4 * starts.mean()
    assert together.frames == 4 * starts.sum()


def test_stops_at_the_frames_and_counts_only_what_ended() -> None:
    found = evaluate(Countdown, COUNTS, episodes=400, games=4, seed=1, max_frames=200)
    assert 200 <= found.frames < 200 + 4 * 2 * 4
    assert sum(4 * e.length for e in found.episodes) < found.frames
    nothing = evaluate(Countdown, COUNTS, episodes=4, games=1, seed=2, max_frames=1)
    assert nothing.episodes == ()
    assert np.isnan(nothing.mean)


def test_the_last_game_is_played_out_and_each_agent_has_episodes_of_its_own() -> None:
    found = evaluate(Countdown, COUNTS, episodes=3, games=1, seed=3)
    assert [(e.slot, e.agent) for e in found.episodes] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [(e.slot, e.agent) for e in found.by([1]).episodes] == [(0, 1), (1, 1)]


def test_draws_are_keyed_by_the_episode_of_an_agent_and_by_its_decision() -> None:
    """Each agent of each game has a number of its own; no two decisions of two episodes are drawn alike."""
    told = set[int]()

    class Told(CountsItsDecisions):
        def __call__(self, observations: Any, states: Any, episodes: Any, decisions: Any) -> Any:
            told.update(episodes.tolist())
            return super().__call__(observations, states, episodes, decisions)

    evaluate(Countdown, {"": Told()}, episodes=6, games=2, seed=3)
    assert told == set(range(6))
    spec = BehaviorSpec("", (ObservationSpec("obs", (1,)),), ActionSpec((Continuous(1),)))
    policy = Network(spec, NetworkSettings(), torch.Generator().manual_seed(0))
    seen, states, (episodes, decisions) = {"obs": np.zeros((4, 1), np.float32)}, np.zeros((4, 0)), np.indices((2, 2))
    drawn, _ = AgentPlayer(policy, 5)(seen, states.astype(np.float32), episodes.ravel(), decisions.ravel())
    assert len(set(drawn.ravel().tolist())) == 4
    again, _ = AgentPlayer(policy, 5)({"obs": seen["obs"][:1]}, np.zeros((1, 0), np.float32), *np.array([[1], [0]]))
    assert again[0] == drawn[2]


class Paying(Countdown):
    """The group is paid 1 for every decision of an agent, and the game tells lengths itself."""

    def step(self, actions: Any) -> GameStep:
        paid = self.active.astype(np.float32)
        step = super().step(actions)
        told = {agent: {**own, "len": 100.0} for agent, own in step.stats.items()}
        return replace(step, group_reward=paid, stats=told)


def test_what_a_group_is_paid_counts_and_a_game_may_tell_lengths_itself() -> None:
    alone, paying = (evaluate(game, COUNTS, episodes=2, games=1, seed=3) for game in (Countdown, Paying))
    assert [e.reward for e in paying.episodes] == [e.reward + e.length for e in alone.episodes]
    assert paying.mean_length == 100.0


class Anew(Countdown):
    """Whoever is done counts down from 3 again until the other one is done, too."""

    def step(self, actions: Any) -> GameStep:
        step = super().step(actions)
        self.first |= step.terminated
        again = step.terminated & ~self.first.all()
        self.left[again], self.active[again] = 3, True
        return replace(step, over=bool(self.first.all()))

    def reset(self, seed: int) -> None:
        super().reset(seed)
        self.first = np.zeros(2, np.bool_)


class Nothing:
    """Does nothing, without a memory."""

    state_size = 0

    def __call__(self, observations: Mapping[str, Any], states: Any, episodes: Any, decisions: Any) -> Any:
        return np.zeros((len(states), 1), np.float32), states


def test_of_an_agent_that_goes_on_in_its_game_the_first_episode_counts() -> None:
    once, anew = (evaluate(game, {"": Nothing()}, episodes=20, games=3, seed=3) for game in (Countdown, Anew))
    assert anew.episodes == once.episodes and anew.frames > once.frames


def test_a_game_without_a_recorder_gives_one_picture_per_decision() -> None:
    pictures: list[Any] = []
    found = evaluate(Countdown, COUNTS, episodes=2, games=3, recorder=pictures.append)
    assert len(pictures) == max(e.length for e in found.episodes)


class Brittle(Countdown):
    """Game 2 of seed 3 breaks at its third step, as often as `breaks` says; closed games refuse to go on."""

    breaks = 0

    def step(self, actions: Any) -> Any:
        assert not self.closed
        if Brittle.breaks and self.start[0] - self.left[0] == 2 and self.start.tolist() == BREAKING:
            Brittle.breaks -= 1
            raise EnvError("the engine is lost")
        return super().step(actions)


BREAKING = np.random.default_rng(int(np.random.SeedSequence(3).generate_state(3)[2])).integers(1, 30, 2).tolist()


def test_a_lost_game_is_played_again_and_changes_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Episode] = []
    found = [
        evaluate(Brittle, COUNTS, episodes=10, games=2, seed=3, progress=counted.append) for Brittle.breaks in (0, 2)
    ]
    assert found[0].episodes == found[1].episodes
    assert [e.lost for e in found] == [0, 2]
    assert found[1].frames == found[0].frames + 2 * 3 * 2 * 4  # two agents, three decisions of four frames, twice
    assert len(counted) == 20, "no episode is announced twice"


def test_a_game_that_is_lost_again_and_again_ends_the_evaluation_with_advice() -> None:
    Brittle.breaks = 3
    with pytest.raises(EnvError, match=r"game 2 .* lost 3 times: the engine is lost\. .*--games 1"):
        evaluate(Brittle, COUNTS, episodes=10, games=2, seed=3)


class Reluctant(Brittle):
    """The game after it does not start at once."""

    refuses = 0

    def reset(self, seed: int) -> None:
        super().reset(seed)
        if Reluctant.refuses and seed == np.random.SeedSequence(3).generate_state(5)[3]:
            Reluctant.refuses -= 1
            raise EnvError("the engine does not start")


def test_losses_are_counted_for_every_game_by_itself() -> None:
    Brittle.breaks, Reluctant.refuses = 2, 2
    found = evaluate(Reluctant, COUNTS, episodes=10, games=1, seed=3)
    assert found.lost == 4 and found.episodes == evaluate(Countdown, COUNTS, episodes=10, games=1, seed=3).episodes


class Deaf(Brittle):
    """A game that does not answer where `Brittle` breaks, not even when it is killed."""

    def step(self, actions: Any) -> Any:
        try:
            return super().step(actions)
        except EnvError:
            threading.Event().wait()

    def kill(self) -> None:
        assert not self.closed


@pytest.mark.parametrize("games", [1, 2])
def test_a_game_that_does_not_even_answer_when_it_is_killed_is_given_up(
    monkeypatch: pytest.MonkeyPatch, games: int
) -> None:
    monkeypatch.setattr("palus.run.evaluate.PATIENCE_S", 0.2)
    monkeypatch.setattr("palus.run.evaluate.GRACE_S", 0.2)
    found = [evaluate(Deaf, COUNTS, episodes=10, games=games, seed=3) for Brittle.breaks in (0, 2)]
    assert found[0].episodes == found[1].episodes
    assert [e.lost for e in found] == [0, 2]


class Interrupted(Countdown):
    """Ctrl-C comes once, while the first takes its second step; one at work may not be closed."""

    at_work = interrupts = False

    def step(self, actions: Any) -> Any:
        self.at_work = True
        if self.interrupts and self.start[0] - self.left[0] == 1:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            time.sleep(0.3)
        self.at_work = False
        return super().step(actions)

    def close(self) -> None:
        assert not self.at_work
        super().close()


def test_an_interrupted_evaluation_closes_games_when_their_calls_are_back() -> None:
    made: list[Interrupted] = []

    def make() -> Interrupted:
        made.append(Interrupted())
        made[-1].interrupts = len(made) == 1
        return made[-1]

    with pytest.raises(KeyboardInterrupt):
        evaluate(make, COUNTS, episodes=4, games=2, seed=3)
    assert all(game.closed for game in made)


def engines() -> list[int]:
    """Process ids of Doom engines that this process started."""
    return [pid for pid in children(os.getpid()) if "viz_instance_id" in Path("/proc", str(pid), "cmdline").read_text()]


class Runs:
    """Runs and turns in Doom; sends an engine of its own process a signal at the given decision."""

    state_size = 0

    def __init__(self, hit_at: int | None = None, blow: int = signal.SIGKILL) -> None:
        self.hit_at, self.blow, self.asked = hit_at, blow, 0

    def __call__(self, observations: Mapping[str, Any], states: Any, episodes: Any, decisions: Any) -> Any:
        self.asked += 1
        if self.asked == self.hit_at:
            os.kill(engines()[0], self.blow)
        return (decisions % 2).astype(np.float32)[:, None], states


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_killed_or_hung_doom_engine_costs_time_and_no_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("vizdoom", reason="the extra `doom` is not installed")
    monkeypatch.setattr("palus.run.evaluate.PATIENCE_S", 10.0)
    whole, killed, hung = (
        evaluate(lambda: make_game("doom_my_way_home", frameskip=40), {"": runs}, episodes=3, games=2, seed=1)
        for runs in (Runs(), Runs(20, signal.SIGKILL), Runs(20, signal.SIGSTOP))
    )
    assert (whole.lost, killed.lost, hung.lost) == (0, 1, 1)
    assert killed.episodes == hung.episodes == whole.episodes and len(whole.episodes) == 3
    assert engines() == []
