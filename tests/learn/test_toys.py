"""New combinations of trainer, observations, memory and actions, each on a game that it can learn in seconds."""

import numpy as np
import pytest
import torch
from toys import Aim, Errand, Forbidden, Pictures, Play, Recall, Remember, behavior_of, curve

from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.types import Continuous, Discrete

LSTM = "network_settings.memory={memory_size: 32, sequence_length: 4}"
GRU = "network_settings.memory={kind: gru, memory_size: 16, sequence_length: 5}"
TRAINERS = pytest.mark.parametrize(
    ("make", "trainer"), [(PPO, "ppo"), pytest.param(POCA, "poca", marks=pytest.mark.slow)]
)


def learn(make, trainer, toy, updates, *more):
    learner = make(behavior_of(trainer, *more), toy.spec, torch.float32, 0)
    play = Play(learner, toy)
    return learner, play, curve(learner, play, updates)


@pytest.mark.parametrize(
    ("make", "trainer", "memory", "more"),
    [
        (PPO, "ppo", LSTM, ()),
        (PPO, "ppo", GRU, ("hyperparameters.shared_critic=true",)),
        pytest.param(POCA, "poca", LSTM, (), marks=pytest.mark.slow),
    ],
    ids=["ppo-lstm", "ppo-gru-shared", "poca-lstm"],
)
def test_a_recurrent_policy_learns_to_remember(make, trainer, memory, more):
    _, _, scores = learn(make, trainer, Recall(), 16, memory, *more)
    assert scores[0] < 0.65
    # Four in a row anywhere: at this learning rate a policy that remembers can forget for a rollout or two.
    assert np.convolve(scores, np.full(4, 0.25), "valid").max() > 0.95


NUMBER, BOTH = (Continuous(1, -2.0, 2.0),), (Discrete(2), Continuous(1, -2.0, 2.0))


@TRAINERS
@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        (BOTH, False),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((NUMBER, False), (NUMBER, True), (BOTH, True))),
    ],
)
def test_a_recurrent_policy_remembers_with_any_actions_and_of_lists_too(make, trainer, parts, listed):
    rate = "hyperparameters.learning_rate=0.003"  # at that of the others, one update in some hundreds undoes the rest
    _, _, scores = learn(make, trainer, Remember(*parts, listed=listed), 32, LSTM, rate)
    assert scores[0] < 0.4
    assert np.mean(scores[-3:]) > 0.9  # half of it without a memory


def test_a_feed_forward_policy_cannot_remember():
    _, _, scores = learn(PPO, "ppo", Recall(), 30)
    assert 0.4 < np.mean(scores[-8:]) < 0.6


@TRAINERS
def test_pictures_are_learned(make, trainer):
    settings = ("network_settings.vis_encode_type=match3", "hyperparameters.learning_rate=0.004")
    _, _, scores = learn(make, trainer, Pictures(64), 18, *settings)
    assert scores[0] < 0.4
    assert np.mean(scores[-4:]) > 0.9


@TRAINERS
def test_what_is_forbidden_is_never_done_and_the_best_of_the_rest_is_learned(make, trainer):
    learner, play, scores = learn(make, trainer, Forbidden(), 40)
    assert scores[0] < -0.2
    assert np.mean(scores[-4:]) > -0.02
    rollout = play.collect()
    probabilities = torch.from_numpy(rollout.parameters).softmax(-1).numpy()
    assert (probabilities[~rollout.masks[:-1]] == 0.0).all()
    assert learner.update(rollout, 0)["Policy/KL"] < 0.1


@TRAINERS
def test_a_choice_and_a_number_are_learned_together(make, trainer):
    _, _, scores = learn(make, trainer, Aim(), 30, "hyperparameters.beta=0")
    assert scores[0] < 0.0
    assert np.mean(scores[-4:]) > 0.7


@TRAINERS
def test_a_goal_decides_what_is_right(make, trainer):
    learner, _, scores = learn(make, trainer, Errand(), 10, "hyperparameters.learning_rate=0.003")
    assert scores[0] < 0.45
    assert np.mean(scores[-3:]) > 0.95
    assert any(name.endswith("encoder.layers.matrix.weight") for name in learner.network.arrays())
