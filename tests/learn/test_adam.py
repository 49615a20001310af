"""The compiled optimiser against torch's."""

import numpy as np
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


def test_two_threads_find_the_gradient_of_one():
    generator = torch.Generator().manual_seed(0)
    parameters = FlatParameters({"a": (3, 4, kaiming())}, dtype=torch.float32, generator=generator)
    x = torch.randn(10, 4, generator=generator)

    def part(index, share):
        y = torch.nn.functional.linear(x[index], parameters.tensors["a_weight"], parameters.tensors["a_bias"])
        return Part(parameters.backward([y], [torch.full_like(y, share / len(index))]), (float(y.detach().mean()),))

    found = {}
    for threads in (1, 2, 3):
        (mean,) = DataParallel(parameters, threads).gradient(np.arange(10), part)
        found[threads] = (mean, parameters.gradient.clone())
    for threads in (2, 3):
        assert abs(found[threads][0] - found[1][0]) < 1e-6
        torch.testing.assert_close(found[threads][1], found[1][1])
