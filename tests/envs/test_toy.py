"""The two toy games pay what their rules say."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs.protocol import room_for
from palus.envs.toy import DuelToy, MenuToy, PenaltyToy, RescueToy
from palus.errors import EnvError


def look_at(env, behavior):
    """name -> [N, P_b, ...] of active agents, zeros for the others."""
    shape = (env.num_matches, len(env.spec.agents_of(behavior)))
    rows = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
    room = room_for(env.spec.behavior(behavior), rows.size)
    env.observe(behavior, rows, room)
    return {name: array.reshape(*shape, *array.shape[1:]) for name, array in room.items()}


def look(env):
    """[N, P, D] the vectors of the only behavior."""
    return look_at(env, env.spec.env_id)["obs_0"]


@pytest.mark.parametrize(("offset", "reward"), [(0, 1.0), (1, 0.0), (2, 0.0)])
def test_rescue_pays_the_partner_for_what_the_pilot_did_before_leaving(offset, reward):
    env = RescueToy(50)
    env.reset(np.arange(50))
    cue = np.argmax(look(env)[:, 0, 2:5], axis=1)
    actions = np.zeros((50, 2, 1), np.int32)
    actions[:, 0, 0] = (cue + offset) % 3
    first = env.step([actions])
    assert first.terminated[:, 0].all() and not first.group_reward.any() and not env.active[:, 0].any()
    for _ in range(2):
        assert not env.step([actions * 0]).match_over.any()
    last = env.step([actions * 0])
    assert last.match_over.all() and env.active.all()
    assert last.group_reward.tolist() == [[0.0, reward]] * 50
    assert last.terminated.tolist() == [[False, True]] * 50


def test_rescue_hides_the_cue_from_the_partner_and_spreads_it():
    env = RescueToy(300)
    env.reset(np.arange(300))
    view = look(env)
    assert not view[:, 1, 2:5].any()
    assert (view[:, 0, 2:5].sum(axis=0) > 70).all()


def test_duel_is_won_by_the_better_guesser():
    env = DuelToy(40)
    env.reset(np.arange(40))
    for t in range(4):
        cues = np.argmax(look(env)[:, :, :3], axis=2)
        actions = cues.copy()
        actions[:, 1] = (cues[:, 1] + (t == 0)) % 3  # right misses once
        step = env.step([actions[:, :, None].astype(np.int32)])
    assert step.match_over.all() and step.terminated.all()
    assert step.group_reward.tolist() == [[1.0, -1.0]] * 40


def test_duel_tie_pays_nothing():
    env = DuelToy(40)
    env.reset(np.arange(40))
    for _ in range(4):
        cues = np.argmax(look(env)[:, :, :3], axis=2)
        step = env.step([cues[:, :, None].astype(np.int32)])
    assert step.match_over.all() and not step.group_reward.any()


def test_striker_and_keeper_are_paid_for_their_own_cues_and_the_better_one_wins():
    env = PenaltyToy(60)
    env.reset(np.arange(60))
    for t in range(4):
        striker = look_at(env, "Striker")["obs_0"][:, :, :3].argmax(2)
        keeper = look_at(env, "Keeper")["obs_0"].argmax(2)
        share = (look_at(env, "Striker")["obs_0"][:, 0, 3], look_at(env, "Keeper")["obs_1"][:, 0, 0])
        assert all((s == t / 4).all() for s in share)
        keeper = np.where(t < 2, 1 - keeper, keeper)  # twice to the wrong side
        answers = [striker[:, :, None], np.stack([keeper, 1 - keeper], 2)]
        step = env.step([a.astype(np.float32) for a in answers])
        assert step.reward.tolist() == [[1.0, float(t >= 2)]] * 60
    assert step.points.tolist() == [[1.0, 0.0]] * 60
    assert step.stats[7] == {0: {"hits": 1.0}, 1: {"hits": 0.5}}


def test_what_is_off_the_menu_cannot_be_ordered():
    env = MenuToy(200)
    env.reset(np.arange(200))
    seen = look_at(env, "MenuToy")
    masks = seen["action_masks"][:, 0]
    assert (masks.sum(1) == 3).all() and (masks.sum(0) > 120).all() and not seen["obs_0"].any()
    dearest = np.where(masks[:, 3], 3, 2)
    assert env.step([dearest[:, None, None].astype(np.float32)]).reward.mean() > 0.85
    with pytest.raises(EnvError, match=r"match 1: ordered dish|which its mask forbids"):
        env.step([look_at(env, "MenuToy")["action_masks"][:, :, :].argmin(2)[:, :, None].astype(np.float32)])
