"""Rollout in, numbers out: advantages and value targets of PPO and MA-POCA, worked out by hand.

gamma 0.5, lambda 0.5, strength 2; what the critics answer stands in readable.py.
"""

import numpy as np
import pytest
import torch
from readable import SPEC, behavior_of, readable_poca, readable_ppo, rollout, two_matches

from palus.learn.poca import POCA
from palus.learn.ppo import PPO


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=2e-4)


def test_ppo_ends_time_outs_rewards_and_the_last_row():
    values, advantages, targets = readable_ppo().advantages(two_matches())
    close(values, [[1, 2, 3, 4], [5, 0, 6, 7], [8, 1, 2, 3]])
    # A = r + 0.5 V' - V + 0.25 A', r = 2 (own + group's). Row by row, from the last decision back:
    # row 0: 0.5 + 2 - 8 = -5.5 | 6 + 0 - 5 = 1, a goal | 2 + 2.5 - 1 + 0.25 = 3.75
    # row 1: 2.5 + 3 - 1 = 4.5 | absent | 1 + 0 - 2 = -1, left for good
    # row 2: 3 + 2.5 - 2 = 3.5 | 0.5 + 4 - 6 = -1.5, time-out before an 8 | -1 + 3 - 3 - 0.375 = -1.375
    # row 3: -2 + 3.5 - 3 = -1.5, time-out before a 7 | 2 + 1 - 7 = -4, before a 2 | 1 + 3.5 - 4 - 1 = -0.5
    close(advantages, [[3.75, -1, -1.375, -0.5], [1, 0, -1.5, -4], [-5.5, 4.5, 3.5, -1.5]])
    close(targets, [[4.75, 1, 1.625, 3.5], [6, 0, 4.5, 3], [2.5, 5.5, 5.5, 1.5]])


def test_poca_group_values_returns_and_counterfactual_baselines():
    batch = readable_poca().batch(two_matches())
    # mean of the numbers, + 1 for two: (1 + 2) / 2 + 1, (3 + 4) / 2 + 1 | 5 alone, (6 + 7) / 2 + 1 | ...
    close(batch.values, [2.5, 4.5, 5, 7.5, 5.5, 3.5])
    # r = 2 (sum of the members' own + the group's, once); G = r + 0.5 (0.5 V' + 0.5 G'). From the last decision back:
    # match 0: 2.5 + 0.5 x 6 = 5.5 | 6 + 0 = 6, a goal | 3 + 0.5 (2.5 + 3) = 5.75: row 1's return runs on without it
    # match 1: -1 + 0.5 x 5 = 1.5, row 2 goes on alone | 2.5 + 0.5 x 6 = 5.5, time-out before (8 + 2) / 2 + 1 |
    #          -1 + 0.5 (3.75 + 2.75) = 2.25
    close(batch.returns, [5.75, 2.25, 6, 5.5, 5.5, 1.5])
    # own number and the mate's action: (1 + 20) / 2 + 1, (2 + 10) / 2 + 1, ...; alone: the value
    baselines = np.array([[11.5, 7], [7.5, 13], [5, 0], [14, 9.5], [15, 11.5], [7, 7.5]])
    close(batch.baselines[batch.present], baselines[batch.present])
    expected = np.array([[-5.75, -1.25], [-5.25, -10.75], [1, 0], [-8.5, -4], [-9.5, -6], [-5.5, -6]])
    close(batch.advantages[batch.present], expected[batch.present])
    assert batch.present.tolist() == [[True, True]] * 2 + [[True, False]] + [[True, True]] * 3


def test_poca_bootstraps_from_those_who_were_cut_off_when_the_others_ended():
    # Row 0 ends by the rules while row 1 is cut off before a 6: V' = 6 (one agent). r = 2 (1 + 3 + 0.5).
    batch = readable_poca().batch(
        rollout(
            [[1, 2], [3, 4]], [5, 5], [6], [[1, 3], [0, 0]], group_rewards=[[0.5, 0.5], [0, 0]], terminated=[(0, 0)],
            truncated=[(0, 1)], absent=[], actions=[[0, 0], [0, 0]],
        )
    )  # fmt: skip
    close(batch.returns, [9 + 3, 0.5 * (5 + 1)])


def test_a_member_cut_off_alone_leaves_the_group_like_any_other():
    # Row 1 is cut off before an 8, row 0 plays on and sees a 3: G_0 = 0.5 (0.5 x 3 + 0.5 x 2), G_1 = 0.5 x 4.
    batch = readable_poca().batch(
        rollout(
            [[1, 2], [3, 0]], [4, 0], [8], [[0, 0], [0, 0]], group_rewards=[[0, 0], [0, 0]], terminated=[],
            truncated=[(0, 1)], absent=[(1, 1)], actions=[[0, 0], [0, 0]], last_absent=(1,),
        )
    )  # fmt: skip
    close(batch.returns, [1.25, 2])


def all_out():
    """Both of a group leave at the first decision; others of the match, not in this rollout, play on."""
    return rollout(
        [[1, 2], [0, 0], [0, 0]], [0, 0], [], [[1, 0], [0, 0], [0, 0]], group_rewards=[[0, 0]] * 3,
        terminated=[(0, 0), (0, 1)], truncated=[], absent=[(1, 0), (1, 1), (2, 0), (2, 1)], actions=[[0, 0]] * 3,
        last_absent=(0, 1),
    )  # fmt: skip


def test_a_group_that_is_out_while_others_play_on_learns_from_what_it_did():
    learner = readable_poca()
    close(learner.batch(all_out()).returns, [2, 0, 0])
    stats = learner.update(all_out(), 0)
    # V = 2.5 against 2; b = (1 + 10) / 2 + 1 and (2 + 10) / 2 + 1 against 2
    assert stats.value_loss == pytest.approx(0.25, abs=1e-3)
    assert stats.baseline_loss == pytest.approx((4.5**2 + 5**2) / 2, abs=1e-2)
    assert torch.isfinite(learner.parameters.master).all()


@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_nobody_active_nothing_learned(make, trainer):
    learner = make(behavior_of(trainer, "network_settings.normalize=true"), SPEC, torch.float32, 0)
    empty = rollout(
        [[0, 0]], [1, 2], [], [[0, 0]], group_rewards=[[0, 0]], terminated=[], truncated=[],
        absent=[(0, 0), (0, 1)], actions=[[0, 0]],
    )  # fmt: skip
    before = learner.parameters.master.clone()
    assert learner.update(empty, 0) is None
    assert torch.equal(learner.parameters.master, before)
    assert learner.updates == 0
