"""The compiled optimiser against torch's."""

import numpy as np
import pytest
import torch

from palus.learn.adam import Adam
from palus.learn.learner import DataParallel, Part
from palus.nn.parameters import FlatParameters, kaiming


def test_steps_equal_torch_adam():
    generator = torch.Generator().manual_seed(0)
    ours = FlatParameters({"a": (7, 5, kaiming())}, dtype=torch.float32, generator=generator)
    theirs = ours.master.clone().requires_grad_()
    reference = torch.optim.Adam([theirs], lr=1.0)
    optimizer = Adam(ours)
    for step in range(20):
        ours.gradient.normal_(0.0, 10.0 ** (step % 5 - 3), generator=generator)
        theirs.grad = ours.gradient.clone()
        reference.param_groups[0]["lr"] = 0.001 * (step + 1)
        reference.step()
        optimizer.step(0.001 * (step + 1))
    torch.testing.assert_close(ours.master, theirs.detach(), atol=2e-6, rtol=1e-4)


def test_the_working_copy_follows_the_master():
    parameters = FlatParameters(
        {"a": (3, 2, kaiming())}, dtype=torch.bfloat16, generator=torch.Generator().manual_seed(0)
    )
    parameters.gradient.fill_(1.0)
    Adam(parameters).step(0.5)
    assert torch.equal(
        parameters.tensors["a_weight"].detach().float().flatten(), parameters.master[:6].bfloat16().float()
    )
    assert parameters.tensors["a_bias"].tolist() == [-0.5, -0.5, -0.5]


@pytest.mark.parametrize("threads", [2, 3])
def test_several_threads_take_the_step_of_one(threads):
    x = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))

    def three_steps(threads):
        generator = torch.Generator().manual_seed(1)
        layers = {"a": (3, 4, kaiming()), "b": (2, 3, kaiming()), "c": (1, 2, kaiming())}
        parameters = FlatParameters(layers, dtype=torch.float32, generator=generator)
        parallel = DataParallel(parameters, Adam(parameters), threads)

        def part(index, minibatch):
            y = x[index]
            for name in layers:
                y = torch.nn.functional.linear(
                    y, parameters.tensors[f"{name}_weight"], parameters.tensors[f"{name}_bias"]
                )
            gradients = parameters.backward([y], [torch.full_like(y, 1.0 / len(minibatch))])
            return Part(gradients, (float(y.detach().sum()) / len(minibatch),))

        return [parallel.step(np.arange(10), part, 0.01)[0] for _ in range(3)], parameters.master

    means, weights = three_steps(threads)
    expected_means, expected_weights = three_steps(1)
    np.testing.assert_allclose(means, expected_means, atol=1e-6)
    torch.testing.assert_close(weights, expected_weights)
