"""Live matches: repeatable from the seed, open to one person's choices, honest about models that fail."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import Constant, idle, reader_policy
from hostile import sensitive, stock

from palus import envs
from palus.arena.locked.live import LiveMatch, LiveStep, open_live_match
from palus.arena.models.entity import Entity
from palus.arena.models.players import Bot, load_player
from palus.envs.soccer.env import SoccerTwos
from palus.errors import ArenaError

CHASER = load_player("ball-chaser", SoccerTwos(1).spec)


def play(match: LiveMatch, decisions: int) -> list[LiveStep]:
    return [match.step() for _ in range(decisions)]


def contender(repo: str, model: bytes) -> Entity:
    return Entity("0" * 64, repo, "0" * 40, (("SoccerTwos", "0" * 64),), models=(model,))


def test_the_same_seed_gives_the_same_match_and_another_seed_another() -> None:
    first, again, other = (play(LiveMatch((CHASER, reader_policy()), seed), 60) for seed in (7, 7, 8))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a.frames, b.frames)
        np.testing.assert_array_equal(a.actions, b.actions)
        assert (a.goal, a.score, a.first_tick) == (b.goal, b.score, b.first_tick)
    assert not np.array_equal(first[-1].frames, other[-1].frames)


def test_a_person_moves_their_own_agent_and_nobody_else() -> None:
    moved, still = (LiveMatch((idle(), idle()), 3, person=2) for _ in range(2))
    kick_off = moved.kick_off
    for _ in range(5):
        step, rest = moved.step((1, 0, 0)), still.step()
    assert step.actions.tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert np.isnan(step.probabilities[2]).all() and not np.isnan(step.probabilities[[0, 1, 3]]).any()
    blue_b = slice(6, 8)
    yaw = np.radians(kick_off[8])
    way = step.frames[-1, blue_b] - kick_off[blue_b]
    assert way @ [np.sin(yaw), np.cos(yaw)] > 3.0  # metres ahead in half a second
    np.testing.assert_array_equal(rest.frames[-1, :6], step.frames[-1, :6])


def test_goals_are_counted_and_play_goes_on_until_the_time_is_over() -> None:
    match = LiveMatch((CHASER, idle()), 1, duration_ticks=1502)
    steps = []
    while not (steps and steps[-1].finished):
        steps.append(match.step())
    goals = [step.goal for step in steps if step.goal >= 0]
    assert len(goals) >= 2
    assert steps[-1].score == (goals.count(0), goals.count(1)) == match.score
    assert sum(len(step.frames) for step in steps) == match.ticks == 1502
    assert [step.first_tick for step in steps[:3]] == [1, 6, 11]


def test_a_model_that_stops_answering_probabilities_is_named() -> None:
    match = LiveMatch((idle(), Constant("sick", [float("nan")] * 9)), 1)
    with pytest.raises(ArenaError, match="sick no longer plays"):
        match.step()


def test_a_strangers_model_plays_from_its_own_process() -> None:
    model = sensitive(stock()).SerializeToString()
    pair = (contender("ada/first", model), Entity("1" * 64, "palus/random"))
    with open_live_match(pair, 5) as match, open_live_match(pair, 5) as twin:
        assert "limits" in match.isolation
        for a, b in zip(play(match, 20), play(twin, 20), strict=True):
            np.testing.assert_array_equal(a.frames, b.frames)
            assert abs(a.probabilities.sum() - 12) < 1e-3  # four agents, three branches
    with pytest.raises(ArenaError, match="no longer plays"):
        match.step()  # its process ended with the block


def test_a_file_that_is_no_model_is_no_player() -> None:
    pair = (contender("eve/junk", b"not a model"), contender("eve/junk", b"not a model"))
    with pytest.raises(ArenaError, match="eve/junk cannot be opened"), open_live_match(pair, 5):
        pass


def test_a_game_of_three_agents_is_played_the_same_way() -> None:
    spec = envs.make("StrikersVsGoalie", 1).spec
    strikers, goalie = load_player("ball-chaser", spec), load_player("random", spec)
    match = LiveMatch((strikers, goalie), 3, env_id="StrikersVsGoalie", person=2)
    step = match.step((0, 1, 0))
    assert match.kick_off.shape == (11,) and step.actions.tolist()[2] == [0, 1, 0]
    with pytest.raises(ArenaError, match="has no agent 3; they are numbered from 0 to 2"):
        LiveMatch((strikers, goalie), 3, env_id="StrikersVsGoalie", person=3)


def test_a_match_keeps_the_rules_of_its_games_arena() -> None:
    spec = envs.make("StrikersVsGoalie", 1).spec
    nobody = Bot("still", lambda env, team, matches: np.zeros((len(matches), 2 - team, 3), np.int32))
    match = LiveMatch((nobody, nobody), 3, env_id="StrikersVsGoalie")
    assert spec.max_decisions == 1000  # the game's own limit; a match of an arena is a draw after a fifth of that
    ball = np.concatenate([step.frames[:, -2:] for step in play(match, 220)])
    kicked_off = np.flatnonzero(np.abs(np.diff(ball, axis=0)).max(axis=1) > 0.01)
    assert [round(tick, -1) for tick in kicked_off.tolist()] == [1000]
    assert match.score == (0, 0)
