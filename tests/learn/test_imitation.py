"""What only imitation or a reward of one's own can learn: an expert's answers, and the far end of a chain."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from toys import Aim, Arrays, Play, Recall, behavior_of, curve

from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.sac import SAC
from palus.types import ActionSpec, BehaviorSpec, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

TRAINERS = {"ppo": PPO, "poca": POCA, "sac": SAC}
PACE = {"sac": (
    "hyperparameters=null", "hyperparameters.batch_size=64", "hyperparameters.learning_rate=0.003",
    "hyperparameters.steps_per_update=20", "hyperparameters.init_entcoef=0.02", "hyperparameters.tau=0.02",
)}  # fmt: skip


class Chain:
    """Places in a row; one of two choices leads on, each place another one, the other back to the start. A group goes
    together: each has its own part of the observation, and one wrong choice takes all of them back.

    Nothing but the end is paid: who tries at random gets there once in 2^(length group_size) tries.
    """

    masks = None

    def __init__(self, length: int, group_size: int = 1, rows: int = 64) -> None:
        self.length, self.most, self.group_size = length, 3 * length // 2, group_size
        self.spec = BehaviorSpec("chain", (ObservationSpec("obs", (length + 1,)),), ActionSpec((Discrete(2),)))
        self.onward = np.random.default_rng(7).integers(0, 2, length + 1)
        self.active, self.place = np.ones(rows, np.bool_), np.zeros(rows, np.int64)
        self.age = np.arange(rows) // group_size % self.most

    def observe(self) -> Arrays:
        return {"obs": np.eye(self.length + 1, dtype=np.float32)[self.place]}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        right = (actions[:, 0] == self.onward[self.place]).reshape(-1, self.group_size).all(1)
        self.place = np.where(right.repeat(self.group_size), self.place + 1, 0)
        self.age += 1
        paid = self.place == self.length
        ended = paid | (self.age == self.most)
        self.place[ended], self.age[ended] = 0, 0
        return paid, ended


NOVELTY = "rnd={strength: 0.1, learning_rate: 0.001}"
CURIOSITY = "curiosity={strength: 0.1, learning_rate: 0.001, network_settings: {hidden_units: 32}}"
PPO_AND_SLOWER = [name if name == "ppo" else pytest.param(name, marks=pytest.mark.slow) for name in TRAINERS]
SEEDS = [1, pytest.param(0, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.slow)]


def ends_found(trainer: str, chain: Chain, updates: int, seed: int, *signals: str) -> list[float]:
    """The share of episodes that came to the end of the chain, update by update. signals: without the game's own
    reward, unless it is among them."""
    settings = (f"reward_signals.{signal}" for signal in signals)
    learner = TRAINERS[trainer](behavior_of(trainer, *settings), chain.spec, torch.float32, seed)
    return curve(learner, Play(learner, chain, T=16), updates)


@pytest.mark.slow
def test_ppo_learns_the_way_to_the_end_of_a_chain_by_novelty_alone() -> None:
    assert max(ends_found("ppo", Chain(20), 36, 0, "extrinsic={}")) == 0.0
    assert np.mean(ends_found("ppo", Chain(20), 36, 0, NOVELTY)[-4:]) > 0.9


@pytest.mark.parametrize("seed", SEEDS)
def test_curiosity_finds_what_pays_and_ppo_keeps_to_it(seed: int) -> None:
    found = ends_found("ppo", Chain(16), 32, seed, "extrinsic={}", CURIOSITY)
    assert np.mean(found[-4:]) > 0.9 and max(ends_found("ppo", Chain(16), 32, seed, "extrinsic={}")) == 0.0


class Doors:
    """Two doors: behind one everything looks the same, behind the other never. Nothing is paid; the score is the share
    of those who take the other."""

    spec = BehaviorSpec("doors", (ObservationSpec("obs", (4,)),), ActionSpec((Discrete(2),)))
    masks = None

    def __init__(self, group_size: int = 1, rows: int = 64) -> None:
        self.group_size, self.active = group_size, np.ones(rows, np.bool_)
        self.rng, self.seen, self.age = np.random.default_rng(0), np.zeros((rows, 4)), np.arange(rows) // group_size

    def observe(self) -> Arrays:
        return {"obs": self.seen.astype(np.float32)}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        self.seen = 2 * self.rng.normal(size=self.seen.shape) * actions
        self.age += 1
        return actions[:, 0], self.age % 16 == 0


@pytest.mark.parametrize("signal", ["rnd", "curiosity"])
@pytest.mark.parametrize("trainer", PPO_AND_SLOWER)
def test_every_trainer_goes_where_there_is_something_new(trainer: str, signal: str) -> None:
    toy = Doors(2 if trainer == "poca" else 1)
    settings = (f"reward_signals={{{signal}: {{network_settings: {{hidden_units: 32}}}}}}", *PACE.get(trainer, ()))
    learner = TRAINERS[trainer](behavior_of(trainer, *settings), toy.spec, torch.float32, 1)
    found = curve(learner, Play(learner, toy), 16, 512)
    assert np.mean(found[:2]) < 0.7 and np.mean(found[-3:]) > 0.9


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


@pytest.mark.parametrize(
    ("trainer", "use_vail"),
    [
        ("ppo", False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("ppo", True), ("poca", False), ("sac", False))),
    ],
)
def test_every_trainer_does_as_the_expert_did_to_please_gail_without_any_pay(
    trainer: str, use_vail: bool, shown: str
) -> None:
    gail = f"{{demo_path: {shown}, use_actions: true, use_vail: {str(use_vail).lower()}, learning_rate: 0.003}}"
    toy, settings = Aim(), PACE.get(trainer, ("hyperparameters.beta=0",))
    toy.group_size = 2 if trainer == "poca" else 1
    behavior = behavior_of(trainer, *settings, f"reward_signals={{gail: {gail}}}")
    learner = TRAINERS[trainer](behavior, Aim.spec, torch.float32, 0)
    scores = curve(learner, Play(learner, toy), 25, 1024)
    assert scores[0] < 0.0 and np.mean(scores[-4:]) > 0.75


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


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_an_expert_s_memory_is_cloned(trainer: str, tmp_path: Path) -> None:
    """What it names in the end was shown at first."""
    cues, nothing = np.random.default_rng(0).integers(0, 2, 256), np.zeros(Recall.LENGTH, np.float32)
    episodes = []
    for cue in cues:
        seen, named = np.zeros((Recall.LENGTH, 3), np.float32), np.zeros((Recall.LENGTH, 1), np.float32)
        seen[0, cue], seen[-1, 2], named[-1] = 1, 1, cue
        episodes.append(ExpertEpisode({"obs": seen}, named, None, nothing, nothing, False))
    write_demonstrations(tmp_path / "recall.demo", Recall.spec, "recall", episodes)
    cloning = f"behavioral_cloning={{demo_path: {tmp_path}, strength: 2, batch_size: 128, num_epoch: 5}}"
    memory = "network_settings.memory={memory_size: 32, sequence_length: 4}"
    for settings, least, most in (((memory,), 0.95, 1.0), ((), 0.35, 0.65)):
        learner = TRAINERS[trainer](cloning_behavior(trainer, cloning, *settings), Recall.spec, torch.float32, 0)
        assert least <= np.mean(curve(learner, Play(learner, Recall()), 6, 1024)[-2:]) <= most


def cloning_behavior(trainer: str, cloning: str, *more: str) -> Any:
    settings = ("hyperparameters.beta=0",)
    if trainer == "sac":
        settings = (
            "hyperparameters=null", "hyperparameters.batch_size=64", "hyperparameters.steps_per_update=500",
            "hyperparameters.learning_rate=0.01", "hyperparameters.init_entcoef=0.001",
        )  # fmt: skip
    return behavior_of(trainer, "reward_signals.extrinsic.strength=0", cloning, *settings, *more)


def test_cloning_stops_when_its_steps_are_over(shown: str) -> None:
    cloning = f"behavioral_cloning={{demo_path: {shown}, steps: 1000}}"
    learner = PPO(behavior_of("ppo", cloning), Aim.spec, torch.float32, 0)
    assert learner.cloning is not None
    assert learner.cloning.rate(0.01, 500) == pytest.approx(0.005)
    assert learner.imitate(1000) == {"Losses/Pretraining Loss": 0.0} and learner.cloning.optimizer.steps == 0
    assert learner.imitate(999)["Losses/Pretraining Loss"] > 0.0 and learner.cloning.optimizer.steps == 3


@pytest.mark.parametrize("trainer", PPO_AND_SLOWER)
def test_cloning_and_signals_may_come_where_a_run_begins_from_another_and_not_where_it_goes_on(
    trainer: str, shown: str
) -> None:
    one, other = "reward_signals={rnd: {}}", "reward_signals={curiosity: {}}"  # each has one value
    settings = ("hyperparameters=null", "hyperparameters.batch_size=64") if trainer == "sac" else ()
    source = TRAINERS[trainer](behavior_of(trainer, *settings, one), Aim.spec, torch.float32, 0)
    behavior = behavior_of(trainer, *settings, other, f"behavioral_cloning.demo_path={shown}")
    heir = TRAINERS[trainer](behavior, Aim.spec, torch.float32, 1)
    untaught = heir.learned_signals["curiosity"].state_dict()
    with pytest.raises(ValueError, match=r"nothing of reward_signals\.curiosity and behavioral_cloning, which the run"):
        heir.load_state_dict(source.state_dict())
    heir.begin_from(source.state_dict())
    for name, weights in source.network.arrays().items():
        assert np.array_equal(weights, heir.network.arrays()[name])
    assert str(heir.learned_signals["curiosity"].state_dict()) == str(untaught)
    heir.update(Play(heir, Aim(), T=4).collect(), 0)
    alike = TRAINERS[trainer](behavior_of(trainer, *settings, one), Aim.spec, torch.float32, 1)
    alike.begin_from(source.state_dict())
    trained = [learner.learned_signals["rnd"].state_dict()["trained"]["weights"] for learner in (alike, source)]
    assert np.array_equal(*trained)  # what the other one has of a signal is taken over with its weights


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
