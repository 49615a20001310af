"""Learners with a signal beside the game's own reward whose numbers can be read off the observations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from readable import NUMBERS, SHARP, SPEC, behavior_of, readable_ppo

from palus.config import load_run
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.sac import SAC
from palus.learn.signals import Experience


@dataclass
class Paying:
    """A signal that pays the number that is seen."""

    goes_on: bool
    learned: list[int] = field(default_factory=list)

    def observe(self, *_: Any) -> None:
        pass

    def rewards(self, decisions: Experience) -> np.ndarray:
        paid: np.ndarray = (decisions.observations["obs_0"] @ np.arange(1, NUMBERS + 1)).astype(np.float32)
        return paid

    def learn(self, decisions: Experience) -> dict[str, float]:
        self.learned.append(len(decisions))
        return {"Losses/Paying": 1.0}


RND = "reward_signals.rnd={gamma: 0.25, strength: 3.0}"


def paying_ppo(goes_on: bool) -> PPO:
    """The first stream's value is the number seen, the second's twice that."""
    learner = PPO(behavior_of("ppo", RND), SPEC, torch.float32, 0)
    template = readable_ppo().network.weights.tensors
    learner.network.weights.load(torch.zeros_like(learner.network.weights.master))
    tensors = learner.network.weights.tensors
    with torch.no_grad():
        tensors["critic_encoder.layers.0.weight"].copy_(template["critic_encoder.layers.0.weight"])
        tensors["critic_linear.weight"][0, 0], tensors["critic_linear.weight"][1, 0] = 1 / SHARP, 2 / SHARP
    learner.signals["rnd"] = Paying(goes_on)
    return learner


def paying_poca(goes_on: bool) -> POCA:
    """V and b are 2 and 8, whatever is seen."""
    learner = POCA(behavior_of("poca", RND), SPEC, torch.float32, 0)
    learner.network.weights.load(torch.zeros_like(learner.network.weights.master))
    head = learner.network.weights.tensors["critic.head.bias"]
    with torch.no_grad():
        head[0], head[1] = 2.0, 8.0
    learner.signals["rnd"] = Paying(goes_on)
    return learner


def sac(*settings: str, seed: int = 0) -> SAC:
    """A learner with a second signal. settings: changes of its behavior."""
    own = "trainer_type=sac", "hyperparameters=null", "network_settings=null", RND, *settings
    behavior = load_run("debug", [f"behaviors.SoccerTwos.{s}" for s in own]).behaviors["SoccerTwos"]
    return SAC(behavior, SPEC, torch.float32, seed)
