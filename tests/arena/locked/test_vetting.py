"""Strangers' files: honest ones pass, each hostile one is refused with a code of its own, and the next is vetted."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import MODELS, SOCCER, needs_models
from hostile import HOSTILE, hostile, stock
from onnx import TensorProto, helper
from units import contender

from palus.arena.ladder.discovery import MISSING_FILE
from palus.arena.ladder.entries import GIVEN_UP
from palus.arena.ladder.inbox import MODEL_AT_FAULT
from palus.arena.locked.frames import Rows
from palus.arena.locked.probe import probe, probe_rows
from palus.arena.locked.sandbox import Sandbox
from palus.arena.locked.vet import vet
from palus.arena.models.refusal import RefusedError
from palus.arena.models.rules import ARENA_RULES, Limits
from palus.arena.models.wire import check_wire
from palus.config.network import NetworkSettings
from palus.nn.network import Network

ROOT = Path(__file__).parents[3]
LIMITS = Limits(niceness=0)
SOONER = Limits(cpu_s=2, niceness=0)
"""For the sample that ends at the limit: the same end, earlier."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with contextlib.closing(Sandbox()) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_samples_are_refused_with_their_own_code(name: str, sandbox: Sandbox):
    vetting = vet(
        contender("eve/sample", hostile(name)),
        "SoccerTwos",
        limits=SOONER if name == "endless" else LIMITS,
        sandbox=sandbox,
    )
    assert vetting.refusal is not None
    assert vetting.refusal.code == HOSTILE[name][1]
    assert vetting.refusal.sentence[0].isupper() and vetting.refusal.sentence.endswith(".")
    assert vetting.refusal.remedy.endswith(".")


def test_after_all_of_them_a_stock_policy_passes_and_is_described(sandbox: Sandbox):
    data = stock().SerializeToString()
    vetting = vet(contender("ann/a", data), "SoccerTwos", limits=LIMITS, sandbox=sandbox)
    assert vetting.refusal is None
    assert vetting.details["bytes"] == len(data)
    assert vetting.details["nodes"] == 24
    assert vetting.details["opset"] == 9
    assert 0 < vetting.details["p99_ms"] < 2
    assert "limits" in vetting.details["isolation"]
    assert len(vetting.details["self_match"]) == 2


def test_a_model_that_takes_more_than_a_sentence_can_name_is_refused_for_that(sandbox: Sandbox):
    model = stock()
    for number in range(60):
        name = f"camera_sensor_observation_{number}"
        model.graph.input.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 84]))
    refusal = vet(contender("eve/eyes", model), "SoccerTwos", limits=LIMITS, sandbox=sandbox).refusal
    assert refusal is not None and refusal.code == "wrong-contract" and refusal.sentence.endswith("...")
    assert len(refusal.about("SoccerTwos.onnx").sentence) == len(refusal.sentence) == 1000


def test_palus_own_exports_pass_with_observation_normalisation(sandbox: Sandbox):
    network = Network(SOCCER, NetworkSettings(hidden_units=64, normalize=True), torch.Generator().manual_seed(0))
    seen = np.random.default_rng(0).normal(0.2, 0.1, (100, 264)).astype(np.float32)
    network.scalers["obs_0"].update(seen, np.arange(100))
    vetting = vet(contender("ann/a", network.onnx()), "SoccerTwos", limits=LIMITS, sandbox=sandbox)
    assert vetting.refusal is None


@needs_models
def test_unitys_policies_pass_whatever_their_layout(sandbox: Sandbox):
    for name in ("unity-official-soccertwos", "lmn8r-5.0M", "crisbret33-75M"):
        vetting = vet(
            contender("ann/a", (MODELS / f"{name}.onnx").read_bytes()), "SoccerTwos", limits=LIMITS, sandbox=sandbox
        )
        assert vetting.refusal is None, name


def test_timing_is_refused_by_processor_time_not_by_the_clock():
    def answer(observations: np.ndarray) -> np.ndarray:
        return np.full((len(observations), 9), 1 / 3, np.float32)

    rng = np.random.default_rng(0)
    rows = Rows(SOCCER, 0)
    questions = probe_rows(rows, rng)
    assert probe(answer, questions, rows, max_p99_ms=2.0, rng=rng).p99_ms < 2.0
    with pytest.raises(RefusedError) as caught:
        probe(answer, questions, rows, max_p99_ms=1e-6, rng=rng)
    assert caught.value.refusal.code == "too-slow"


def test_no_prefix_of_a_file_upsets_the_walk_over_its_encoding():
    data = stock().SerializeToString()
    check_wire(data, ARENA_RULES)
    for end in range(1, len(data), 97):
        with contextlib.suppress(RefusedError):  # a cut between two parts looks whole
            check_wire(data[:end], ARENA_RULES)


def test_every_code_is_documented_and_no_other():
    sections = (ROOT / "docs" / "model-rules.md").read_text().split("\n## ")
    section = next(text for text in sections if text.startswith("Codes\n"))
    cells = re.findall(r"^\| (`.+?`) \|", section, re.MULTILINE)
    documented = {code for cell in cells for code in re.findall("`([a-z-]+)`", cell)}
    sources = (ROOT / "src/palus/arena").glob("*/*.py")
    raised = {MISSING_FILE, GIVEN_UP, *(f"trial-{cause}".replace("_", "-") for cause in MODEL_AT_FAULT)}
    for source in sources:
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("RefusedError", "Refusal"):
                raised |= {first.value for first in node.args[:1] if isinstance(first, ast.Constant)}
    assert raised == documented
    assert {code for _, code in HOSTILE.values()} <= documented
