"""The compiled optimiser against torch's."""

import numpy as np
import pytest
import torch

from palus.learn.adam import Adam
from palus.learn.learner import DataParallel
from palus.nn.parameters import FlatParameters


def layers(*sizes):
    """Linear layers with the same first weights every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        return torch.nn.Sequential(*(torch.nn.Linear(*size) for size in sizes))


def test_steps_equal_torch_adam():
    generator = torch.Generator().manual_seed(0)
    ours = FlatParameters(layers((5, 7)), torch.float32)
    theirs = ours.master.clone().requires_grad_()
    reference = torch.optim.Adam([theirs], lr=1.0)
    parallel = DataParallel(ours, Adam(ours), 1)
    for step in range(20):
        ours.gradient.normal_(0.0, 10.0 ** (step % 5 - 3), generator=generator)
        theirs.grad = ours.gradient.clone()
        reference.param_groups[0]["lr"] = 0.001 * (step + 1)
        reference.step()
        parallel.step(0.001 * (step + 1))
    torch.testing.assert_close(ours.master, theirs.detach(), atol=2e-6, rtol=1e-4)


def test_moments_of_another_size_are_refused():
    small, large = (Adam(FlatParameters(layers(size), torch.float32)) for size in ((2, 3), (3, 3)))
    own, others = large.state_dict(), small.state_dict()
    for name in ("mean", "square"):
        with pytest.raises(ValueError, match=r"moments of .* numbers; expected \(12,\)"):
            large.load_state_dict(own | {name: others[name]})


def test_the_working_copy_follows_the_master():
    network = layers((2, 3))
    torch.nn.init.zeros_(network[0].bias)
    parameters = FlatParameters(network, torch.bfloat16)
    parameters.gradient.fill_(1.0)
    DataParallel(parameters, Adam(parameters), 1).step(0.5)
    weight, bias = network[0].weight.detach(), network[0].bias
    assert torch.equal(weight.float().flatten(), parameters.master[:6].bfloat16().float())
    assert bias.tolist() == [-0.5, -0.5, -0.5]


@pytest.mark.parametrize("threads", [2, 3])
def test_several_threads_take_the_step_of_one(threads):
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))

    def three_steps(threads):
        network = layers((4, 3), (3, 2), (2, 1))
        weights = FlatParameters(network, torch.float32)
        parallel = DataParallel(weights, Adam(weights), threads)
        norms = []
        for _ in range(3):
            outputs = parallel.map(lambda piece: network(x[piece]), parallel.split(np.arange(10)))
            norms.append(parallel.gather([weights.backward([y], [torch.full_like(y, 0.1)]) for y in outputs]))
            parallel.step(0.01)
        return norms, weights.master

    norms, weights = three_steps(threads)
    expected_norms, expected_weights = three_steps(1)
    np.testing.assert_allclose(norms, expected_norms, rtol=1e-5)
    torch.testing.assert_close(weights, expected_weights)
