"""Torch's path, which GPUs take, against the compiled one: the same games, the same gradients, the same learning.

It runs where PALUS_TEST_DEVICE says (`places`), by default on the CPU. On torch's device `meta`, where there are shapes
and no numbers, it shows what a CUDA graph asks for: no shape depends on a number, none is read back, and nothing is
left behind on the CPU.
"""

import types
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from places import HERE
from sampled import appo_behavior
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from toys import Errand, Forbidden, Pictures, Play, Recall, Remember, behavior_of, curve

from palus.learn import kernels, returns
from palus.learn.appo import APPO
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.sac import SAC
from palus.nn.place import CPU, Placement
from palus.nn.running import RunningMoments, moments
from palus.types import Continuous, Discrete

META = Placement(torch.device("meta"), compiled=False)
LSTM = "network_settings.memory={memory_size: 32, sequence_length: 4}"
GRU = "network_settings.memory={kind: gru, memory_size: 16, sequence_length: 5}"
MIXED = (Discrete(2), Continuous(1, -2.0, 2.0))
IMAGES = "network_settings.vis_encode_type=match3"
NORMALIZE = "network_settings.normalize=true"
SHARED = "hyperparameters.shared_critic=true"
TRAINERS = pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
CASES = {
    "masks": (Forbidden, (NORMALIZE,)),
    "lstm": (Recall, (LSTM,)),
    "gru, lists, numbers": (lambda: Remember(*MIXED, listed=True), (GRU,)),
    "images": (lambda: Pictures(64), (IMAGES,)),
    "goals": (lambda: Errand(64), ()),
    "fewer than a minibatch": (lambda: Recall(4), ()),
}


def pair(make, behavior, toy, places=(CPU, HERE)):
    """A learner of each place, and a rollout that the first of them has played."""
    learners = [make(behavior, toy.spec, torch.float32, 0, place=place) for place in places]
    return *learners, Play(learners[0], toy).collect()


def same_update(ours, theirs, rollout):
    """One update by each path, the same to 1e-5: what it reports, and Adam's means, decayed sums of its gradients; of
    large ones to a few units in the last place."""
    found, expected = (learner.update(rollout, 0) for learner in (theirs, ours))
    assert found.keys() == expected.keys() and found
    for tag in found:
        assert found[tag] == pytest.approx(expected[tag], rel=1e-4, abs=1e-5), tag
    np.testing.assert_allclose(*(own.optimizer.state_dict()["mean"] for own in (theirs, ours)), rtol=1e-6, atol=1e-5)
    assert float(ours.optimizer.mean.abs().max()) > 1e-3


@pytest.mark.skipif(HERE.device.type == "cpu", reason="the CPU's memory is numpy's too")
def test_a_device_refuses_numpy_and_tensors_of_the_cpu():
    there = HERE.tensor(np.ones((2, 3), np.float32))
    assert (there @ there.T).sum().item() == 12
    with pytest.raises(TypeError, match="to numpy"):
        there.numpy()
    for mixed in (lambda: there + torch.ones(2, 3), lambda: there @ torch.ones(3, 2)):
        with pytest.raises(RuntimeError, match="device"):
            mixed()


@TRAINERS
@pytest.mark.parametrize("case", CASES)
def test_an_update_is_the_compiled_one(make, trainer, case):
    toy, more = CASES[case]
    same_update(*pair(make, behavior_of(trainer, *more, "hyperparameters.num_epoch=1"), toy()))


class Mates(Recall):
    """Two of a group, who are asked nothing of each other."""

    group_size = 2


@pytest.mark.parametrize("memory", [LSTM, GRU])
def test_an_update_of_groups_out_of_step_is_the_compiled_one_and_can_be_captured(memory):
    ours, theirs, rollout = pair(POCA, behavior_of("poca", memory, "hyperparameters.num_epoch=1"), Mates())
    waits = np.zeros_like(rollout.active)
    waits[1:, ::2] = np.random.default_rng(0).random(waits[1:, ::2].shape) < 0.4
    same_update(ours, theirs, replace(rollout, active=rollout.active & ~waits, paused=waits))
    bare = POCA(ours.behavior, Mates.spec, torch.float32, 0, place=META)
    bare.device_steps.held |= {name: tensor.to("meta") for name, tensor in theirs.device_steps.held.items()}
    with NothingElsewhere():
        bare.device_steps.work(bare.objective)
    theirs.load_state_dict(ours.state_dict())
    same_update(ours, theirs, rollout)  # in step again


def test_statistics_of_pictures_are_those_of_the_cpu_to_the_bit():
    ours, theirs, rollout = pair(PPO, behavior_of("ppo", IMAGES, NORMALIZE), Pictures(64))
    rollout.active[3, 5] = False
    seen = rollout.observations["eye"][:-1][rollout.active]
    expected = RunningMoments(seen[0].size)
    expected.update(*moments(seen.reshape(len(seen), -1), np.arange(len(seen)), 255.0), len(seen))
    for learner in (ours, theirs):
        learner.observe(learner.resident(rollout), rollout.active)
        found = learner.network.scalers["eye"].moments
        np.testing.assert_array_equal(found.mean, expected.mean)
        np.testing.assert_array_equal(found.variance, expected.variance)


@pytest.mark.parametrize("more", [(), ("hyperparameters.advantages=vtrace", "hyperparameters.normalize_returns=false")])
def test_an_update_of_appo_is_the_compiled_one(more):
    same_update(*pair(APPO, appo_behavior(*more), Recall()))


SAC_SETTINGS = (
    "hyperparameters=null", "network_settings=null", "network_settings.hidden_units=8", "hyperparameters.batch_size=64",
    "hyperparameters.steps_per_update=500", "hyperparameters.buffer_init_steps=0",
)  # fmt: skip


@pytest.mark.parametrize(("toy", "more"), [(Forbidden(), ()), (Remember(*MIXED), (LSTM,))], ids=["masks", "lstm"])
def test_an_update_of_sac_is_the_compiled_one(toy, more):
    same_update(*pair(SAC, behavior_of("sac", *SAC_SETTINGS, *more), toy))


class NothingElsewhere(TorchDispatchMode):
    """No operator may take or make a tensor that is on the CPU: indexing would bring it over, which waits."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for x in tree_leaves((args, kwargs, found)):
            assert not isinstance(x, torch.Tensor) or x.is_meta or not x.ndim, f"{func}: {tuple(x.shape)} on {x.device}"
        return found


@TRAINERS
@pytest.mark.parametrize("case", CASES)
def test_a_step_can_be_captured(make, trainer, case):
    toy, more = CASES[case]
    there, bare, rollout = pair(make, behavior_of(trainer, *more, "hyperparameters.num_epoch=1"), toy(), (HERE, META))
    there.update(rollout, 0)
    bare.device_steps.held |= {name: tensor.to("meta") for name, tensor in there.device_steps.held.items()}
    with NothingElsewhere():
        bare.device_steps.work(bare.objective)
    where = {name: tensor.data_ptr() for name, tensor in there.device_steps.held.items()}
    there.update(rollout, 0)
    assert where == {name: tensor.data_ptr() for name, tensor in there.device_steps.held.items()}


def test_reading_a_number_back_cannot_be_captured():
    there, bare, rollout = pair(PPO, behavior_of("ppo"), Forbidden(), (HERE, META))
    there.update(rollout, 0)
    bare.device_steps.held |= {name: tensor.to("meta") for name, tensor in there.device_steps.held.items()}

    def objective(held):
        wanted = bare.objective(held)
        return replace(wanted, means=[wanted.means[0] / held["shares"].sum().item(), *wanted.means[1:]])

    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        bare.device_steps.work(objective)


@pytest.mark.parametrize("rows", [1, 2, 37])
def test_returns_are_the_compiled_ones(rows):
    random, shape = np.random.default_rng(rows), (rows, 5)
    rewards, values, following = random.normal(size=(3, *shape)).astype(np.float32)
    ended, active = random.random(shape) < 0.2, random.random(shape) < 0.8
    values[~active] = np.nan  # of nobody's decision nothing may flow anywhere
    ratios = random.lognormal(size=shape).astype(np.float32)
    found = kernels.kernels_of(HERE)
    for ours, theirs, given in (
        (returns.gae, found.gae, (rewards, values, following, ended, active, 0.99, 0.95)),
        (returns.vtrace, found.vtrace, (ratios, rewards, values, following, ended, active, 0.99, 1.0, 0.9)),
        (returns.td_lambda, found.td_lambda, (rewards, following, ended, 0.99, 0.95)),
    ):
        np.testing.assert_allclose(theirs(*given), ours(*given), atol=1e-5)


@TRAINERS
def test_it_learns(make, trainer):
    learner = make(behavior_of(trainer), Forbidden.spec, torch.float32, 0, place=HERE)
    scores = curve(learner, Play(learner, Forbidden(64)), 25)
    assert scores[0] < -0.2
    assert np.mean(scores[-4:]) > -0.02


@TRAINERS
def test_a_checkpoint_goes_on_elsewhere(make, trainer):
    ours, theirs, rollout = pair(make, behavior_of(trainer, NORMALIZE), Forbidden())
    ours.update(rollout, 0)
    theirs.load_state_dict(ours.state_dict())
    theirs.update(rollout, 0)
    ours.update(rollout, 0)
    before, after = ours.state_dict(), theirs.state_dict()
    assert before["optimizer"]["steps"] == after["optimizer"]["steps"]
    np.testing.assert_allclose(after["optimizer"]["mean"], before["optimizer"]["mean"], atol=1e-5)
    for name, array in before["network"].items():
        assert isinstance(after["network"][name], np.ndarray)
        np.testing.assert_allclose(after["network"][name], array, atol=2e-3)  # where a gradient is almost 0
    ours.load_state_dict(after)


class Replayed:
    """A CUDA graph for machines without one: capturing runs nothing, replaying calls the work."""

    work = None

    def replay(self):
        self.work()


@pytest.mark.skipif(HERE.device.type == "cuda", reason="its steps are captured in every test")
@TRAINERS
def test_capturing_changes_nothing(make, trainer, monkeypatch):
    graphs, worked = [], []

    @contextmanager
    def capture(graph, capture_error_mode):
        assert capture_error_mode == "thread_local"
        graphs.append(graph)
        with monkeypatch.context() as patched:
            patched.setattr(learner.device_steps, "work", worked.append)
            yield
        graph.work = partial(learner.device_steps.work, learner.objective)

    nothing = types.SimpleNamespace(wait_stream=lambda other: None)
    plain, learner, rollout = pair(make, behavior_of(trainer, LSTM), Recall(), (HERE, HERE))
    for name, fake in {
        "device": nullcontext, "stream": nullcontext, "Stream": lambda: nothing, "graph": capture,
        "current_stream": lambda: nothing, "CUDAGraph": Replayed,
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(learner.device_steps, "captures", True)
    expected, found = (own.update(rollout, 0) for own in (plain, learner))
    assert (len(graphs), len(worked)) == (1, 1) and found == expected
    assert torch.equal(plain.network.weights.master, learner.network.weights.master)
