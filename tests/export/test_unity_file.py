"""Which files Unity can load, and what is told of those that it cannot, on cards and by `palus push --check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from palus.export.bundle import Provenance
from palus.export.unity_file import unity_gaps
from palus.hub.model_card import CardFacts, write_card
from palus.nn.graph import mlp_policy
from palus.types import BehaviorSpec

SPEC = BehaviorSpec.of_vectors("B", (4,), (3,))
WEIGHTS = {"branch0_weight": np.zeros((3, 4), np.float32), "branch0_bias": np.zeros(3, np.float32)}
ML_AGENTS = Path(__file__).parents[1] / "run" / "data" / "mlagents"


def model() -> onnx.ModelProto:
    return mlp_policy(WEIGHTS, SPEC)


@pytest.mark.parametrize("name", ["ppo", "poca", "sac"])
def test_files_of_ml_agents_and_ours_can_be_loaded(name: str) -> None:
    assert unity_gaps((ML_AGENTS / f"{name}.onnx").read_bytes()) == ()
    assert unity_gaps(model().SerializeToString()) == ()


def renamed(before: str, after: str) -> Any:
    def change(made: onnx.ModelProto) -> None:
        for value in (*made.graph.input, *made.graph.output):
            value.name = after if value.name == before else value.name

    return change


def operator(made: onnx.ModelProto) -> None:
    made.graph.node.append(helper.make_node("Elu", ["obs_0"], ["x"]))


def of_bytes(made: onnx.ModelProto) -> None:
    made.graph.input[0].type.tensor_type.elem_type = TensorProto.UINT8


def version(made: onnx.ModelProto) -> None:
    (old,) = (c for c in made.graph.initializer if c.name == "version_number_value")
    old.CopyFrom(numpy_helper.from_array(np.float32([4]), old.name))


def opset(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 12


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (operator, "it computes with Elu, which ML-Agents' files do not"),
        (renamed("obs_0", "eye"), "it reads eye; Unity gives obs_0, obs_1, ..., action_masks and recurrent_in"),
        (renamed("action_masks", "obs_1"), "it takes no action_masks"),
        (renamed("memory_size", "size"), "it does not answer memory_size"),
        (renamed("discrete_actions", "y"), "it answers no discrete_actions and no continuous_actions"),
        (of_bytes, "it reads obs_0 in another type than float32"),
        (version, "its version_number is 4, not 3"),
        (opset, "it has opset 12, ML-Agents' files 9"),
    ],
)
def test_what_unity_cannot_load_is_told_on_the_card(change: Any, told: str) -> None:
    made = model()
    change(made)
    gaps = unity_gaps(made.SerializeToString())
    assert gaps == (told,)
    card = write_card(CardFacts("B", Provenance("B"), unity_gaps={"B": gaps}))
    assert f"Unity cannot load it: {told}." in card and "drops into a Unity scene" not in card
    assert "Unity cannot load" not in write_card(CardFacts("B", Provenance("B")))


def flat(made: onnx.ModelProto) -> None:
    (state,) = (i for i in made.graph.input if i.name == "recurrent_in")
    del state.type.tensor_type.shape.dim[1]


def version_2(made: onnx.ModelProto) -> None:
    for value in made.graph.initializer:
        if value.name in ("version_number.1", "version_number_value"):
            value.CopyFrom(numpy_helper.from_array(np.float32([2]), value.name))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (flat, "its recurrent_in is not [batch, 1, size]"),
        (renamed("recurrent_out", "memories"), "it does not answer recurrent_out"),
        (renamed("discrete_action_output_shape", "sizes"), "it does not answer discrete_action_output_shape"),
        (renamed("continuous_action_output_shape", "size"), "it does not answer continuous_action_output_shape"),
        (version_2, "its version_number is 2, not 3"),
    ],
)
def test_a_file_with_memory_and_both_kinds_of_actions_has_more_to_lack(change: Any, told: str) -> None:
    made = onnx.load(ML_AGENTS / "poca_memory.onnx")
    assert unity_gaps(made.SerializeToString()) == ()
    change(made)
    assert unity_gaps(made.SerializeToString()) == (told,)


def test_who_answers_numbers_alone_and_who_is_as_old_as_ml_agents_1_0_can_be_loaded() -> None:
    numbers = onnx.load(ML_AGENTS / "poca_memory.onnx")
    kept = [o for o in numbers.graph.output if "discrete" not in o.name]
    del numbers.graph.output[:]
    numbers.graph.output.extend(kept)
    assert unity_gaps(numbers.SerializeToString()) == ()
    old = model()
    version_2(old)
    renamed("discrete_actions", "action")(old)
    renamed("obs_0", "vector_observation")(old)
    assert unity_gaps(old.SerializeToString()) == (), "names of that time, which the package knows"


def test_weights_that_are_listed_among_the_inputs_are_none() -> None:
    """As exporters of old write them."""
    made = model()
    for value in made.graph.initializer:
        made.graph.input.append(helper.make_tensor_value_info(value.name, value.data_type, list(value.dims)))
    assert unity_gaps(made.SerializeToString()) == ()


def test_what_is_no_model_is_told() -> None:
    assert unity_gaps(b"\xffnothing") == ("it is no ONNX model",)
