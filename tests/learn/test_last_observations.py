"""Games that show what was seen when an episode ended by the rules: rewards whose return runs on over the end go on
with it, as in ML-Agents, and the game's own reward does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from paying import paying_poca, paying_ppo, sac
from readable import NUMBERS, SPEC, rollout

from palus.learn.replay_buffer import ReplayBuffer
from palus.learn.returns import usable_decisions
from palus.learn.signals import decisions_of
from palus.rollout.rollout import Rollout


def ended(shown: bool = True) -> Rollout:
    """Row 0 ends by the rules before a 6, and row 1 before a 7, which comes back to a 3 and is cut off before an 8."""
    return rollout(
        [[1, 2], [0, 3]], [0, 5], [6, 7, 8] if shown else [8], [[1, 3], [0, 0]], group_rewards=[[0, 0], [0, 0]],
        terminated=[(0, 0), (0, 1)], truncated=[(1, 1)], absent=[(1, 0)], actions=[[0, 0], [0, 0]], last_absent=(0,),
        shown=[(0, 0), (0, 1)] if shown else None,
    )  # fmt: skip


@pytest.mark.parametrize("goes_on", [False, True])
@pytest.mark.parametrize("shown", [False, True])
def test_of_ppo(goes_on: bool, shown: bool) -> None:
    learner, data = paying_ppo(goes_on), ended(shown)
    values = learner.replay(data, 1)[0]
    following = learner.following(data, values, learner.finals(data))
    np.testing.assert_allclose(following[..., 0], [[0, 0], [0, 8]], atol=1e-3)
    # Values are twice the numbers; without a last observation row 1 goes on with what it sees next, row 0 with nothing.
    on = [[12, 14] if shown else [0, 6], [0, 16]] if goes_on else [[0, 0], [0, 16]]
    np.testing.assert_allclose(following[..., 1], on, atol=1e-3)


@pytest.mark.parametrize("shown", [False, True])
def test_of_what_signals_see(shown: bool) -> None:
    found = decisions_of(ended(shown), np.array([0, 1, 3]), SPEC.actions, False)  # t B + b
    assert found.known.tolist() == [shown, shown, True]
    following = found.following["obs_0"] @ np.arange(1, NUMBERS + 1)
    assert following[found.known].tolist() == ([6, 7, 8] if shown else [8])


@pytest.mark.parametrize("goes_on", [False, True])
def test_of_a_group(goes_on: bool) -> None:
    """V is 8, whatever is seen: 3 x (1 + 2), + 0.25 x 8 where it runs on; nobody comes back."""
    data = rollout(
        [[1, 2], [0, 0]], [0, 0], [6, 7], [[0, 0], [0, 0]], group_rewards=[[0, 0], [0, 0]],
        terminated=[(0, 0), (0, 1)], truncated=[], absent=[(1, 0), (1, 1)], actions=[[0, 0], [0, 0]],
        last_absent=(0, 1), shown=[(0, 0), (0, 1)],
    )  # fmt: skip
    learner = paying_poca(goes_on)
    batch = learner.batch(data)
    np.testing.assert_allclose(batch.returns[0], [0, 11 if goes_on else 9], atol=1e-5)
    # Where one ends by the rules while the other is cut off, the group is worth what that one sees.
    first, second = data.terminated & [True, False], data.terminated & [False, True]
    data = replace(data, terminated=first, shown=first, truncated=second)
    asked, estimates = [], learner.group_estimates

    def told(*what):
        asked.append(what)
        return estimates(*what)

    learner.group_estimates = told
    batch = learner.batch(data)
    np.testing.assert_allclose(batch.returns[0], [0.5 * 2, 11], atol=1e-5)
    (final, _, members, *_) = asked[-1]
    assert (final["obs_0"] @ np.arange(1, NUMBERS + 1)).tolist() == [0, 7] and members.tolist() == [[False, True]]


@pytest.mark.parametrize("shown", [False, True])
def test_of_sac(shown: bool) -> None:
    learner, data = sac("hyperparameters.batch_size=8", "network_settings.hidden_units=8"), ended(shown)
    learner.buffer = ReplayBuffer(SPEC, 8, renews=True)
    learner.buffer.add(data, usable_decisions(data), data.rewards)
    rows = np.arange(3)
    assert learner.buffer.terminated[rows].tolist() == [True, True, False]
    assert learner.buffer.renewed is not None
    assert learner.buffer.renewed[rows].tolist() == [shown, True, False]
    found = learner._decisions(rows)
    assert found.known.tolist() == [shown, shown, True]
    following = found.following["obs_0"] @ np.arange(1, NUMBERS + 1)
    assert following[1:].tolist() == [7 if shown else 3, 8] and following[0] == (6 if shown else 0)
    older = learner.buffer.state_dict()
    again = ReplayBuffer(SPEC, 8, renews=True)
    again.load_state_dict(older)
    assert again.shown is not None and again.shown[rows].tolist() == [shown, shown, True]
    del older["rows"]["shown"]
    again.load_state_dict(older)
    assert not again.shown.any() and again.size == 3
    with pytest.raises(ValueError, match=r"replay buffer: \d+ rows of 8"):  # before there is room made for so many
        again.load_state_dict({**older, "size": 10**18})
