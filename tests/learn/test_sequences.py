"""Sequences of a recurrent policy: how a rollout is cut, and that they learn what the whole rollout would teach."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from formulas import surrogate_formula
from readable import advantages_of
from toys import Play, Recall, behavior_of

from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.returns import kept_memory, normalized
from palus.learn.sequences import Sequences

ONE_STEP = ("hyperparameters.num_epoch=1", "hyperparameters.batch_size=1024", "hyperparameters.beta=0.01")


def recurrent(length, *more):
    memory = f"network_settings.memory={{memory_size: 8, sequence_length: {length}}}"
    learner = PPO(behavior_of("ppo", memory, *ONE_STEP, *more), Recall.spec, torch.float32, 3)
    play = Play(learner, Recall(12))
    play.collect()
    return learner, play.collect()


def whole(learner, rollout):
    """Parameters [T B, L] and values [T B] of a network that plays all of the rollout, with gradients."""
    T, B = rollout.active.shape
    inputs = learner.network.inputs({"obs": rollout.observations["obs"][:-1].reshape(T * B, 3)})
    return learner.network(inputs, torch.from_numpy(rollout.states), torch.from_numpy(kept_memory(rollout)))[:2]


def test_stretches_by_hand():
    # Five decisions of two rows in stretches of 2; row 1 has nothing usable in the middle one.
    usable = np.ones((5, 2), np.bool_)
    usable[2:4, 1] = usable[0, 0] = False
    cut = Sequences(usable, 2)
    assert cut.numbers.tolist() == [0, 1, 2, 4, 5]
    index, counts = cut.decisions(np.array([0, 2, 5]))
    assert index.tolist() == [[0, 4, 9], [2, 6, 9]]  # the last stretch has one decision, t = 4 of row 1
    assert counts.tolist() == [[False, True, True], [True, True, False]]


def test_without_memory_a_stretch_is_a_decision():
    usable = np.random.default_rng(0).random((6, 4)) < 0.7
    cut = Sequences(usable, 1)
    assert cut.numbers.tolist() == np.flatnonzero(usable).tolist()
    index, counts = cut.decisions(cut.numbers)
    assert index.tolist() == [cut.numbers.tolist()]
    assert counts.all()


@pytest.mark.parametrize(("setting", "length"), [("sequence_length: null", 80), ("sequence_length: 64", 64)])
def test_a_sequence_is_never_longer_than_the_rollout_and_without_a_length_the_whole_of_it(setting, length):
    learner = PPO(
        behavior_of("ppo", f"network_settings.memory={{memory_size: 8, {setting}}}"), Recall.spec, torch.float32, 0
    )
    long, short = (SimpleNamespace(active=np.ones((T, 2), np.bool_)) for T in (80, 10))
    assert (learner.sequence_length(long), learner.sequence_length(short)) == (length, 10)


@pytest.mark.parametrize("length", [3, 8])
def test_a_rollout_is_replayed_as_it_was_played(length):
    learner, rollout = recurrent(length)
    values, states = learner.replay(rollout, length)
    assert states.shape == (-(-8 // length), 12, 16)  # an LSTM each for policy and value
    np.testing.assert_array_equal(states[0], rollout.states)
    _, expected = whole(learner, rollout)
    values = values[..., 0]
    np.testing.assert_allclose(values, expected.detach().view(8, 12).numpy(), atol=1e-6)
    np.testing.assert_allclose(values, rollout.values, atol=1e-6)  # the weights are those that acted


@pytest.mark.parametrize(("length", "threads"), [(8, 1), (64, 1), (8, 2)])
def test_a_whole_sequence_follows_the_gradient_of_the_loss_as_printed(length, threads):
    learner, rollout = recurrent(length)
    active = rollout.active.copy()
    active[4:, 5] = False  # an agent that is gone from decision 4 on
    terminated = rollout.terminated.copy()
    terminated[3, 5] = True
    rollout = replace(rollout, active=active, terminated=terminated)
    used = torch.from_numpy(active.ravel())
    parameters, values = whole(learner, rollout)
    advantages, targets = advantages_of(learner, rollout, 8)
    acted = (torch.from_numpy(x.reshape(96, -1))[used] for x in (rollout.actions, rollout.log_probs))
    found = surrogate_formula(
        parameters[used], *acted, torch.from_numpy(normalized([advantages[active]], sum)[0]), learner.spec.actions, 0.2
    )
    critic = (torch.from_numpy(targets[active]) - values[used, 0]).square().mean()
    loss = found.loss + 0.5 * critic - 0.01 * found.entropy
    weights = learner.network.weights
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(weights.tensors.values()))])
    updated, _ = recurrent(length)
    if threads > 1:
        updated = PPO(updated.behavior, Recall.spec, torch.float32, 3, threads)
    tags = updated.update(rollout, 0)
    torch.testing.assert_close(updated.network.weights.gradient, expected, atol=2e-6, rtol=1e-3)
    assert tags["Losses/Value Loss"] == pytest.approx(critic.item(), rel=1e-4)


def test_padding_and_cut_memory_change_no_mean():
    # The same rollout in stretches of 3, 3 and 2: the losses at the start are those of the whole.
    tags = []
    for length in (3, 8):
        learner, rollout = recurrent(length)
        tags.append(learner.update(rollout, 0))
    assert tags[0] == pytest.approx(tags[1], rel=1e-4, abs=1e-6)


class Mates(Recall):
    """Two of a group, who are asked nothing of each other."""

    group_size = 2


@pytest.mark.parametrize(
    ("make", "toy", "batch", "steps"), [(PPO, Recall(4), 8, 4), (PPO, Recall(4), 7, 8), (POCA, Mates(8), 16, 4)]
)
def test_a_minibatch_has_as_many_decisions_as_the_run_file_says_in_whole_sequences(make, toy, batch, steps):
    """Of four rows, or groups of two, eight decisions each are eight sequences of four."""
    sizes = "hyperparameters.num_epoch=1", f"hyperparameters.batch_size={batch}"
    trainer = "ppo" if make is PPO else "poca"
    settings = behavior_of(trainer, "network_settings.memory={memory_size: 8, sequence_length: 4}", *sizes)
    learner = make(settings, toy.spec, torch.float32, 0)
    learner.update(Play(learner, toy).collect(), 0)
    assert learner.network.version == steps


@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_a_saved_learner_continues_bit_for_bit(make, trainer):
    settings = ("network_settings.memory={memory_size: 8, sequence_length: 3}", "network_settings.normalize=true")
    one, two = (make(behavior_of(trainer, *settings), Recall.spec, torch.float32, seed) for seed in (0, 1))
    play = Play(one, Recall(12))
    one.update(play.collect(), 0)
    two.load_state_dict(one.state_dict())
    data = play.collect()
    assert one.update(data, 1) == two.update(data, 1)
    assert torch.equal(one.network.weights.master, two.network.weights.master)
    assert one.state_dict()["version"] == two.state_dict()["version"] > 0
