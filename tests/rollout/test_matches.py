"""Single games as one batched environment: the contract, whose episode is whose, ends and what was seen last."""

from __future__ import annotations

import numpy as np
import pytest
from counting_game import AGENT, CHOICES, DECISION, EPISODE, CountingGame

from palus.envs import make_game
from palus.envs.check import check_env
from palus.envs.matches import Matches, OneMatch
from palus.envs.protocol import observe_slots, room_for
from palus.errors import EnvError


def test_single_games_keep_the_contract_of_batches():
    check_env(Matches(lambda: make_game("PenaltyToy"), 3), decisions=12)
    check_env(Matches(lambda: make_game("MenuToy"), 3), decisions=12)
    check_env(Matches(lambda: make_game("RescueToy"), 3), decisions=12)


def test_a_batch_of_single_games_is_that_game():
    batch, single = Matches(lambda: make_game("DuelToy"), 2), make_game("DuelToy")
    assert isinstance(single, OneMatch) and batch.spec == single.spec
    batch.reset(np.array([1, 2]))
    twice = Matches(lambda: make_game("DuelToy"), 1)
    twice.reset(np.array([2]))
    (behavior,) = batch.spec.behaviors
    own, _ = observe_slots(twice, behavior, np.ones((1, 2), np.bool_))
    seen, _ = observe_slots(batch, behavior, np.array([[False, False], [True, True]]))
    assert {name: rows.tolist() for name, rows in seen.items()} == {name: rows.tolist() for name, rows in own.items()}


def test_a_game_is_asked_once_a_decision_what_is_seen(monkeypatch):
    asked, env = [], Matches(lambda: CountingGame(agents=2, length=3), 1)
    observe = CountingGame.observe
    monkeypatch.setattr(CountingGame, "observe", lambda game, out: (asked.append(game), observe(game, out))[1])
    env.reset(np.array([1]))
    for decision in range(4):  # the fourth begins another episode
        first, second = (observe_slots(env, env.spec.behaviors[0], np.eye(2, dtype=bool)[[k]])[0] for k in (0, 1))
        assert len(asked) == decision + 1
        seen = [next(iter(rows.values()))[0, [EPISODE, DECISION, AGENT]].tolist() for rows in (first, second)]
        assert seen == [[1 + decision // 3, decision % 3, agent] for agent in (0, 1)]
        env.step([np.full((1, 2, env.spec.behaviors[0].actions.columns), CHOICES - 1, np.float32)])


def moments(env):
    """(episode, decision, agent) of every agent."""
    room = room_for(env.spec.behaviors[0], env.active.size)
    env.observe("", np.arange(env.active.size, dtype=np.int32).reshape(env.active.shape), room)
    return next(iter(room.values()))[:, [EPISODE, DECISION, AGENT]].tolist()


def test_episodes_start_anew_and_truncated_agents_keep_what_they_saw():
    games = []

    def make():
        games.append(CountingGame(agents=2, length=2, truncate=True))
        return games[-1]

    env = Matches(make, 2)
    env.reset(np.array([5, 6]))
    assert moments(env) == [[1, 0, 0], [1, 0, 1]] * 2
    actions = np.full((2, 2, env.spec.behaviors[0].actions.columns), CHOICES - 1, np.float32)
    assert not env.step([actions]).match_over.any()
    step = env.step([actions])
    assert step.match_over.all() and step.truncated.all() and np.isnan(step.points).all()
    assert set(step.stats) == {0, 1}
    assert moments(env) == [[2, 0, 0], [2, 0, 1]] * 2
    room = room_for(env.spec.behaviors[0], 4, masks=False)
    env.observe_final("", np.arange(4, dtype=np.int32).reshape(2, 2), room)
    assert next(iter(room.values()))[:, [EPISODE, DECISION]].tolist() == [[1, 2]] * 4
    env.close()
    assert all(game._closed for game in games)


def test_games_that_could_not_all_be_made_are_closed():
    games = []

    def make():
        if len(games) == 2:
            raise EnvError("no third one")
        games.append(CountingGame())
        return games[-1]

    with pytest.raises(EnvError, match="no third one"):
        Matches(make, 3)
    assert [game._closed for game in games] == [True, True]


def test_every_episode_of_a_game_has_a_seed_of_its_own():
    class Seeded(CountingGame):
        def reset(self, seed):
            seeds.append(seed)
            super().reset(seed)

    seeds: list[int] = []
    env = Matches(Seeded, 2)
    env.reset(np.array([3, 4]))
    env.begin(0)
    env.begin(1)
    assert len(set(seeds)) == 4 and max(seeds) < 2**31


def test_what_is_seen_lies_in_the_rows_that_were_asked_for_and_is_of_the_episode_that_goes_on():
    env = Matches(lambda: CountingGame(agents=2, length=1, truncate=True), 1)
    (behavior,) = env.spec.behaviors
    room = room_for(behavior, 3)
    (name, seen), *_ = room.items()
    for episode in (1, 2):
        env.reset(np.array([episode]))
        env.observe("", np.array([[0, 2]], np.int32), room)
        assert seen[:, [EPISODE, AGENT]].tolist() == [[episode, 0], [0, 0], [episode, 1]]
    action = np.full((1, 2, behavior.actions.columns), CHOICES - 1, np.float32)
    for length in (1, 9):
        seen[:] = -1
        for game in env.games:
            game._length = length
        assert env.step([action]).truncated.all() == (length == 1)
        env.observe_final("", np.array([[0, 1]], np.int32), {name: seen})
        assert (seen[:2] >= 0).all() == (length == 1)  # nobody was cut off later
