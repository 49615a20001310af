"""Products by whole numbers: what is rounded and how, that sums are exact, and who learns by them."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 (torch's own convention)

from palus.config import load_run
from palus.config.network import NetworkSettings
from palus.nn import int16
from palus.nn.int16 import MOST, SPAN, Int16Weights, product
from palus.nn.layers import Activate, Chain, Linear
from palus.nn.network import Network
from palus.train import Run
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec

RESULTS = "checkpoint_settings.results_dir"
pytestmark = pytest.mark.skipif(not int16.AVAILABLE, reason="such products take a CPU with AVX2")


def case(rows, inner=320, columns=288, seed=0):
    """x, weight, bias and a slope."""
    random = torch.Generator().manual_seed(seed)
    shapes = (rows, inner), (columns, inner), (columns,), (rows, columns)
    return [torch.randn(*shape, generator=random) for shape in shapes]


def coded(x):
    """Codes and scales of rows, as the module's head says."""
    scales = (np.abs(x).max(1) / np.float32(MOST)).astype(np.float32)
    per = np.float32(MOST) / np.maximum(np.abs(x).max(1), np.float32(1e-30))
    return np.floor(x * per[:, None] + np.float32(MOST + 0.5)).astype(np.int64) - MOST, scales


def multiplied(rows, of_rows, columns, of_columns, before):
    """before + rows @ columns^T, by codes: exact whole numbers of each span, added up in float32."""
    out = np.broadcast_to(before, (len(rows), len(columns))).astype(np.float32)
    for first in range(0, rows.shape[1], SPAN):
        part = slice(first, first + SPAN)
        whole = (rows[:, part] @ columns[:, part].T).astype(np.float32)
        out = out + whole * (of_rows[:, None] * of_columns)
    return out


def gradients(x, weight, bias, slope):
    """Of product: by x, weight and bias."""
    leaves = [leaf.clone().requires_grad_() for leaf in (x, weight, bias)]
    return torch.autograd.grad(product(*leaves, Int16Weights(weight)), leaves, slope)


@pytest.mark.parametrize("rows", [1, 7, 131])
def test_a_product_is_that_of_the_codes_to_the_bit(rows):
    x, weight, bias, _ = case(rows)
    expected = multiplied(*coded(x.numpy()), *coded(weight.numpy()), bias.numpy())
    with torch.no_grad():
        np.testing.assert_array_equal(product(x, weight, bias, Int16Weights(weight)).numpy(), expected)


@pytest.mark.parametrize("rows", [1, 7, 131])
def test_gradients_are_those_of_the_codes_to_the_bit(rows):
    x, weight, bias, slope = case(rows)
    by_x, by_weight, by_bias = gradients(x, weight, bias, slope)
    (of_x, x_scales), (of_weight, weight_scales), ones = coded(x.numpy()), coded(weight.numpy()), np.ones(320, "f4")
    scaled = coded(slope.numpy() * weight_scales)
    np.testing.assert_array_equal(by_x.numpy(), multiplied(*scaled, of_weight.T, ones, np.zeros(320, "f4")))
    scaled = np.ascontiguousarray((slope.numpy() * x_scales[:, None]).T)
    scales = (np.abs(scaled).max(1) / np.float32(MOST)).astype(np.float32)
    codes = np.floor(scaled * (np.float32(1) / scales)[:, None] + np.float32(MOST + 0.5)).astype(np.int64) - MOST
    np.testing.assert_array_equal(by_weight.numpy(), multiplied(codes, scales, of_x.T, ones, np.zeros(320, "f4")))
    torch.testing.assert_close(by_bias, slope.sum(0), rtol=1e-5, atol=1e-5)


def test_what_is_lost_is_a_few_parts_in_ten_thousand():
    x, weight, bias, slope = case(300)
    exact = [leaf.double().requires_grad_() for leaf in (x, weight, bias)]
    found = product(x, weight, bias, Int16Weights(weight)), *gradients(x, weight, bias, slope)
    true = torch.nn.functional.linear(*exact)
    for own, other in zip(found, (true, *torch.autograd.grad(true, exact, slope.double())), strict=True):
        assert (own - other).norm() < 5e-4 * other.norm()


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_largest_sums_fit(sign):
    x, weight, bias, slope = (torch.full_like(tensor, 3.0) for tensor in case(300))
    found = product(x, sign * weight, bias, Int16Weights(sign * weight))
    torch.testing.assert_close(found, torch.full_like(found, sign * 9.0 * 320 + 3.0))
    by_x, by_weight, _ = gradients(x, sign * weight, bias, slope)
    torch.testing.assert_close(by_x, torch.full_like(by_x, sign * 9.0 * 288))
    torch.testing.assert_close(by_weight, torch.full_like(by_weight, 9.0 * 300))


def test_a_row_does_not_depend_on_the_others():
    x, weight, bias, _ = case(50)
    weights = Int16Weights(weight)
    whole = product(x, weight, bias, weights)
    for rows in (slice(3, 4), slice(10, 33)):
        assert torch.equal(product(x[rows].contiguous(), weight, bias, weights), whole[rows])


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_is_not_hidden(wrong):
    x, weight, bias, slope = case(20)
    x[4, 7] = wrong
    found = product(x, weight, bias, Int16Weights(weight))
    assert not found[4].isfinite().any() and found[:4].isfinite().all() and found[5:].isfinite().all()
    assert not gradients(x, weight, bias, slope)[1].isfinite().any()
    x, _, _, slope = case(20)
    slope[4, 7] = wrong
    by_x, by_weight, by_bias = gradients(x, weight, bias, slope)
    assert not by_x[4].isfinite().any() and by_x[5:].isfinite().all()
    assert not by_weight[7].isfinite().any() and by_weight[:7].isfinite().all() and by_weight[8:].isfinite().all()
    assert not by_bias[7].isfinite()


def test_small_numbers_have_the_codes_of_large_ones():
    """Slopes of a minibatch's mean are a millionth and less."""
    x, weight, bias, slope = case(20)
    weights, none, factor = Int16Weights(weight), torch.zeros_like(bias), 2.0**-40
    assert torch.equal(product(x * factor, weight, none, weights), product(x, weight, none, weights) * factor)
    for small, large in zip(gradients(x, weight, bias, slope * factor), gradients(x, weight, bias, slope), strict=True):
        assert torch.equal(small, large * factor)


def test_zeros_and_numbers_that_are_nearly_zero_are_no_trouble():
    x, weight, bias, slope = case(20)
    for factor in (0.0, 1e-36):
        found = product(x * factor, weight, bias, Int16Weights(weight))
        torch.testing.assert_close(found, bias.expand(20, -1))
        assert all(gradient.isfinite().all() for gradient in gradients(x, weight, bias, slope * factor))


def test_layers_follow_their_weights():
    layer = Linear(320, 288)
    x, weight, _, slope = case(20)
    layer.coded = Int16Weights(layer.weight)
    with torch.no_grad():
        before = layer(x)
        layer.weight.copy_(weight)
        layer.pack()
        assert torch.equal(layer(x), product(x, weight, layer.bias, Int16Weights(weight)))
    assert not torch.equal(layer(x), before)
    assert torch.equal(torch.autograd.grad(layer(x.requires_grad_()), x, slope)[0], gradients(*case(20))[0])


def test_a_run_learns_by_codes_where_it_is_told_to_and_acts_in_fp32(tmp_path):
    networks = []
    for path in ("highest", "int16"):
        settings = (f"palus.matmul={path}", "palus.threads=1", "palus.num_matches=1", "env_settings.seed=1")
        (trainee,) = Run(load_run("soccertwos", (*settings, f"{RESULTS}={tmp_path / path}"))).trainees
        networks.append(trainee.learner.network)
    spec = networks[0].spec
    coded = [layer for layer in networks[1].modules() if isinstance(layer, Linear) and layer.coded is not None]
    assert len(coded) == 5  # the policy's second one, two of attention, two behind it
    seen, none = {o.name: torch.rand(16, *o.shape) for o in spec.observations}, torch.empty(16, 0)
    assert torch.equal(*(network.act(seen, none)[0] for network in networks))
    inputs = networks[0].inputs({name: x.numpy() for name, x in seen.items()})
    with torch.no_grad():
        exact, own = (network(inputs, none, torch.ones(1, 16))[0] for network in networks)
    assert not torch.equal(exact, own)
    torch.testing.assert_close(exact, own, rtol=0, atol=5e-3 * float(exact.abs().max()))


def test_results_may_be_changed_in_place():
    layer = Chain(Linear(320, 288), Activate("elu"))
    layer[0].coded = Int16Weights(layer[0].weight)
    x = case(20)[0]
    (slope,) = torch.autograd.grad(layer(x).sum(), layer[0].bias)
    exact = torch.autograd.grad(F.elu(F.linear(x, layer[0].weight, layer[0].bias)).sum(), layer[0].bias)[0]
    torch.testing.assert_close(slope, exact, rtol=1e-2, atol=1e-2)


def test_a_layer_that_reads_observations_does_not_multiply_codes():
    spec = BehaviorSpec("", (ObservationSpec("seen", (512,)),), ActionSpec((Discrete(4),)))
    network = Network(spec, NetworkSettings(hidden_units=512), torch.Generator().manual_seed(0))
    network.learn_in_int16()
    coded = [layer.in_features for layer in network.modules() if isinstance(layer, Linear) and layer.coded is not None]
    assert coded == [512]  # the second one of two


def test_wide_layers_of_whole_panels_gain_from_it():
    assert Int16Weights.fit(torch.zeros(256, 512)) and Int16Weights.fit(torch.zeros(288, 256))
    for narrow_or_odd in ((224, 512), (512, 224), (270, 512), (512, 272)):
        assert not Int16Weights.fit(torch.zeros(narrow_or_odd))


def test_a_layer_that_is_given_no_rows_has_no_gradient():
    layer = Linear(256, 256)
    layer.coded = Int16Weights(layer.weight)
    layer.pack()
    x = torch.zeros(0, 256, requires_grad=True)
    for slope in torch.autograd.grad(layer(x).sum(), [layer.weight, layer.bias]):
        assert not slope.any()
