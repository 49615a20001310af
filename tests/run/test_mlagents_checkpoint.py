"""ML-Agents' own checkpoints: networks made of them answer what ML-Agents' answered, runs go on from them.

The files in data/mlagents were written by mlagents 1.1.0 (`remake.py` there): of each trainer a checkpoint, its own
ONNX file of the same weights, and what its critics said of a few inputs.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import yaml
from typer.testing import CliRunner

import stand_ins
from palus.cli import app
from palus.config import load_run
from palus.errors import CheckpointError
from palus.learn import ALGORITHMS
from palus.learn.learner import Learner
from palus.nn.distributions import Distribution, mode, told
from palus.nn.graph import FORBIDDEN
from palus.run.folder import read_checkpoint
from palus.run.mlagents_checkpoint import is_ml_agents, learner_state, read_ml_agents
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

DATA = Path(__file__).parent / "data" / "mlagents"
MEMORY = ", memory: {sequence_length: 4, memory_size: 8}"
SHOWN = {"ppo": ((3,), (1, 20, 20), (2,), (2,)), "entities": ((3,), (4, 2), (3, 3))}
ACTIONS: dict[str, tuple[Any, ...]] = {
    "poca": (Continuous(1, -1.0, 1.0), Discrete(3)),
    "poca_memory": (Continuous(1, -1.0, 1.0), Discrete(3)),
    "entities": (Discrete(3),),
}
CASES = [p.stem for p in sorted(DATA.glob("*.pt"))]


def learner_of(name: str, parts: tuple[Any, ...] | None = None) -> Learner:
    trainer = "ppo" if name == "entities" else name.removesuffix("_memory")
    memory = "" if name in ("poca", "entities") else MEMORY
    shared = ", hyperparameters: {shared_critic: true}" if name == "entities" else ""
    settings = f"{{trainer_type: {trainer}, network_settings: {{normalize: true, hidden_units: 8{memory}}}{shared}}}"
    behavior = load_run("debug", [f"behaviors.SoccerTwos={settings}"]).behaviors["SoccerTwos"]
    shapes = SHOWN.get(name, ((3,), (2,)))
    shown = tuple(ObservationSpec(f"obs_{i}", s, goal=name == "ppo" and i == 2) for i, s in enumerate(shapes))
    actions = parts or ACTIONS.get(name, (Continuous(2, -1.0, 1.0), Discrete(2), Discrete(3)))
    learner = ALGORITHMS[trainer](behavior, BehaviorSpec("B", shown, ActionSpec(actions, True)), torch.float32, 5)
    checkpoint = read_ml_agents(DATA / f"{name}.pt")
    assert checkpoint.steps == 1234
    learner.begin_from(learner_state(checkpoint, learner))
    return learner


def theirs(name: str, feed: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What ML-Agents' own file answers, with what its choices are drawn from."""
    model = onnx.load(DATA / f"{name}.onnx")
    drawn = [node.input[0] for node in model.graph.node if node.op_type == "Multinomial"]
    model.graph.output.extend(onnx.helper.make_tensor_value_info(n, 1, ["batch", "n"]) for n in drawn)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    found = dict(zip(names, session.run(None, {i.name: feed[i.name] for i in session.get_inputs()}), strict=True))
    return found | {"probabilities": np.exp(np.concatenate([found[n] for n in drawn], 1))}


@pytest.mark.parametrize("name", CASES)
def test_a_network_made_of_a_checkpoint_answers_as_ml_agents_did(name: str) -> None:
    learner, data = learner_of(name), np.load(DATA / f"{name}.npz")
    spec, network = learner.spec, learner.network
    seen = {o.name: data[o.name] for o in spec.observations}
    rows = len(data["obs_0"])
    masks = np.random.default_rng(2).random((rows, sum(spec.branches))) < 0.7
    masks[:, spec.branch_offsets[:-1]] = True
    feed = seen | {"action_masks": masks.astype(np.float32), "recurrent_in": data["memory"][:, None]}
    expected = theirs(name, feed)
    states = np.concatenate([data["memory"]] * len(network.sides), 1)
    tensors = {n: torch.from_numpy(x) for n, x in seen.items()}
    parameters, _, after = network.act(tensors, torch.from_numpy(states), torch.from_numpy(masks))
    chances = [p.log_p.exp() for p in Distribution(parameters, spec.actions).parts if hasattr(p, "log_p")]
    np.testing.assert_allclose(torch.cat(chances, 1), expected["probabilities"], atol=2e-6)
    best = told(mode(parameters.numpy(), spec.actions), spec.actions, network.squash)
    for part, columns in zip(spec.actions.parts, spec.actions.column_slices, strict=True):
        if isinstance(part, Continuous):
            numbers = expected["deterministic_continuous_actions"]
            numbers = np.tanh(numbers) if network.squash else numbers  # theirs leaves tanh out
            np.testing.assert_allclose(best[:, columns], numbers, atol=2e-6)
    if network.state_size:
        own = after.numpy()[:, : data["memory"].shape[1]]
        np.testing.assert_allclose(own, expected["recurrent_out"][:, 0], atol=2e-6)
    # Its own file of these weights says the same.
    own_file = onnxruntime.InferenceSession(network.onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    (again,) = own_file.run(["action_probabilities"], {i.name: feed[i.name] for i in own_file.get_inputs()})
    np.testing.assert_allclose(again, expected["probabilities"], atol=2e-6)
    assert FORBIDDEN < -1e7 and (again[~masks] == 0.0).all()


@torch.no_grad()
def test_critics_answer_as_ml_agents_did() -> None:
    for name in CASES:
        learner, data = learner_of(name), np.load(DATA / f"{name}.npz")
        spec, network = learner.spec, learner.network
        seen, keep = {o.name: data[o.name] for o in spec.observations}, torch.ones(1, len(data["obs_0"]))
        inputs, memory = network.inputs(seen), torch.from_numpy(data["memory"])
        found = {}
        if name.startswith("poca"):
            acted = torch.from_numpy(np.concatenate([data["numbers"] / 3, data["chosen"]], 1)).float().view(3, 2, 2)
            own = memory[::2, None].expand(3, 3, -1)  # of the group, and of both baselines
            everyone = torch.ones(3, 2, dtype=torch.bool)
            value, baselines = network.critic(inputs, acted, everyone, own, torch.ones(1, 3, 3))
            found = {"value": value, "baseline_0": baselines[:, 0], "baseline_1": baselines[:, 1]}
        elif name == "sac":
            numbers, twins = torch.from_numpy(data["numbers"]), network.critic
            found = {"value": twins.value(inputs, None, memory, keep)[:, 0]}
            found["target"] = learner.target_value(inputs, None, memory, keep)[:, 0]
            found |= {q: getattr(twins, q)(inputs, numbers, memory, keep) for q in ("q1", "q2")}
        else:
            states = np.concatenate([data["memory"]] * len(network.sides), 1)
            found = {"value": torch.from_numpy(network.values(seen, states)).reshape(len(states))}
        for key, numbers in found.items():
            np.testing.assert_allclose(numbers, data[key].reshape(numbers.shape), rtol=1e-4, atol=1e-5, err_msg=key)


RUN = """
behaviors:
  Ours:
    trainer_type: poca
    hyperparameters: {batch_size: 16, buffer_size: 32}
    network_settings: {hidden_units: 8, normalize: true}
    summary_freq: 100
environment_parameters:
  height:
    curriculum:
    - {name: low, value: 1, completion_criteria: {behavior: Ours, measure: progress, threshold: 0.5}}
    - {name: high, value: 2, completion_criteria: {behavior: Ours, measure: progress, threshold: 0.99}}
    - {name: top, value: 3}
palus:
  {env: "stand_ins:StandIn", env_options: {behaviors: [Ours]}, sampling: {collector: in_process}, num_matches: 2,
   matmul: highest, threads: 1, baseline_interval: 0}
"""


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A results folder of ML-Agents with a run `old`, and a game for its behavior."""
    kind = stand_ins.Kind(((3,), (2,)), 1, (3,), masked=True, group=2)
    monkeypatch.setitem(stand_ins.KINDS, "Ours", kind)
    folder = tmp_path / "old" / "Ours"
    folder.mkdir(parents=True)
    shutil.copy(DATA / "poca.pt", folder / "checkpoint.pt")
    status = {"height": {"lesson_num": 1}, "metadata": {"mlagents_version": "1.1.0"}}
    (tmp_path / "old" / "run_logs").mkdir()
    (tmp_path / "old" / "run_logs" / "training_status.json").write_text(json.dumps(status))
    (tmp_path / "run.yaml").write_text(RUN)
    return tmp_path


def train(results: Path, *words: str, code: int = 0) -> str:
    command = ["train", str(results / "run.yaml"), "--results-dir", str(results), "--trust", "stand_ins", *words]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def same_policy(results: Path, run: str) -> bool:
    """Whether a run has the policy of ML-Agents' run."""
    ((_, _, learner),) = read_checkpoint(results / run / "Ours" / "checkpoint.pt")["learners"]
    wanted = learner_of("poca").network.arrays()
    return all(np.array_equal(learner["network"][name], array) for name, array in wanted.items())


def test_a_run_begins_from_a_run_of_ml_agents(results: Path) -> None:
    idle = "behaviors.Ours.max_steps=0"
    said = train(results, "--run-id", "a", "checkpoint_settings.initialize_from=old", idle)
    assert f"Initializing from {results}/old/Ours/checkpoint.pt." in said and same_policy(results, "a")
    train(results, "--run-id", "b", f"behaviors.Ours.init_path={DATA / 'poca.pt'}", idle)
    assert same_policy(results, "b")
    said = train(results, "--run-id", "c", f"behaviors.Ours.init_path={DATA / 'sac.pt'}", idle, code=2)
    assert "does not fit behavior Ours" in said and not (results / "c").exists()


def test_a_run_of_ml_agents_is_resumed_with_its_steps_and_lessons(results: Path) -> None:
    said = train(results, "--run-id", "old", "--resume", "behaviors.Ours.max_steps=1400")
    assert "Resuming training from step 1234." in said and "lesson 'high'" in said
    assert "Step: 1300." in said and "Step: 1200." not in said  # what was before has its summaries
    written = yaml.safe_load((results / "old" / "configuration.yaml").read_text())
    assert written["behaviors"]["Ours"]["init_path"] is None
    status = json.loads((results / "old" / "run_logs" / "training_status.json").read_text())
    assert status["Ours"]["final_checkpoint"]["steps"] >= 1400 and not same_policy(results, "old")
    said = train(results, "--run-id", "old", "--resume", "behaviors.Ours.max_steps=1400")
    assert "Resuming training from step 14" in said and "raise max_steps to train on" in said


def test_ratings_of_ml_agents_go_on(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(stand_ins.KINDS, "Theirs", stand_ins.KINDS["Ours"])
    shutil.copytree(results / "old" / "Ours", results / "old" / "Theirs")
    status = results / "old" / "run_logs" / "training_status.json"
    status.write_text(json.dumps({"Ours": {"elo": 1234.5}, "Theirs": {"elo": "high"}}))
    run = yaml.safe_load((results / "run.yaml").read_text())
    del run["environment_parameters"]
    ours = run["behaviors"]["Ours"] | {"self_play": {}, "max_steps": 0}
    run["behaviors"], run["palus"]["env_options"]["behaviors"] = {"Ours": ours, "Theirs": ours}, ["Ours", "Theirs"]
    (results / "run.yaml").write_text(yaml.safe_dump(run))
    train(results, "--run-id", "old", "--resume")
    found = json.loads(status.read_text())
    assert (found["Ours"]["elo"], found["Theirs"]["elo"]) == (1234.5, 1200.0)


class Hostile:
    def __reduce__(self) -> Any:
        return (os.system, ("touch hostile",))


def test_a_checkpoint_that_asks_for_more_than_tensors_is_refused_in_a_sentence(
    results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(results)
    path = results / "old" / "Ours" / "checkpoint.pt"
    torch.save({"Policy": Hostile(), "global_step": {"_GlobalSteps__global_step": torch.zeros(1)}}, path)
    for words in (["--run-id", "old", "--resume"], ["--run-id", "a", "checkpoint_settings.initialize_from=old"]):
        said = train(results, *words, code=2)
        assert "not read, since it asks for posix.system; tensors and numbers are all that palus takes" in said
    torch.save({"Policy": 3, "global_step": {"_GlobalSteps__global_step": torch.zeros(1)}}, path)
    assert "expected a checkpoint of ML-Agents 1.1" in train(results, "--run-id", "old", "--resume", code=2)
    assert not (results / "hostile").exists()


def test_damaged_files_are_told_of_and_never_raise_anything_else(tmp_path: Path) -> None:
    data, path = (DATA / "poca.pt").read_bytes(), tmp_path / "checkpoint.pt"
    rng = np.random.default_rng(0)
    assert not is_ml_agents(path)
    for k in range(60):
        damaged = bytearray(data[: len(data) if k % 2 else rng.integers(len(data))])
        for place in rng.integers(len(damaged) or 1, size=4 if len(damaged) else 0):
            damaged[place] ^= 1 << rng.integers(8)
        path.write_bytes(damaged)
        if is_ml_agents(path):
            with contextlib.suppress(CheckpointError):
                read_ml_agents(path)
