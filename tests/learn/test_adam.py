"""The compiled optimiser against torch's."""

import torch

from palus.learn.adam import Adam
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
