"""Rows that kernels write in bfloat16 are those of torch, to the bit."""

from __future__ import annotations

import numpy as np
import torch

from palus.nn.bfloat16 import kernel_view, load_row, store_row


def stored(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(len(x), dtype=torch.bfloat16)
    store_row(x.numpy(), kernel_view(out))
    return out


def test_numbers_are_rounded_to_the_nearest_and_in_the_middle_to_the_even_one() -> None:
    # Between 1 and 2 a step is 1 / 128: a quarter, a half and three quarters of one beyond 1, and beyond 1 + 1 / 128.
    step, sides = 2.0**-7, torch.tensor([[1.0], [-1.0]])
    x = 1.0 + step * torch.tensor([0.25, 0.5, 0.75, 1.25, 1.5, 1.75])
    expected = 1.0 + step * torch.tensor([0.0, 0.0, 1.0, 1.0, 2.0, 2.0])
    for side in sides:
        assert torch.equal(stored(side * x).float(), side * expected)


def test_rows_of_all_sizes_are_stored_as_torch_does_and_read_back_exactly() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(20_000, generator=draw) * 10.0 ** torch.randint(-37, 37, (20_000,), generator=draw)
    x[:6] = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), 3.4e38, 1e-40])
    found, row = stored(x), np.empty(len(x), np.float32)
    assert torch.equal(found.view(torch.int16), x.bfloat16().view(torch.int16))
    load_row(kernel_view(found), row)
    assert torch.equal(torch.from_numpy(row), found.float())
    assert stored(torch.tensor([float("nan")])).isnan().all()
