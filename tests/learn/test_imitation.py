"""What only imitation or a reward of one's own can learn: an expert's answers, and the far end of a chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import Aim, Arrays, Play, behavior_of, curve

from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.sac import SAC
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

TRAINERS = {"ppo": PPO, "poca": POCA, "sac": SAC}


class Chain:
    """Places in a row; one of two choices leads on, each place another one, the other back to the start.

    Nothing but the end is paid: somebody who tries at random gets there once in 2^length tries.
    """

    group_size, masks = 1, None

    def __init__(self, length: int, rows: int = 64) -> None:
        self.length, self.most = length, 3 * length // 2
        self.spec = BehaviorSpec("chain", (ObservationSpec("obs", (length + 1,)),), ActionSpec((Discrete(2),)))
        self.onward = np.random.default_rng(7).integers(0, 2, length + 1)
        self.active, self.place = np.ones(rows, np.bool_), np.zeros(rows, np.int64)
        self.age = np.arange(rows) % self.most

    def observe(self) -> Arrays:
        return {"obs": np.eye(self.length + 1, dtype=np.float32)[self.place]}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.place = np.where(actions[:, 0] == self.onward[self.place], self.place + 1, 0)
        self.age += 1
        paid = self.place == self.length
        ended = paid | (self.age == self.most)
        self.place[ended], self.age[ended] = 0, 0
        return paid, ended


def ends_found(length: int, signal: str, updates: int) -> list[float]:
    """The share of episodes that came to the end of the chain, update by update."""
    chain = Chain(length)
    learner = PPO(behavior_of("ppo", f"reward_signals.{signal}"), chain.spec, torch.float32, 0)
    return curve(learner, Play(learner, chain, T=16), updates)


def test_ppo_learns_the_way_to_the_end_of_a_chain_by_novelty_alone() -> None:
    assert max(ends_found(20, "extrinsic={}", 36)) == 0.0
    assert np.mean(ends_found(20, "rnd={strength: 0.1, learning_rate: 0.001}", 36)[-4:]) > 0.9


def test_curiosity_gets_where_ppo_alone_never_does() -> None:
    assert max(ends_found(16, "extrinsic={}", 40)) == 0.0
    curious = "curiosity={strength: 0.1, learning_rate: 0.0001, network_settings: {hidden_units: 32}}"
    assert max(ends_found(16, curious, 40)) > 0.15


@pytest.fixture
def shown(tmp_path: Path) -> str:
    """An expert of `Aim` names 256 numbers."""
    numbers, nothing = np.random.default_rng(0).uniform(-1, 1, (256, 1, 1)).astype(np.float32), np.zeros(1, np.float32)
    write_demonstrations(
        tmp_path / "aim.demo",
        Aim.spec,
        "aim",
        [
            ExpertEpisode({"obs": n}, np.concatenate([n > 0, n], 1, dtype=np.float32), None, nothing, nothing, False)
            for n in numbers
        ],
    )
    return str(tmp_path / "aim.demo")


@pytest.mark.parametrize("use_vail", [False, True])
def test_ppo_does_as_the_expert_did_to_please_gail_without_any_pay(use_vail: bool, shown: str) -> None:
    gail = {"demo_path": shown, "use_actions": True, "use_vail": use_vail, "learning_rate": 0.003}
    words = ", ".join(
        f"{key}: {str(value).lower() if value in (True, False) else value}" for key, value in gail.items()
    )
    behavior = behavior_of("ppo", "hyperparameters.beta=0", f"reward_signals={{gail: {{{words}}}}}")
    learner = PPO(behavior, Aim.spec, torch.float32, 0)
    scores = curve(learner, Play(learner, Aim()), 30)
    assert scores[0] < 0.0 and np.mean(scores[-8:]) > 0.75


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_trainer_clones_an_expert_without_any_pay(trainer: str, shown: str) -> None:
    cloning = f"behavioral_cloning={{demo_path: {shown}, strength: 2, batch_size: 64, num_epoch: 5}}"
    learner = TRAINERS[trainer](cloning_behavior(trainer, cloning), Aim.spec, torch.float32, 0)
    losses = []
    play = Play(learner, Aim())
    for update in range(12):
        losses.append(learner.update(play.collect(), update * 1024).get("Losses/Pretraining Loss", np.nan))
    assert np.nanmin(losses) < 0.3 * losses[0]
    assert play.score > 0.75


def cloning_behavior(trainer: str, cloning: str) -> Any:
    settings = ("hyperparameters.beta=0",)
    if trainer == "sac":
        settings = (
            "hyperparameters=null", "hyperparameters.batch_size=64", "hyperparameters.steps_per_update=500",
            "hyperparameters.learning_rate=0.01", "hyperparameters.init_entcoef=0.001",
        )  # fmt: skip
    return behavior_of(trainer, "reward_signals.extrinsic.strength=0", cloning, *settings)


def test_cloning_stops_when_its_steps_are_over(shown: str) -> None:
    cloning = f"behavioral_cloning={{demo_path: {shown}, steps: 1000}}"
    learner = PPO(behavior_of("ppo", cloning), Aim.spec, torch.float32, 0)
    assert learner.cloning is not None
    assert learner.cloning.rate(0.01, 500) == pytest.approx(0.005)
    assert learner.imitate(1000) == {"Losses/Pretraining Loss": 0.0} and learner.cloning.optimizer.steps == 0
    assert learner.imitate(999)["Losses/Pretraining Loss"] > 0.0 and learner.cloning.optimizer.steps == 3


@pytest.mark.parametrize("trainer", TRAINERS)
def test_signals_and_cloning_go_on_from_a_checkpoint_bit_by_bit(trainer: str, shown: str) -> None:
    settings = () if trainer != "sac" else (
        "hyperparameters=null", "hyperparameters.batch_size=64", "hyperparameters.steps_per_update=200",
        "hyperparameters.save_replay_buffer=true",
    )  # fmt: skip
    signals = (
        f"curiosity: {{network_settings: {{normalize: true}}}}, rnd: {{}}, gail: {{demo_path: {shown}, use_vail: true}}"
    )
    behavior = behavior_of(
        trainer, *settings, f"reward_signals={{extrinsic: {{}}, {signals}}}", f"behavioral_cloning.demo_path={shown}"
    )
    first, second = (TRAINERS[trainer](behavior, Aim.spec, torch.float32, seed) for seed in (0, 1))
    rollout = Play(first, Aim(), T=4).collect()
    first.update(rollout, 0)
    second.load_state_dict(first.state_dict())
    assert first.update(rollout, 512) == second.update(rollout, 512)
    for name, weights in first.network.arrays().items():
        assert np.array_equal(weights, second.network.arrays()[name])
