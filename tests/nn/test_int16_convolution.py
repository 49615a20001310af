"""Convolutions by codes: the right numbers, nothing lost but what is rounded, nothing hidden."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from palus.nn import int16
from palus.nn.int16 import MOST, Int16Weights
from palus.nn.int16_convolution import convolution, fits, rows_of
from palus.nn.layers import Convolution

pytestmark = pytest.mark.skipif(not int16.AVAILABLE, reason="such products take a CPU with AVX2")
SHAPES = [
    # pictures, channels, height, width, outputs, kernel, stride, padding
    (5, 3, 72, 40, 32, 8, 4, 0),  # several pictures at a time
    (3, 32, 35, 33, 96, 3, 1, 1),  # one at a time, of an odd number of places
    (2, 32, 9, 11, 64, 3, 2, 1),
    (1, 8, 4, 4, 32, 4, 2, 0),  # one place
]


def case(B, C, H, W, N, size, stride, padding, last=True):
    """x, weight, bias, slope; stride and padding. last: pictures with their channels last."""
    random = torch.Generator().manual_seed(0)
    x, weight, bias = (torch.randn(*shape, generator=random) for shape in ((B, C, H, W), (N, C, size, size), (N,)))
    slope = torch.randn(F.conv2d(x, weight, bias, stride, padding).shape, generator=random)
    if last:
        x, slope = (tensor.contiguous(memory_format=torch.channels_last) for tensor in (x, slope))
    return (x, weight, bias, slope), stride, padding


def coded(x, weight, bias, stride, padding):
    return convolution(x, weight, bias, Int16Weights(rows_of(weight)), stride, padding)


def gradients(tensors, stride, padding, function=coded):
    """By x, weight and bias."""
    *leaves, slope = tensors
    leaves = [leaf.detach().clone().requires_grad_() for leaf in leaves]
    return torch.autograd.grad(function(*leaves, stride, padding), leaves, slope)


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("shape", SHAPES)
def test_results_and_gradients_are_those_of_torch_but_for_rounding(shape, last):
    tensors, *sides = case(*shape, last=last)
    found = (coded(*tensors[:3], *sides), *gradients(tensors, *sides))
    exact = [tensor.double() for tensor in tensors]
    exact = F.conv2d(*exact[:3], *sides), *gradients(exact, *sides, function=F.conv2d)
    for own, other in zip(found, exact, strict=True):
        assert own.shape == other.shape and (own - other).norm() < 8e-4 * other.norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_whole_numbers_are_multiplied_exactly(shape):
    """The largest of a picture, of an output's weights and of its slopes has the largest code: nothing is rounded."""
    tensors, *sides = case(*shape)
    random = np.random.default_rng(1)
    for tensor in tensors:
        tensor.copy_(torch.from_numpy(random.integers(-MOST, MOST + 1, tuple(tensor.shape)).astype(np.float32)))
    x, weight, bias, slope = tensors
    x[:, :, 0, 0] = weight[:, :, 0, 0] = MOST
    bias.zero_()
    slope[:, :, 0, 0] = MOST
    exact = F.conv2d(x.double(), weight.double(), None, *sides)
    assert (coded(x, weight, bias, *sides) - exact).abs().max() < 1e-6 * exact.abs().max()
    found = gradients(tensors, *sides)[1]
    exact = gradients([tensor.double() for tensor in tensors], *sides, function=F.conv2d)[1]
    assert (found - exact).abs().max() < 1e-6 * exact.abs().max()


def test_pictures_are_rounded_to_the_nearest_code():
    (x, weight, bias, _), *sides = case(*SHAPES[2])
    random = np.random.default_rng(1)
    for tensor in (x, weight):
        tensor.copy_(torch.from_numpy(random.integers(1 - MOST, MOST, tuple(tensor.shape)).astype(np.float32)))
    x[:, :, 0, 0] = weight[:, :, 0, 0] = MOST  # so a code stands for itself
    beside = x + 0.375 * torch.from_numpy(random.choice([-1.0, 1.0], tuple(x.shape)).astype(np.float32))
    beside[:, :, 0, 0] = MOST
    assert torch.equal(coded(beside, weight, bias, *sides), coded(x, weight, bias, *sides))


def test_the_largest_sums_fit():
    (x, weight, bias, slope), *sides = case(*SHAPES[1])
    tensors = [torch.full_like(x, 3.0), torch.full_like(weight, 2.0), bias, torch.full_like(slope, -3.0)]
    torch.testing.assert_close(coded(*tensors[:3], *sides), F.conv2d(*tensors[:3], *sides))
    for own, other in zip(gradients(tensors, *sides), gradients(tensors, *sides, function=F.conv2d), strict=True):
        torch.testing.assert_close(own, other)


def test_pictures_are_scaled_each_by_itself():
    """A dark one beside a bright one keeps its details where its slopes are large."""
    (x, weight, bias, slope), *sides = case(*SHAPES[0])
    x[0] *= 1e-6
    slope[0] *= 1e6
    found, exact = (gradients((x, weight, bias, slope), *sides, function=f)[1] for f in (coded, F.conv2d))
    assert (found - exact).norm() < 8e-4 * exact.norm()


@pytest.mark.parametrize("wrong", ["x", "slope"])
def test_what_is_no_number_is_not_hidden(wrong):
    (x, weight, bias, slope), *sides = case(*SHAPES[0])
    (x if wrong == "x" else slope)[3, 1, 2, 2] = float("nan")
    by_weight = gradients((x, weight, bias, slope), *sides)[1]
    spoilt = by_weight.isnan().flatten(1).all(1)
    assert spoilt.all() if wrong == "x" else spoilt.tolist() == [output == 1 for output in range(len(spoilt))]


def test_a_picture_does_not_depend_on_the_others():
    (x, weight, bias, slope), *sides = case(*SHAPES[0])
    whole, by_x = coded(x, weight, bias, *sides), gradients((x, weight, bias, slope), *sides)[0]
    assert torch.equal(coded(x[1:3], weight, bias, *sides), whole[1:3])
    assert torch.equal(gradients((x[1:3], weight, bias, slope[1:3]), *sides)[0], by_x[1:3])


def test_rows_of_a_kernel_come_in_runs_and_outputs_in_panels():
    assert fits(torch.zeros(32, 4, 8, 8)) and fits(torch.zeros(64, 32, 3, 3))
    assert not fits(torch.zeros(32, 3, 3, 3)) and not fits(torch.zeros(33, 32, 3, 3))
    assert not fits(torch.zeros(32, 8, 3, 3))  # 72 numbers are no whole panels


def test_a_layer_computes_so_where_it_learns_with_its_newest_weights():
    layer = Convolution(3, 32, 8, stride=4)
    x, weight = torch.rand(4, 3, 72, 40), layer.weight
    layer.coded = Int16Weights(rows_of(weight))
    learned = layer(x)
    assert torch.equal(learned, coded(x, weight, layer.bias, 4, 0))
    with torch.no_grad():
        assert torch.equal(layer(x), learned)
        weight.mul_(2.0)
        layer.pack()
        assert torch.equal(layer(x), coded(x, weight, layer.bias, 4, 0))
    with torch.inference_mode():
        assert torch.equal(layer(x), F.conv2d(x, weight, layer.bias, 4))


@pytest.mark.parametrize("shape", SHAPES)
def test_a_black_picture_gives_biases_and_gradients_of_the_others_alone(shape):
    (x, weight, bias, slope), *sides = case(*shape)
    x[0] = 0.0
    found = coded(x, weight, bias, *sides)
    assert torch.equal(found[0], bias[:, None, None].expand_as(found[0]))
    own, other = (gradients((x, weight, bias, slope), *sides, function=f)[1] for f in (coded, F.conv2d))
    assert (own - other).norm() <= 8e-4 * other.norm()
