"""ELU in place: the same numbers and gradients as torch's, in every memory order."""

from __future__ import annotations

import pytest
import torch

from palus.nn.layers import elu, elu_


def test_every_bfloat16_number_becomes_what_torch_makes_of_it() -> None:
    every = torch.arange(65536, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    expected = torch.nn.functional.elu(every)
    torch.testing.assert_close(elu_(every.clone()), expected, rtol=0, atol=0, equal_nan=True)


def test_float32_numbers_of_every_size_are_within_a_few_roundings_of_the_truth() -> None:
    sizes = torch.logspace(-30, 30, 60001, dtype=torch.float64).float()
    every = torch.cat([-sizes, sizes, torch.tensor([0.0, float("inf"), -float("inf")])])
    truth = torch.where(every > 0, every.double(), torch.expm1(every.double()))
    torch.testing.assert_close(elu_(every.clone()).double(), truth, rtol=5e-7, atol=0)
    assert elu_(torch.tensor([float("nan")])).isnan()  # a fault is to be seen


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", ["contiguous", "channels last", "neither"])
def test_values_and_gradients_are_torchs(dtype: torch.dtype, order: str) -> None:
    x = torch.randn(2, 4, 6, 8, generator=torch.Generator().manual_seed(0)).to(dtype)
    if order == "channels last":
        x = x.contiguous(memory_format=torch.channels_last)
    elif order == "neither":
        x = x[:, :, ::2]
    slopes = torch.arange(x.numel(), dtype=torch.float32).view(x.shape).to(dtype)
    found = []
    for activation in (elu, torch.nn.ELU()):
        leaf = x.clone(memory_format=torch.preserve_format).requires_grad_()
        y = activation(leaf * 1.0)
        found.append((y, torch.autograd.grad(y, leaf, slopes)[0]))
    tolerance = 0.02 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(found[0], found[1], rtol=tolerance, atol=tolerance)


def test_it_works_in_place() -> None:
    x = torch.tensor([-1.0, 2.0], dtype=torch.bfloat16)
    assert elu_(x) is x
    assert x.tolist() == [-0.6328125, 2.0]
