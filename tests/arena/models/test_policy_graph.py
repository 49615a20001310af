"""Which ONNX files are played, what is read from them, and what strangers' bad files are told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from helpers import MODELS, SOCCER, graph, needs_models, probabilities
from onnx import TensorProto, helper, numpy_helper

from palus.arena.models.policies import OnnxPlayer
from palus.arena.models.policy_graph import read_policy
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import arena_rules
from palus.errors import ModelError

# graph()'s logits are log(1..9), so branch k's probabilities are proportional to 3k+1, 3k+2, 3k+3.
EXPECTED = np.array([1 / 6, 2 / 6, 3 / 6, 4 / 15, 5 / 15, 6 / 15, 7 / 24, 8 / 24, 9 / 24])


def written(folder: Path, model: onnx.ModelProto, name: str = "policy.onnx") -> Path:
    path = folder / name
    path.write_bytes(model.SerializeToString())
    return path


def message(data: bytes) -> str:
    with pytest.raises(ModelError) as caught:
        read_policy(data, "stranger.onnx", SOCCER)
    assert str(caught.value).startswith("stranger.onnx: ")
    return str(caught.value)


@pytest.mark.parametrize("output", ["sampled", "logp", "probabilities"])
@pytest.mark.parametrize("inputs", [None, {"vector_observation": 336, "action_masks": 9}])
def test_every_output_form_and_both_input_layouts_play(tmp_path: Path, output: str, inputs: dict[str, int] | None):
    policy = OnnxPlayer(written(tmp_path, graph(output=output, inputs=inputs)), SOCCER)
    np.testing.assert_allclose(probabilities(policy, np.zeros((2, 336), np.float32)), [EXPECTED] * 2, rtol=1e-5)


def test_branches_follow_the_outputs_order_not_the_order_of_nodes_in_the_file(tmp_path: Path):
    policy = OnnxPlayer(written(tmp_path, graph(branch_order=(2, 0, 1))), SOCCER)
    np.testing.assert_allclose(probabilities(policy, np.zeros((1, 336), np.float32))[0], EXPECTED, rtol=1e-5)


def test_sampling_is_cut_out_of_the_graph():
    model = onnx.load_model_from_string(read_policy(graph().SerializeToString(), "x", SOCCER).model)
    assert {n.op_type for n in model.graph.node} == {"Concat", "Slice", "Gemm", "Mul", "Softmax"}
    assert [o.name for o in model.graph.output] == ["action_probabilities"]


def test_files_that_are_no_onnx_say_what_they_are():
    assert "corrupt or not an ONNX model" in message(b"hello world, this is text")
    assert "corrupt" in message(graph().SerializeToString()[:-2000])
    assert "PyTorch checkpoint" in message(b"PK\x03\x04 whatever")
    assert "git lfs pull" in message(b"version https://git-lfs.github.com/spec/v1\noid sha256:00")
    assert "64 MiB" in message(b"\x08" * (64 * 2**20 + 1))


def test_policies_of_other_games_are_told_what_was_found_and_what_is_needed():
    striker = message(graph(inputs={"obs_0": 231, "obs_1": 63, "action_masks": 9}).SerializeToString())
    assert "takes obs_0 [batch, 231] float32, obs_1 [batch, 63] float32" in striker
    assert "SoccerTwos needs obs_0 [batch, 264] float32, obs_1 [batch, 72] float32" in striker
    goalie = graph(inputs={"obs_0": 738, "action_masks": 9}).SerializeToString()
    assert "obs_0 [batch, 738]" in message(goalie)
    assert "action_masks [batch, 9] float32 and recurrent_in [batch, numbers] float32" in message(goalie)
    with pytest.raises(RefusedError, match=r"with or without action_masks \[batch, 9\] float32\. It was trained"):
        read_policy(goalie, "", SOCCER, arena_rules(pictures=False))


def test_actions_without_probabilities_are_refused():
    model = graph()
    del model.graph.node[-1]
    model.graph.node.append(helper.make_node("ArgMax", ["x"], ["discrete_actions"], axis=1))
    assert "no probabilities of the 3 action branches" in message(model.SerializeToString())
    assert "discrete_actions with a Softmax for each, or action_probabilities [batch, 9]" in message(
        model.SerializeToString()
    )


def test_a_policy_of_continuous_actions_is_told_that_the_game_has_discrete_ones():
    model = graph()
    model.graph.node[-1].output[0] = "continuous_actions"
    model.graph.output[-1].name = "continuous_actions"
    told = message(model.SerializeToString())
    assert "gives continuous_actions [batch, 3]: its actions are continuous;" in told
    assert "SoccerTwos needs discrete ones with 3 x 3 x 3 choices" in told


def test_broken_weights_are_named():
    model = graph()
    model.graph.initializer[1].CopyFrom(numpy_helper.from_array(np.array([0, np.nan, 0], np.float32), "bias0"))
    assert "weight bias0 holds NaN" in message(model.SerializeToString())


def test_foreign_code_loops_and_outside_data_are_refused():
    custom = graph()
    custom.opset_import.append(helper.make_opsetid("com.stranger", 1))
    custom.graph.node.insert(0, helper.make_node("Spy", ["obs_0"], ["seen"], domain="com.stranger"))
    assert "com.stranger" in message(custom.SerializeToString())

    looping = graph()
    body = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "branch",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    looping.graph.initializer.append(numpy_helper.from_array(np.array(True), "always"))
    looping.graph.node.insert(1, helper.make_node("If", ["always"], ["z"], then_branch=body, else_branch=body))
    assert "control flow (If)" in message(looping.SerializeToString())

    outside = graph()
    weight = outside.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="../../etc/passwd")
    assert "stranger.onnx" in message(outside.SerializeToString())


def test_policy_that_answers_nan_is_refused(tmp_path: Path):
    path = written(tmp_path, graph(logits=np.full((3, 3), 3e38, np.float32) * np.array([1, -1, 1], np.float32)))
    OnnxPlayer(path, SOCCER)  # extreme but finite logits are a policy
    with pytest.raises(ModelError, match="NaN or infinity"):  # 336 finite weights whose sum is not
        OnnxPlayer(written(tmp_path, graph(weight=3e38), "nan.onnx"), SOCCER)


@needs_models
def test_unitys_soccer_policies_load_and_its_strikers_do_not():
    for path in sorted(MODELS.glob("*.onnx")):
        if path.stem in ("unity-official-goalie", "unity-official-striker"):
            with pytest.raises(ModelError, match="another game or with other sensors"):
                OnnxPlayer(path, SOCCER)
        else:
            assert OnnxPlayer(path, SOCCER).name == path.stem
