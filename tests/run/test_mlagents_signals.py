"""Networks of reward signals out of ML-Agents' own checkpoints pay what ML-Agents paid.

The files in data/mlagents/signals were written by mlagents 1.1.0 (`remake.py` there): checkpoints with curiosity, RND
and GAIL, and what these pay for a few decisions. Here an action's parts lie otherwise, in another range.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from palus.config import load_run
from palus.learn import ALGORITHMS
from palus.learn.learner import Learner
from palus.learn.signals import Experience
from palus.learn.signals.signal import features
from palus.run.initial import initial_state
from palus.run.mlagents_checkpoint import read_ml_agents
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

DATA = Path(__file__).parent / "data" / "mlagents" / "signals"
SHAPES = {"ppo": ((3,), (1, 6, 6), (2,)), "sac": ((3,), (2,))}
ACTIONS = ActionSpec((Discrete(2), Continuous(2, -1.0, 3.0), Discrete(3)))


def learner_of(trainer: str, folder: Path, units: int = 8) -> Learner:
    shown = tuple(ObservationSpec(f"obs_{i}", shape) for i, shape in enumerate(SHAPES[trainer]))
    spec = BehaviorSpec("B", shown, ACTIONS)
    seen = {o.name: np.zeros((1, *o.shape), np.float32) for o in shown}
    nothing = np.zeros(1, np.float32)
    episode = ExpertEpisode(seen, np.zeros((1, 4), np.float32), None, nothing, nothing, False)
    write_demonstrations(folder / "b.demo", spec, "b", [episode])
    network = "vis_encode_type: fully_connected, num_layers: 2, hidden_units: {}, normalize: {}"
    own, plain = (f"network_settings: {{{network.format(units, word)}}}" for word in ("true", "false"))
    gail = f"demo_path: {folder / 'b.demo'}, use_actions: true, use_vail: {str(trainer == 'ppo').lower()}, {plain}"
    signals = f"{{gail: {{{gail}}}, rnd: {{{own}}}, curiosity: {{strength: 0.01, {own}}}}}"
    main = f"network_settings: {{{network.format(8, 'true')}}}"
    settings = f"{{trainer_type: {trainer}, {main}, reward_signals: {signals}}}"
    behavior = load_run("debug", [f"behaviors.SoccerTwos={settings}"]).behaviors["SoccerTwos"]
    return ALGORITHMS[trainer](behavior, spec, torch.float32, 5)


@pytest.mark.parametrize("trainer", ["ppo", "sac"])
def test_signals_pay_what_ml_agents_paid(trainer: str, tmp_path: Path) -> None:
    learner, data = learner_of(trainer, tmp_path), np.load(DATA / f"{trainer}.npz")
    warnings = list[str]()
    learner.begin_from(initial_state(DATA / f"{trainer}.pt", "B", learner, warnings.append)[0])
    assert not [line for line in warnings if "reward_signals" in line]
    scale = 2.0 / (3.0 if trainer == "ppo" else 1.0)
    numbers = 1.0 + scale * data["numbers"]
    actions = np.concatenate([data["chosen"][:, :1], numbers, data["chosen"][:, 1:]], 1).astype(np.float32)
    seen, after = (
        {o.name: data[o.name.replace("obs", kind)] for o in learner.spec.observations} for kind in ("obs", "next")
    )
    decisions = Experience(seen, after, actions, data["ended"], np.ones(len(actions), np.bool_))
    assert sorted(learner.learned_signals) == ["curiosity", "gail", "rnd"]
    for name, signal in learner.learned_signals.items():
        np.testing.assert_allclose(signal.rewards(decisions), data[f"pay_{name}"], rtol=1e-4, atol=1e-5, err_msg=name)
    signal = learner.learned_signals["curiosity"]
    acted = features(decisions.actions, ACTIONS)
    with torch.no_grad():
        guess = signal.models(signal.view(decisions.observations), signal.view(decisions.following), acted)[1]
    chances = torch.cat([guess[:, :2].softmax(1), guess[:, 4:].softmax(1)], 1)
    np.testing.assert_allclose(chances, data["guessed_chances"], atol=1e-5)
    np.testing.assert_allclose(guess[:, 2:4], 1.0 + scale * data["guessed_numbers"], rtol=1e-4, atol=1e-5)


def test_every_reward_keeps_its_value_stream(tmp_path: Path) -> None:
    learner = learner_of("ppo", tmp_path)
    learner.begin_from(initial_state(DATA / "ppo.pt", "B", learner, lambda line: None)[0])
    heads = read_ml_agents(DATA / "ppo.pt").modules["Optimizer:critic"]
    rows = learner.network.arrays()["critic_linear.weight"]
    for name, row in zip(learner.signals, rows, strict=True):
        np.testing.assert_array_equal(row, heads[f"value_heads.value_heads.{name}.weight"][0])


def test_networks_of_another_size_begin_anew_and_are_told_of(tmp_path: Path) -> None:
    learner, warnings = learner_of("sac", tmp_path, units=4), list[str]()
    before = {name: signal.state_dict()["trained"]["weights"] for name, signal in learner.learned_signals.items()}
    learner.begin_from(initial_state(DATA / "sac.pt", "B", learner, warnings.append)[0])
    told = [line for line in warnings if "the checkpoint has no networks that fit" in line]
    assert [line.split("reward_signals.")[1].split(":")[0] for line in told] == list(learner.learned_signals)
    for name, signal in learner.learned_signals.items():
        np.testing.assert_array_equal(signal.state_dict()["trained"]["weights"], before[name])
