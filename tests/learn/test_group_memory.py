"""MA-POCA's critic with memory: the value remembers for its group, every baseline for its agent."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from readable import SPEC, two_matches
from readable import behavior_of as behavior_by_hand
from toys import Play, Recall, behavior_of

from palus.learn.poca import POCA

LSTM = "network_settings.memory={{memory_size: 8, sequence_length: {}}}"


def remembering(length: int) -> POCA:
    whole = ("hyperparameters.batch_size=24", "hyperparameters.buffer_size=24")
    return POCA(behavior_by_hand("poca", LSTM.format(length), *whole), SPEC, torch.float32, 1)


def played():
    """`two_matches` by a policy that remembers too."""
    return replace(two_matches(), states=np.zeros((4, 8), np.float32), last_states=np.zeros((4, 8), np.float32))


@torch.no_grad()
def test_the_memory_of_a_group_and_of_its_agents_step_by_step():
    learner, data = remembering(3), played()
    critic, batch = learner.network.critic, learner.batch(data)
    # V of match 0, its baselines of rows 0 and 1; V of match 1, of rows 2 and 3; before each decision and the last.
    kept = [[1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1], [0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 0]]
    assert batch.memory.keep.reshape(4, 6).tolist() == kept
    state, after, answers = torch.zeros(6, 8), [], []
    for t in range(3):
        inputs = learner.network.inputs({"obs_0": data.observations["obs_0"][t]})
        actions, there = torch.from_numpy(data.actions[t]).view(2, 2, 1), torch.from_numpy(data.active[t]).view(2, 2)
        before = (state * torch.tensor(kept[t])[:, None]).view(2, 3, 8)
        answers.append(critic(inputs, actions, there, before, torch.ones(1, 2, 3)))
        x = critic.pooled(inputs, actions, there).flatten(0, 1)
        state = critic.core(x, before.flatten(0, 1), torch.ones(1, 6))[1]
        after.append(state.view(2, 3, 8))
    values, baselines = (torch.cat(found).numpy() for found in zip(*answers, strict=True))
    np.testing.assert_allclose(batch.values, values, atol=1e-5)
    np.testing.assert_allclose(batch.baselines[batch.present], baselines[batch.present], atol=1e-5)
    # Match 1 was cut off after decision 1, and goes on with what it remembered then; both go on after the last one.
    following, ended = learner._next_values(data, values.reshape(3, 2, 1), batch.memory)
    assert ended.tolist() == [[False, False], [True, True], [False, False]]

    def value(seen, there, state):
        inputs = learner.network.inputs({"obs_0": seen})
        return critic(inputs, None, torch.tensor(there), state[:, :1], torch.ones(1, len(there), 1))[0][:, 0]

    cut_off = value(data.final_observations["obs_0"][:2], [[True, True]], after[1][1:])
    np.testing.assert_allclose(following[1, 1], cut_off, atol=1e-5)
    last = value(data.observations["obs_0"][3], [[True, True], [True, False]], after[2])
    np.testing.assert_allclose(following[2, :, 0], last, atol=1e-5)


@pytest.mark.parametrize("length", [1, 2, 3])
def test_what_is_learned_from_remembers_what_the_targets_came_of(length):
    """In sequences of any length, values and baselines are those of the whole rollout."""
    learner, data = remembering(length), played()
    batch = learner.batch(data)
    found = learner.update(data, 0)
    errors = batch.returns - batch.values
    assert found["Losses/Value Loss"] == pytest.approx(np.square(errors).mean(), rel=1e-4)
    errors = (batch.returns[:, None] - batch.baselines)[batch.present]
    assert found["Losses/Baseline Loss"] == pytest.approx(np.square(errors).mean(), rel=1e-4)


class Promise(Recall):
    """What is paid in the end was shown at first, and nothing that is done changes it."""

    group_size = 2

    def __init__(self):
        super().__init__(64)
        self._alike()

    def _alike(self):
        self.cue, self.age = self.cue[::2].repeat(2), self.age[::2].repeat(2)

    def step(self, actions):
        promised = self.cue
        _, ended = super().step(actions)
        self._alike()
        return np.where(ended, promised, 0.0), ended


def last_loss(*more):
    learner = POCA(behavior_of("poca", *more, "hyperparameters.batch_size=128"), Promise.spec, torch.float32, 0)
    play = Play(learner, Promise(), 16)
    return np.mean([learner.update(play.collect(), 0)["Losses/Value Loss"] for _ in range(9)][-2:])


def test_a_critic_with_memory_knows_what_was_promised():
    """Both of a group are paid 0 or 1 with even chances, seen at the first of four decisions: without memory the error
    is 3/4, with one it is of the episodes that a rollout begins in the middle of, about a tenth."""
    memory = "network_settings.memory={memory_size: 32, sequence_length: 8}"
    assert last_loss() > 0.65 and last_loss(memory) < 0.25
