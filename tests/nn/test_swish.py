"""The kernels of swish against torch's own operators in double precision."""

import math

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from palus.nn.layers import Activate
from palus.nn.swish import swish, takes

AWAY_FROM_ZERO = 1e-28


def everywhere() -> torch.Tensor:
    """Numbers of all sizes, from where e^-x is nearly infinite to where it is nothing."""
    fine = torch.linspace(-95, 95, 20_001)
    return torch.cat([fine, fine * 1e-3, fine * 1e-20, torch.tensor([0.0, -0.0, 1e30, -80.0])])


def farthest(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest relative error; of what is nothing beside it, the absolute one."""
    size = truth.abs().clamp_min(AWAY_FROM_ZERO)
    return float(((found.double() - truth).abs() / size).max())


def test_it_is_x_times_sigmoid_to_the_last_bits() -> None:
    x = everywhere()
    truth = F.silu(x.double())
    assert farthest(swish(x), truth) < 3e-7
    assert torch.equal(x, everywhere())


def test_its_gradient_is_that_of_torch() -> None:
    x, weights = everywhere().requires_grad_(), torch.randn(60_007, generator=torch.Generator().manual_seed(0))
    wide = x.detach().double().requires_grad_()
    (found,) = torch.autograd.grad(swish(x), x, weights)
    (truth,) = torch.autograd.grad(F.silu(wide), wide, weights.double())
    # As torch's: where s is nearly 1, 1 - s is rounding, and x times that.
    assert float(((found.double() - truth) / weights).abs().max()) < 1.5e-6
    assert torch.equal(swish(x).detach(), swish(x.detach()))


def test_a_gradient_may_be_spread_and_be_differentiated_again() -> None:
    x = torch.randn(7, 5, dtype=torch.float32, generator=torch.Generator().manual_seed(1)).requires_grad_()
    (summed,) = torch.autograd.grad(swish(x).sum(), x)
    (truth,) = torch.autograd.grad(F.silu(x).sum(), x)
    torch.testing.assert_close(summed, truth)
    turned = torch.randn(5, 7, generator=torch.Generator().manual_seed(2)).T
    found, truth = (torch.autograd.grad(activate(x), x, turned)[0] for activate in (swish, F.silu))
    torch.testing.assert_close(found, truth)

    def penalty(activate: object) -> torch.Tensor:
        (slope,) = torch.autograd.grad(activate(x).pow(2).sum(), x, create_graph=True)  # type: ignore[operator]
        (found,) = torch.autograd.grad(slope.norm(), x)
        return found

    torch.testing.assert_close(penalty(swish), penalty(F.silu), rtol=1e-5, atol=1e-6)


def test_what_is_no_number_stays_none() -> None:
    found = swish(torch.tensor([float("nan"), float("inf"), 3.0]))
    assert found[0].isnan() and found[1] == float("inf") and float(found[2]) == pytest.approx(3 / (1 + math.exp(-3)))


@pytest.mark.parametrize("x", [torch.randn(4, 6).T, torch.randn(3, 4).bfloat16(), torch.empty(3, 4, device="meta")])
def test_other_formats_go_to_torch(x: torch.Tensor) -> None:
    assert not takes(x)
    own = Activate("swish", inplace=False)
    assert own(x).shape == x.shape
    if not x.is_meta:
        torch.testing.assert_close(own(x.clone()), F.silu(x))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("swish", [-0.2689414, 0.0, 1.7615942]),
        ("elu", [-0.6321206, 0.0, 2.0]),
        ("relu", [0.0, 0.0, 2.0]),
        ("leaky_relu", [-0.01, 0.0, 2.0]),
        ("tanh", [-0.7615942, 0.0, 0.9640276]),
    ],
)
@pytest.mark.parametrize("inplace", [False, True])
def test_activations_by_hand(kind, expected, inplace):
    x = torch.tensor([-1.0, 0.0, 2.0])
    torch.testing.assert_close(Activate(kind, inplace)(x), torch.tensor(expected))
    assert inplace or x.tolist() == [-1.0, 0.0, 2.0]
