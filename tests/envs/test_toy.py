"""The two toy games pay what their rules say."""

from __future__ import annotations

import numpy as np
import pytest

from palus.envs.toy import DuelToy, RescueToy


def look(env):
    """[N, P, D] observations of active agents, NaN for the others."""
    n, p = env.active.shape
    out = np.full((n * p, env.spec.behaviors[0].observation_size), np.nan, np.float32)
    env.observe(env.spec.env_id, np.arange(n * p, dtype=np.int32).reshape(n, p), out)
    return out.reshape(n, p, -1)


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
