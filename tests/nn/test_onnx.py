"""ONNX files answer what torch answers, for every encoder, core, head and mask; ML-Agents' interface; no chance at all
for what is forbidden."""

from __future__ import annotations

import json
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from palus.config.appo import AppoNetworkSettings
from palus.config.network import VISUAL_ENCODERS, NetworkSettings
from palus.errors import ModelError
from palus.export.unity_file import unity_gaps
from palus.nn.attention import AttentionCritic
from palus.nn.distributions import mode, told
from palus.nn.graph import is_unity_file
from palus.nn.network import Network
from palus.nn.running import RunningMoments
from palus.nn.twin_critic import TwinCritic
from palus.trust import Trust
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

SPEC = BehaviorSpec.of_vectors("SoccerTwos", (264, 72), (3, 3, 3))
IMAGE = ObservationSpec("obs", (3, 72, 128), "uint8")
SMALL_IMAGE = ObservationSpec("picture", (3, 40, 48), "uint8")
VECTOR = ObservationSpec("measurements", (23,))
OTHERS = ObservationSpec("others", (4, 5))
NUMBERS = BehaviorSpec.of_vectors("Team", (5, 3), (3, 2)).observations
GOALS = tuple(
    ObservationSpec(f"obs_{i}", shape, goal=goal)
    for i, (shape, goal) in enumerate([((3,), True), ((5,), False), ((1, 20, 20), True), ((2,), True)])
)
LISTS = tuple(ObservationSpec(f"obs_{i}", shape) for i, shape in enumerate([(4, 5), (3,), (2, 3)]))
PICTURE = (ObservationSpec("obs_0", (3, 40, 48)), ObservationSpec("obs_1", (2,)))
CHOICES = ActionSpec((Discrete(3), Discrete(2)))
MIXED = ActionSpec((Discrete(3), Continuous(2), Discrete(2)))
MASKED = ActionSpec((Continuous(2, -1.0, 1.0), Discrete(3), Discrete(2)), masked=True)
RANGES = ActionSpec((Continuous(2, -3.0, 1.0), Continuous(1), Continuous(1, 0.0)))
LSTM = {"kind": "lstm", "memory_size": 24, "num_layers": 2}
GRU = {"kind": "gru", "memory_size": 12, "num_layers": 2}
APART, JOINT = {"encoding": "apart"}, {"encoding": "joint"}
UNITY = JOINT | {"activation": "swish", "memory": None, "adaptive_deviation": False}
SAC = UNITY | {"memory": None, "squash": True, "adaptive_deviation": True}
TWINS = partial(TwinCritic, coefficient=1.0)
CASES: dict[str, tuple[tuple[ObservationSpec, ...], ActionSpec, dict[str, Any], Any]] = {
    "doom": ((IMAGE,), ActionSpec((Discrete(5),)), APART, "shared"),
    "measurements": ((IMAGE, VECTOR), CHOICES, APART, "shared"),
    "entities apart": ((OTHERS, VECTOR), MIXED, APART | {"memory": None}, "shared"),
    "entities joint": ((VECTOR, OTHERS, SMALL_IMAGE), MASKED, JOINT | {"memory": LSTM}, "separate"),
    "entities alone": ((OTHERS, ObservationSpec("more", (2, 3))), CHOICES, JOINT | {"memory": None}, "shared"),
    "lstm, two layers": ((VECTOR,), MIXED, APART | {"memory": LSTM, "activation": "swish"}, "shared"),
    "separate critic": ((VECTOR,), MIXED, APART | {"adaptive_deviation": False}, "separate"),
    "no core": ((VECTOR,), MIXED, APART | {"memory": None, "decoder_layers": (32, 16), "activation": "tanh"}, "shared"),
    "squashed": ((VECTOR,), ActionSpec((Continuous(3),)), APART | {"tanh_scale": 2.0, "memory": None}, "shared"),
    "free deviation": ((VECTOR,), MASKED, JOINT | {"adaptive_deviation": False, "memory": None}, "none"),
    "free deviations": ((VECTOR,), RANGES, JOINT | {"adaptive_deviation": False, "memory": None}, "none"),
    "unity": (NUMBERS, CHOICES, JOINT | {"memory": None, "activation": "swish"}, AttentionCritic),
    "unity, memory": (NUMBERS, MIXED, UNITY | {"memory": LSTM}, "separate"),
    "unity, entities": (LISTS, MASKED, UNITY, "separate"),
    "unity, entities, memory": (LISTS, MIXED, UNITY | {"memory": LSTM, "normalize": False}, "shared"),
    "unity, sac, memory": (NUMBERS, MASKED, SAC | {"memory": LSTM}, TWINS),
    "gru, masks": (NUMBERS, MASKED, JOINT | {"memory": GRU, "normalize": False}, "shared"),
    "unity, sac": (NUMBERS, MASKED, SAC, TWINS),
    "unity, sac, choices": (NUMBERS, CHOICES, SAC, TWINS),
    "unity, goals": (GOALS, MASKED, UNITY | {"memory": LSTM, "num_layers": 2, "vis_encode_type": "simple"}, "separate"),
    "unity, goals, sac": (GOALS, MASKED, SAC | {"num_layers": 1, "vis_encode_type": "simple"}, TWINS),
    "sac, ranges": ((SMALL_IMAGE, VECTOR), RANGES, SAC, TWINS),
}
CASES |= {
    name: ((SMALL_IMAGE,), ActionSpec((Discrete(4),)), JOINT | {"vis_encode_type": name, "memory": None}, "shared")
    for name in ("simple", "match3", "nature_cnn", "resnet", "fully_connected", "resnet_impala", "resnet_strided")
}
CASES |= {
    f"unity, {name}": (PICTURE, MASKED, UNITY | {"vis_encode_type": name}, "separate") for name in VISUAL_ENCODERS
}


def network(case: str) -> Network:
    """A network with weights and moments that matter: every term of the graph shows in its outputs."""
    observations, actions, changes, critic = CASES[case]
    settings = AppoNetworkSettings(**{"hidden_units": 32, "image_units": 16, "memory": {"memory_size": 16}, **changes})
    made = Network(
        BehaviorSpec("game", observations, actions), settings, torch.Generator().manual_seed(1), critic=critic
    )
    made.returns = RunningMoments(1)
    rng = np.random.default_rng(2)
    made.load_arrays(
        {
            name: rng.uniform(0.2, 0.6, a.shape)
            if "running_" in name
            else (a + 0.1 * rng.standard_normal(a.shape)).astype(a.dtype)
            for name, a in made.arrays().items()
        }
    )
    return made


ML_AGENTS_OUTPUTS = (
    "version_number", "memory_size", "continuous_actions", "continuous_action_output_shape",
    "deterministic_continuous_actions", "discrete_actions", "discrete_action_output_shape",
    "deterministic_discrete_actions", "recurrent_out",
)  # fmt: skip


def ml_agents_inputs(spec: BehaviorSpec, remembers: bool) -> list[str]:
    masks, memory = ["action_masks"] if spec.branches else [], ["recurrent_in"] if remembers else []
    return [o.name for o in spec.observations] + masks + memory


def session(model):
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def observe(spec: BehaviorSpec, rng: np.random.Generator, rows: int = 4) -> dict[str, Any]:
    seen = {
        o.name: rng.integers(0, 256, (rows, *o.shape), np.uint8)
        if o.dtype == "uint8"
        else rng.standard_normal((rows, *o.shape)).astype(np.float32)
        for o in spec.observations
    }
    for o in spec.observations:
        if len(o.shape) == 2:
            seen[o.name][:, 1] = 0.0
            seen[o.name][0] = 0.0  # nobody is there
            seen[o.name][3] *= 1e-30  # they are there, though their squares are 0
    return seen


def meaning(parameters: np.ndarray, actions: ActionSpec) -> dict[str, np.ndarray]:
    """What the outputs say, from the parameters of the distribution."""
    probabilities, means, deviations = [], [], []
    for part, columns in zip(actions.parts, actions.parameter_slices, strict=True):
        own = parameters[:, columns].astype(np.float64)
        if isinstance(part, Discrete):
            e = np.exp(own - own.max(1, keepdims=True))
            probabilities.append(e / e.sum(1, keepdims=True))
        else:
            means.append(own[:, : part.size])
            deviations.append(np.exp(own[:, part.size :]))
    found = {"action_probabilities": probabilities, "action_means": means, "action_deviations": deviations}
    return {name: np.concatenate(pieces, 1) for name, pieces in found.items() if pieces}


@pytest.mark.parametrize("case", CASES)
def test_a_file_answers_as_torch_does(case: str) -> None:
    policy = network(case)
    model, spec = policy.onnx(), policy.spec
    run, unity, separate = session(model), is_unity_file(spec), len(policy.sides) > 1
    given = [i.name for i in run.get_inputs()]
    assert bool(unity_gaps(model.SerializeToString())) != case.startswith("unity")
    if unity:
        assert given == ml_agents_inputs(spec, bool(policy.state_size))
        told_first = [o.name for o in run.get_outputs() if o.name in ML_AGENTS_OUTPUTS]
        assert told_first == [name for name in ML_AGENTS_OUTPUTS if name in told_first]
        assert [o.name for o in run.get_outputs()][: len(told_first)] == told_first
    assert ("action_masks" in given) == (spec.actions.masked or unity)
    rng = np.random.default_rng(3)
    states, own = np.zeros((4, policy.state_size), np.float32), policy.state_size // len(policy.sides)
    memory = np.zeros((4, 1, own) if unity else (4, own), np.float32)
    for _ in range(3):
        seen = observe(spec, rng)
        masks = rng.random((4, sum(spec.branches))) < 0.6 if "action_masks" in given else None
        tensors = {name: torch.from_numpy(rows) for name, rows in seen.items()}
        parameters, values, after = policy.act(
            tensors, torch.from_numpy(states), torch.from_numpy(masks) if masks is not None else None
        )
        states = after.numpy()
        feed = dict(seen)
        if own:
            feed["recurrent_in"] = memory
        if masks is not None:
            feed["action_masks"] = masks.astype(np.float32)
        found = dict(zip([o.name for o in run.get_outputs()], run.run(None, feed), strict=True))
        memory = found.get("recurrent_out", memory)
        expected = meaning(parameters.numpy(), spec.actions)
        if values is not None and not separate:
            expected["values"] = values.numpy()
        if own:
            expected["recurrent_out"] = states[:, :own].reshape(memory.shape)
        likely = [expected["action_probabilities"][:, c].argmax(1) for c in branches(spec)] if spec.branches else []
        if likely:
            expected["deterministic_discrete_actions"] = np.stack(likely, 1)
        for name, numbers in expected.items():
            # Of parameters in the hundreds float32 itself loses more, and differs by how many threads torch has.
            near = max(1e-4, 8 * float(np.finfo(np.float32).eps * parameters.abs().max()))
            np.testing.assert_allclose(found[name], numbers, rtol=1e-4, atol=near, err_msg=name)
        if masks is not None:
            some = [np.repeat(masks[:, c].any(1, keepdims=True), c.stop - c.start, 1) for c in branches(spec)]
            forbidden = np.concatenate(some, 1) & ~masks
            assert (found["action_probabilities"][forbidden] == 0.0).all()
        assert found["memory_size"].tolist() == [float(own)]
        drawn = {"discrete_actions", "continuous_actions", "deterministic_continuous_actions"} & found.keys()
        fixed = {"version_number", "memory_size", "discrete_action_output_shape", "continuous_action_output_shape"}
        assert found.keys() - fixed - drawn == expected.keys()
        if "continuous_actions" in drawn:
            parts = [p for p in spec.actions.parts if isinstance(p, Continuous)]
            low, high = (np.repeat([getattr(p, k) for p in parts], [p.size for p in parts]) for k in ("low", "high"))
            best = expected["action_means"]
            if policy.squash:
                finite = np.isfinite(low) & np.isfinite(high)
                best = np.tanh(best)
                best[:, finite] = low[finite] + (best[:, finite] + 1) / 2 * (high - low)[finite]
            np.testing.assert_allclose(found["deterministic_continuous_actions"], best.clip(low, high), atol=1e-4)
            playing = told(mode(parameters.numpy(), spec.actions), spec.actions, policy.squash)
            numbers = [playing[:, c] for p, c in zip(spec.actions.parts, spec.actions.column_slices, strict=True)
                   if isinstance(p, Continuous)]  # fmt: skip
            np.testing.assert_allclose(np.concatenate(numbers, 1), best.clip(low, high), atol=1e-4)
            assert ((found["continuous_actions"] >= low) & (found["continuous_actions"] <= high)).all()


def branches(spec: BehaviorSpec) -> list[slice]:
    ends = spec.branch_offsets.tolist()
    return [slice(a, b) for a, b in pairwise(ends)]


def test_observations_far_from_the_usual_are_clipped_as_in_torch() -> None:
    policy = network("no core")
    far = np.repeat(np.float32([[1e3], [1e6], [-1e3], [0.0]]), VECTOR.size, 1)
    found, values = session(policy.onnx()).run(["action_probabilities", "values"], {VECTOR.name: far})
    parameters, expected, _ = policy.act({VECTOR.name: torch.from_numpy(far)}, torch.zeros(4, 0))
    np.testing.assert_allclose(found, meaning(parameters.numpy(), MIXED)["action_probabilities"], atol=1e-4)
    np.testing.assert_allclose(values, expected.numpy(), atol=1e-4)
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)  # both beyond 5 deviations
    assert np.abs(found[0] - found[2]).max() > 1e-3


def test_the_file_of_a_network_is_checked_once_and_written_anew_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, checked = network("no core"), list[onnx.ModelProto]()
    monkeypatch.setattr(onnx.checker, "check_model", lambda model, full_check: checked.append(model))
    first = policy.onnx()
    with torch.no_grad():
        policy.weights.master.mul_(2.0)
    policy.weights.refresh()
    assert policy.onnx() != first and checked == [first]


def soccer(normalize: bool = False) -> Network:
    settings = NetworkSettings(hidden_units=24, num_layers=2, normalize=normalize)
    made = Network(SPEC, settings, torch.Generator().manual_seed(0), critic=AttentionCritic)
    if normalize:
        seen = np.random.default_rng(5).normal(1, 3, (500, 264)).astype(np.float32)
        made.scalers["obs_0"].update(seen, np.arange(500))
    return made


def feed(observations, masks=None):
    masks = np.ones((len(observations), 9), np.float32) if masks is None else masks
    return {"obs_0": observations[:, :264], "obs_1": observations[:, 264:], "action_masks": masks}


def test_file_has_the_reference_interface():
    model = soccer().onnx()

    def interface(values):
        return [
            (v.name, v.type.tensor_type.elem_type, [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim])
            for v in values
        ]

    f, i = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    assert interface(model.graph.input) == [
        ("obs_0", f, ["batch", 264]),
        ("obs_1", f, ["batch", 72]),
        ("action_masks", f, ["batch", 9]),
    ]
    assert interface(model.graph.output) == [
        ("version_number", f, [1]),
        ("memory_size", f, [1]),
        ("discrete_actions", i, ["batch", 3]),
        ("discrete_action_output_shape", f, [1, 3]),
        ("deterministic_discrete_actions", i, ["batch", 3]),
        ("action_probabilities", f, ["batch", 9]),
    ]
    assert model.ir_version == 4
    assert [o.version for o in model.opset_import] == [9]
    names = ["version_number", "memory_size", "discrete_action_output_shape"]
    fixed = session(model).run(names, feed(np.zeros((1, 336), np.float32)))
    assert [x.tolist() for x in fixed] == [[3.0], [0.0], [[3.0, 3.0, 3.0]]]


def test_masked_actions_are_never_drawn():
    masks = np.ones((200, 9), np.float32)
    masks[:, [0, 4, 5]] = 0.0
    observations = np.random.default_rng(1).normal(size=(200, 336)).astype(np.float32)
    probabilities, sampled = session(soccer().onnx()).run(
        ["action_probabilities", "discrete_actions"], feed(observations, masks)
    )
    assert (probabilities[:, [0, 4, 5]] == 0).all()
    assert set(sampled[:, 0]) <= {1, 2}
    assert set(sampled[:, 1]) == {0}
    assert set(sampled[:, 2]) == {0, 1, 2}


DRAWS = 200_000


@pytest.mark.parametrize("allowed", [[1, 2], [0, 2], [0, 1], [0], [1], [2]])
def test_a_forbidden_action_is_not_drawn_once_in_200_000(allowed):
    # Branches that are as sure of the forbidden actions as networks get, and one that is not.
    actor = soccer()
    masks = np.zeros((1, 9), np.float32)
    masks[:, [b * 3 + a for b in range(3) for a in allowed]] = 1.0
    sure = [-s if a in allowed else s for s in (0.0, 12.0, 60.0) for a in range(3)]
    actor.action_parameterization.distribution_linear.bias.data.copy_(torch.tensor(sure))
    observations = np.zeros((DRAWS, 336), np.float32)
    probabilities, drawn = session(actor.onnx()).run(
        ["action_probabilities", "discrete_actions"], feed(observations, np.repeat(masks, DRAWS, 0))
    )
    assert (probabilities[:, masks[0] == 0] == 0.0).all()
    np.testing.assert_allclose(probabilities.reshape(-1, 3, 3).sum(2), 1.0, atol=1e-6)
    random = np.random.default_rng(0)
    for b in range(3):
        assert set(np.unique(drawn[:, b])) == set(allowed)
        chances = probabilities[0, 3 * b : 3 * b + 3].astype(np.float64)
        assert set(random.choice(3, DRAWS, p=chances / chances.sum())) == set(allowed)
        counts = np.bincount(drawn[:, b], minlength=3) / DRAWS
        np.testing.assert_allclose(counts, chances, atol=0.006)


def test_a_branch_that_allows_nothing_draws_evenly():
    masks = np.zeros((3000, 9), np.float32)
    masks[:, 3:] = 1.0
    observations = np.random.default_rng(2).normal(size=(3000, 336)).astype(np.float32)
    probabilities, drawn, best = session(soccer().onnx()).run(
        ["action_probabilities", "discrete_actions", "deterministic_discrete_actions"], feed(observations, masks)
    )
    np.testing.assert_allclose(probabilities[:, :3], 1 / 3, rtol=1e-6)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(np.bincount(drawn[:, 0]) / 3000, 1 / 3, atol=0.04)
    assert set(best[:, 0]) <= {0, 1, 2}


def test_what_is_drawn_from_gives_forbidden_actions_no_chance_at_all():
    model = soccer().onnx()
    drawn_from = [node.input[0] for node in model.graph.node if node.op_type == "Multinomial"]
    model.graph.output.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in drawn_from
    )
    masks = np.float32([[0, 1, 1, 1, 0, 0, 1, 1, 1]])
    chances = np.exp(np.concatenate(session(model).run(drawn_from, feed(np.ones((1, 336), np.float32), masks)), 1))
    assert (chances[masks == 0] == 0.0).all()
    np.testing.assert_allclose(chances.reshape(3, 3).sum(1), 1.0, atol=1e-6)


def test_no_constant_is_reduced_by_the_mask():
    model = soccer(normalize=True).onnx()
    constants = {tensor.name for tensor in model.graph.initializer}
    assert not [n.name for n in model.graph.node if n.op_type == "Sub" and n.input[0] in constants]


def test_diverged_weights_are_not_exported():
    actor = soccer()
    actor.weights.master[3] = torch.nan
    with pytest.raises(ModelError, match=r"encoder\.layers\.0\.weight holds NaN"):
        actor.onnx()


class Plain(torch.nn.Module):
    """An encoder of one's own that says nothing of ONNX."""

    def __init__(self, shape: tuple[int, ...], settings: NetworkSettings) -> None:
        super().__init__()
        self.layer, self.out_features = torch.nn.Linear(shape[0], 8), 8

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.mean((2, 3)))


class Telling(Plain):
    """The same, and says it."""

    def onnx(self, graph, x: str) -> str:
        mean = graph.add("ReduceMean", [x], axes=[2, 3], keepdims=0)
        return graph.add("Gemm", [mean, graph.weight(self.layer.weight), graph.weight(self.layer.bias)], transB=1)


@pytest.mark.parametrize("encoder", [Plain, Telling])
def test_an_encoder_of_ones_own_is_exported_where_it_says_how(encoder: type[Plain], monkeypatch) -> None:
    monkeypatch.setattr("palus.nn.encoders.Own", encoder, raising=False)
    settings = NetworkSettings(vis_encode_type="palus.nn.encoders:Own", hidden_units=8)
    spec = BehaviorSpec("game", (SMALL_IMAGE,), ActionSpec((Discrete(3),)))
    made = Network(spec, settings, torch.Generator(), trust=Trust(frozenset({"palus.nn", __name__})))
    assert made.can_export == (encoder is Telling)
    if encoder is Plain:
        with pytest.raises(ModelError, match=r"Plain does not say how it looks in ONNX; give it a method onnx"):
            made.onnx()
        return
    seen = observe(spec, np.random.default_rng(0))
    (found,) = session(made.onnx()).run(["action_probabilities"], seen)
    parameters = made.act({k: torch.from_numpy(v) for k, v in seen.items()}, torch.zeros(4, 0))[0]
    np.testing.assert_allclose(found, parameters.softmax(1).numpy(), atol=1e-5)


@pytest.mark.parametrize(("output", "value"), [(0.5, 11.0), (7.0, 20.0), (-7.0, 0.0)])
def test_a_file_s_value_is_the_first_reward_s_clipped_and_denormalised(output: float, value: float) -> None:
    spec = BehaviorSpec("game", (VECTOR,), CHOICES)
    policy = Network(spec, NetworkSettings(hidden_units=8), torch.Generator().manual_seed(0), streams=2)
    policy.returns = RunningMoments(1)
    policy.returns.mean, policy.returns.variance = np.array([10.0]), np.array([4.0 - 1e-5])
    policy.weights.masters["critic_linear.weight"].zero_()
    policy.weights.masters["critic_linear.bias"].copy_(torch.tensor([output, 100.0]))
    seen = {VECTOR.name: np.ones((2, 23), np.float32)}
    (found,) = session(policy.onnx()).run(["values"], seen)
    told_while_acting = policy.act({VECTOR.name: torch.ones(2, 23)}, torch.zeros(2, 0))[1]
    np.testing.assert_allclose(found, [value] * 2, rtol=1e-6)
    np.testing.assert_allclose(told_while_acting, found, rtol=1e-6)


@pytest.mark.parametrize(
    ("squash", "low", "high", "range_end"),
    [(False, -np.inf, np.inf, 3), (True, -np.inf, np.inf, 0), (True, -3, 1, 3), (False, -30, 90, 3)],
)
def test_numbers_are_drawn_by_the_means_and_deviations_of_the_file(
    squash: bool, low: float, high: float, range_end: float
) -> None:
    spec = BehaviorSpec("game", (VECTOR,), ActionSpec((Continuous(2, low, high), Continuous(1))))
    settings = NetworkSettings(hidden_units=8, adaptive_deviation=True, squash=squash, range_end=range_end)
    policy = Network(spec, settings, torch.Generator().manual_seed(0))
    head = policy.action_parameterization.distribution_linear
    head.weight.data.zero_()
    head.bias.data.copy_(torch.tensor([0.5, -0.25, np.log(0.25), np.log(0.5), 0.1, np.log(0.125)]))
    names = ["continuous_actions", "continuous_action_output_shape", "action_deviations"]
    drawn, shape, deviations = session(policy.onnx()).run(names, {VECTOR.name: np.zeros((DRAWS, 23), np.float32)})
    assert shape.tolist() == [3.0]
    stretched = np.array([20.0, 20.0, 1.0] if np.isfinite(low) and not squash else [1.0, 1.0, 1.0])
    np.testing.assert_allclose(deviations[0], stretched * [0.25, 0.5, 0.125], rtol=1e-6)
    if squash:
        half, middle = ((high - low) / 2, (high + low) / 2) if np.isfinite(low) else (1.0, 0.0)
        drawn = np.arctanh(np.hstack([(drawn[:, :2] - middle) / half, drawn[:, 2:]]).clip(-1 + 1e-7, 1 - 1e-7))
    elif np.isfinite(low):  # 3 is the range's end, 60 from its middle
        drawn = (drawn - [30.0, 30.0, 0.0]) / stretched
    np.testing.assert_allclose(drawn.mean(0), [0.5, -0.25, 0.1], atol=0.01)
    np.testing.assert_allclose(drawn.std(0), [0.25, 0.5, 0.125], rtol=0.02)
    np.testing.assert_allclose(np.corrcoef(drawn.T), np.eye(3), atol=0.02)


def test_deviations_of_a_file_stay_within_four_powers_of_ten() -> None:
    spec = BehaviorSpec("game", (VECTOR,), ActionSpec((Continuous(3),)))
    settings = NetworkSettings(hidden_units=8, adaptive_deviation=True)
    policy = Network(spec, settings, torch.Generator().manual_seed(0))
    policy.action_parameterization.distribution_linear.bias.data.copy_(torch.tensor([0.0, 0.0, 0.0, 40.0, -40.0, 0.0]))
    policy.action_parameterization.distribution_linear.weight.data.zero_()
    (found,) = session(policy.onnx()).run(["action_deviations"], {VECTOR.name: np.zeros((1, 23), np.float32)})
    np.testing.assert_allclose(found, [[1e4, 1e-4, 1.0]], rtol=1e-5)


@pytest.mark.parametrize("case", ["free deviation", "unity, sac", "no core"])
def test_a_file_says_of_which_kind_its_actions_are(case: str) -> None:
    policy = network(case)
    facts = {p.key: p.value for p in policy.onnx({"game": "Toy", "more": "facts"}).metadata_props}
    choice = [{"kind": "discrete", "choices": n, "low": None, "high": None} for n in (3, 2)]
    parts = {
        "free deviation": [{"kind": "continuous", "size": 2, "low": -1.0, "high": 1.0}, *choice],
        "unity, sac": [{"kind": "continuous", "size": 2, "low": -1.0, "high": 1.0}, *choice],
        "no core": [choice[0], {"kind": "continuous", "size": 2, "low": -np.inf, "high": np.inf}, choice[1]],
    }
    assert json.loads(facts.pop("actions")) == parts[case]
    assert facts == {"game": "Toy", "more": "facts"} | ({"squash": "true"} if case == "unity, sac" else {})
