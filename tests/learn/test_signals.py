"""Reward signals: values and gradients worked out by hand, and what learners make of several rewards."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import pytest
import torch
from paying import RND, Paying, paying_poca, paying_ppo, sac
from readable import NUMBERS, SPEC, behavior_of, rollout, two_matches

from palus.config import load_run
from palus.config.trainer import Curiosity, Gail, Rnd
from palus.errors import DivergenceError
from palus.learn.poca import POCA
from palus.learn.ppo import PPO
from palus.learn.replay_buffer import ReplayBuffer
from palus.learn.returns import usable_decisions
from palus.learn.sac import SAC
from palus.learn.signals import decisions_of
from palus.learn.signals.curiosity import CuriositySignal, forward_errors, inverse_errors
from palus.learn.signals.gail import (
    GailSignal,
    bottleneck_kl,
    discriminator_loss,
    gradient_penalty,
    rewards_of,
)
from palus.learn.signals.rnd import RndSignal, novelty
from palus.learn.signals.signal import Experience
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec
from palus.unity.demonstrations import ExpertEpisode, write_demonstrations

BOTH = ActionSpec((Discrete(2), Continuous(1)))
SMALL = {"hidden_units": 6, "num_layers": 1}
EYES = BehaviorSpec(
    "Eyes", (ObservationSpec("a", (2,)), ObservationSpec("b", (2, 3)), ObservationSpec("c", (1,))), BOTH
)
"""Two vectors, and a list between them."""


def slopes(number: torch.Tensor, *of: torch.Tensor) -> list[Any]:
    return [slope.tolist() for slope in torch.autograd.grad(number, of)]


def leaf(*numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float32, requires_grad=True)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def some_decisions(count: int, seed: int = 0, spec: BehaviorSpec = EYES) -> Experience:
    rng = np.random.default_rng(seed)
    seen, after = (
        {o.name: rng.normal(size=(count, *o.shape)).astype(np.float32) for o in spec.observations} for _ in "ab"
    )
    actions = np.stack([rng.integers(0, 2, count), rng.normal(size=count)], 1).astype(np.float32)
    return Experience(seen, after, actions, rng.random(count) < 0.3, rng.random(count) < 0.8)


def experts(folder: Path, decisions: Experience, spec: BehaviorSpec = EYES) -> str:
    rows, nothing = len(decisions), np.zeros(len(decisions), np.float32)
    episode = ExpertEpisode(decisions.observations, decisions.actions, None, nothing, nothing, False)
    write_demonstrations(folder / "x.demo", spec, spec.name, [episode])
    assert rows
    return str(folder / "x.demo")


def test_curiosity_s_errors_and_their_gradients() -> None:
    following, guess = leaf((1.0, 2.0)), leaf((0.0, 4.0))
    error = forward_errors(following, guess)
    assert error.tolist() == [2.5]  # (1 + 4) / 2
    assert slopes(error.sum(), following, guess) == [[[1.0, -2.0]], [[-1.0, 2.0]]]
    # p(1) = 3 / 4; the number is guessed as 0.5, was 2
    guessed = leaf((0.0, math.log(3.0), 0.5))
    mistake = inverse_errors(guessed, torch.tensor([[1.0, 2.0]]), BOTH)
    assert mistake.tolist() == pytest.approx([-math.log(0.75) + 2.25])
    assert slopes(mistake.sum(), guessed)[0][0] == pytest.approx([0.25, -0.25, -3.0])


def test_curiosity_learns_from_what_is_known_down_the_printed_loss_and_pays_at_most_one() -> None:
    """10 (0.2 L_F + 0.8 L_I); a decision that ended its episode is neither learned from nor paid."""
    signal = CuriositySignal(Curiosity(strength=0.5, network_settings=SMALL), EYES, generator())
    decisions = some_decisions(20)
    assert signal.rewards(decisions).tolist() == [0.0] * 20
    own = decisions.chosen(decisions.known)
    acted = torch.cat([torch.eye(2)[own.actions[:, 0].astype(int)], torch.from_numpy(own.actions[:, 1:])], 1)
    surprise, guess = signal.models(signal.view(own.observations), signal.view(own.following), acted)
    mistakes = inverse_errors(guess, torch.from_numpy(own.actions), BOTH)
    loss = 2.0 * surprise.mean() + 8.0 * mistakes.mean()
    expected = torch.cat([s.flatten() for s in torch.autograd.grad(loss, list(signal.models.parameters()))])
    found = signal.learn(decisions)
    torch.testing.assert_close(signal.trained.weights.gradient, expected)
    assert found["Losses/Curiosity Forward Loss"] == pytest.approx(float(surprise.detach().mean()))
    assert found["Losses/Curiosity Inverse Loss"] == pytest.approx(float(mistakes.detach().mean()))
    for name in decisions.following:
        decisions.following[name][:] *= 100
    paid = signal.rewards(decisions)
    assert (paid[~decisions.known] == 0).all() and (paid[decisions.known] > 0).all()
    assert paid.max() == 2.0  # times 0.5


def test_gail_s_reward_and_loss_and_their_gradients() -> None:
    paid = rewards_of(torch.tensor([0.0, math.log(3.0), 50.0]))
    assert paid.tolist() == pytest.approx([math.log(2.0), math.log(4.0), -math.log(1e-7)], rel=0.02)
    expert, policy = leaf(0.0, math.log(3.0)), leaf(math.log(3.0), 0.0)
    loss = discriminator_loss(expert, policy)
    assert float(loss.detach()) == pytest.approx(
        (math.log(2.0) + math.log(4 / 3)) / 2 + (math.log(4.0) + math.log(2.0)) / 2
    )
    # -(1 - D) / 2 and D / 2
    by_expert, by_policy = slopes(loss, expert, policy)
    assert by_expert == pytest.approx([-0.25, -0.125]) and by_policy == pytest.approx([0.375, 0.25])


def test_the_gradient_penalty_is_of_all_that_is_read_together() -> None:
    """|(3, 4)| = 5 and |(0, 2)| = 2: (16 + 1) / 2. Of the first observation alone, as in ML-Agents, it would be 2.5."""
    first, second = leaf((3.0,), (0.0,)), leaf((4.0,), (2.0,))
    penalty = gradient_penalty([first, second])
    assert float(penalty.detach()) == pytest.approx(8.5)
    # (|g| - 1) g / |g| of each row: 4 (0.6, 0.8) and 1 (0, 1)
    assert np.ravel(slopes(penalty, first, second)).tolist() == pytest.approx([2.4, 0.0, 3.2, 1.0])
    nowhere = leaf((0.0,))
    assert slopes(gradient_penalty([nowhere]), nowhere) == [[[0.0]]]


def test_the_bottleneck_s_kl_by_hand() -> None:
    # -(1 + 0 - 0.5 - 0 - 1) - (1 + 0 - 0 - 2 - 1) = 0.5 + 2
    expert, policy, sigma = leaf((1.0, 0.0)), leaf((0.0, 2.0)), leaf(1.0, 1.0)
    kl = bottleneck_kl(expert, policy, sigma)
    assert float(kl.detach()) == 2.5
    assert slopes(kl, expert, policy, sigma) == [[[1.0, 0.0]], [[0.0, 2.0]], [0.0, 0.0]]


@pytest.mark.parametrize(("use_actions", "use_vail"), [(False, False), (True, False), (False, True), (True, True)])
def test_gail_goes_down_its_whole_loss_second_derivatives_included(
    use_actions: bool, use_vail: bool, tmp_path: Path
) -> None:
    """The gradient of loss, penalty and bottleneck together, against differences of the loss itself, in float64."""
    shown, own = some_decisions(12, 1), some_decisions(8, 2)
    settings = Gail(
        demo_path=experts(tmp_path, shown), use_actions=use_actions, use_vail=use_vail, network_settings=SMALL
    )
    signal = GailSignal(settings, EYES, generator())
    signal.beta = 0.3
    before, drawn = signal.trained.weights.master.clone(), signal.generator.get_state()
    found = signal.learn(own)
    if use_vail:
        assert signal.beta == pytest.approx(max(0.0, 0.3 + 0.0005 * (found["Losses/GAIL KL Loss"] - 0.5)))
    gradient = signal.trained.weights.gradient.clone()

    def loss(weights: torch.Tensor) -> float:
        signal.beta, signal.trained.rate = 0.3, 0.0
        signal.generator.set_state(drawn)
        signal.trained.weights.load(weights)
        told = signal.learn(own)
        kl = 0.3 * (told["Losses/GAIL KL Loss"] - 0.5) if use_vail else 0.0
        return told["Losses/GAIL Loss"] + told["Policy/GAIL Grad Mag Loss"] + kl

    for seed in range(4):
        direction = torch.randn(before.shape, generator=generator(seed))
        direction /= direction.norm()
        slope = (loss(before + 0.02 * direction) - loss(before - 0.02 * direction)) / 0.04
        assert slope == pytest.approx(float(gradient @ direction), rel=0.03, abs=0.03)


def test_the_penalty_of_a_discriminator_counts_the_slopes_of_every_number_that_it_reads(tmp_path: Path) -> None:
    """Where expert and policy do the same, the point between them is known; slopes by differences of D."""
    shown = some_decisions(1, 1)
    settings = Gail(demo_path=experts(tmp_path, shown), use_actions=True, network_settings=SMALL)
    signal = GailSignal(settings, EYES, generator())
    signal.trained.weights.load(3.0 * signal.trained.weights.master)  # steep
    inputs = signal._inputs(shown.observations, shown.actions, shown.ended)
    squares = 0.0
    for name, own in inputs.items():
        for place in range(own.numel()):
            step = torch.zeros_like(own).view(-1)
            step[place] = 0.01
            ends = [signal.discriminator({**inputs, name: own + side * step.view(own.shape)})[0] for side in (1, -1)]
            squares += float((ends[0].sigmoid() - ends[1].sigmoid()).detach() / 0.02) ** 2
    found = float(signal._penalty(inputs, inputs).detach())
    assert found == pytest.approx((math.sqrt(squares) - 1.0) ** 2, rel=0.01) and len(inputs) == 2


def test_gail_tells_experts_apart_by_any_observation_and_with_actions_by_what_they_do(tmp_path: Path) -> None:
    for use_actions in (False, True):
        shown, own = some_decisions(80, 1), some_decisions(80, 1)
        if use_actions:
            shown.actions[:, 0], own.actions[:, 0] = 1, 0
        else:
            own.observations["c"][:] += 4.0
        settings = Gail(demo_path=experts(tmp_path, shown), use_actions=use_actions, learning_rate=0.003)
        signal = GailSignal(settings, EYES, generator())
        own = Experience(own.observations, own.following, own.actions, np.zeros(80, np.bool_), own.known)
        found = [signal.learn(own) for _ in range(80)][-20:]
        expert, policy = (mean(told[f"Policy/GAIL {who} Estimate"] for told in found) for who in ("Expert", "Policy"))
        assert expert > policy + 0.2  # minibatches differ, and CPUs round differently


def test_rnd_pays_for_what_it_has_not_seen() -> None:
    assert novelty(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 4.0]])).tolist() == [5.0]
    signal = RndSignal(Rnd(learning_rate=0.003), EYES, generator())
    fixed = signal.fixed.weights.master.clone()
    known, new = some_decisions(60, 1), some_decisions(60, 2)
    for observation in new.observations.values():
        observation += 4.0
    at_first = signal.rewards(known).mean()
    losses = [signal.learn(known)["Losses/RND Loss"] for _ in range(150)]
    assert losses[0] == pytest.approx(at_first, rel=1e-4) and losses[-1] < 0.2 * losses[0]
    assert signal.rewards(new).mean() > 5 * signal.rewards(known).mean()
    assert torch.equal(fixed, signal.fixed.weights.master)


@pytest.mark.parametrize(("kind", "settings"), [(CuriositySignal, Curiosity), (RndSignal, Rnd)])
def test_a_goal_conditions_a_signal_s_network_unless_it_is_told_not_to(kind: Any, settings: Any) -> None:
    goal = replace(EYES, observations=(*EYES.observations, ObservationSpec("goal", (2,), goal=True)))
    names = [
        [*kind(settings(network_settings={"goal_conditioning_type": how}), goal, generator()).trained.weights.masters]
        for how in ("hyper", "none")
    ]
    assert [any("matrix" in name for name in own) for own in names] == [True, False]


@pytest.mark.parametrize(("kind", "settings"), [(CuriositySignal, Curiosity), (RndSignal, Rnd)])
def test_a_signal_reads_what_it_has_seen_so_far_as_normal_and_pays_on_where_it_was_saved(
    kind: Any, settings: Any
) -> None:
    one, other = (kind(settings(network_settings=SMALL | {"normalize": True}), EYES, generator(k)) for k in (0, 1))
    decisions = some_decisions(20)
    one.learn(decisions)
    before = one.rewards(decisions)
    one.observe({name: 5 + 3 * seen for name, seen in decisions.observations.items()}, np.arange(20))
    assert not np.allclose(one.rewards(decisions), before, rtol=0.01)
    other.load_state_dict(one.state_dict())
    np.testing.assert_array_equal(other.rewards(decisions), one.rewards(decisions))
    assert one.rewards(decisions).max() > 0


def test_the_bottleneck_s_weight_is_never_negative_and_goes_on_where_it_was_saved(tmp_path: Path) -> None:
    settings = Gail(demo_path=experts(tmp_path, some_decisions(12, 1)), use_vail=True, network_settings=SMALL)
    one, other = (GailSignal(settings, EYES, generator(k)) for k in (0, 1))
    assert one.learn(some_decisions(8, 2))["Losses/GAIL KL Loss"] < 0.5 and one.beta == 0.0
    one.beta = 0.3
    other.load_state_dict(one.state_dict())
    own = some_decisions(8, 3)
    assert other.beta == 0.3 and other.learn(own) == one.learn(own)
    with torch.no_grad():
        one.discriminator.sigma.fill_(2.0)
        logits, mu = one.discriminator(one._inputs(own.observations, own.actions, own.ended), torch.ones(8, 128))
        torch.testing.assert_close(logits, one.discriminator.head(mu + 2.0)[:, 0])


def test_a_signal_whose_gradient_is_not_finite_ends_the_run_before_it_spoils_the_weights() -> None:
    spec = replace(EYES, observations=EYES.observations[:1])
    signal, decisions = RndSignal(Rnd(network_settings=SMALL), spec, generator()), some_decisions(4, spec=spec)
    before = signal.state_dict()["trained"]["weights"]
    decisions.observations["a"][0] = np.inf
    with pytest.raises(DivergenceError, match="a reward signal's gradient is not finite"):
        signal.learn(decisions)
    state = signal.state_dict()
    assert np.array_equal(state["trained"]["weights"], before) and np.isfinite(before).all()
    for wrong in (before[1:], np.full_like(before, np.nan)):
        with pytest.raises(ValueError, match=r"reward signal: .* weights; expected"):
            signal.load_state_dict({**state, "trained": {**state["trained"], "weights": wrong}})


@pytest.mark.parametrize("goes_on", [False, True])
def test_each_signal_has_values_a_discount_and_a_strength_of_its_own(goes_on: bool) -> None:
    learner, data = paying_ppo(goes_on), two_matches()
    usable = usable_decisions(data)
    values, rewards = learner.replay(data, 1)[0], learner.rewards(data, usable)
    np.testing.assert_allclose(values[..., 1], 2 * values[..., 0], atol=1e-3)
    np.testing.assert_allclose(rewards[..., 1], 3 * values[..., 0] * usable, atol=1e-3)
    fewer = usable & (np.arange(usable.shape[1]) != 2)
    paid = learner.pay(learner.learned_signals["rnd"], data, fewer)
    np.testing.assert_allclose(paid, values[..., 0] * fewer, atol=1e-3)
    advantages, targets = learner.advantages(data, rewards, values)
    # A = 3 n + 0.25 V' - V + 0.125 A', V = 2 n. Row 0: 24 + 0.25 x 8 - 16 = 10 | an end; without one V' = 16:
    # 15 + (4) - 10 = 5 (9) | 3 + 2.5 - 2 + 0.125 A'. Row 1: 3 + 3 - 2 = 4 | absent | an end: 2, or
    # with 0.25 x 2 of whom it sees when it is back
    ended, back = (9.0, 2.5) if goes_on else (5.0, 2.0)
    expected = [[3.5 + ended / 8, back], [ended, 0.0], [10.0, 4.0]]
    np.testing.assert_allclose((targets - values)[:, :2, 1] * usable[:, :2], expected, atol=1e-3)
    # The mean of both, and the extrinsic ones are those of test_targets.
    both = (np.array([[3.75, -1], [1, 0], [-5.5, 4.5]]) + expected) / 2
    np.testing.assert_allclose(advantages[:, :2], both, atol=1e-3)


def test_ppo_teaches_its_signals_with_its_own_minibatches_and_tells_of_them() -> None:
    learner = paying_ppo(True)
    found = learner.update(two_matches(), 0)
    assert learner.signals["rnd"].learned == [11]  # one minibatch, all decisions but the absent one
    assert found["Losses/Paying"] == 1.0
    # 3 x the mean of 1 2 3 4 5 6 7 8 1 2 3, and twice the mean
    assert found["Policy/Rnd Reward"] == pytest.approx(3 * 42 / 11, rel=1e-3)
    assert found["Policy/Rnd Value Estimate"] == pytest.approx(2 * 42 / 11, rel=1e-3)
    assert found["Policy/Extrinsic Value Estimate"] == pytest.approx(42 / 11, rel=1e-3)


@pytest.mark.parametrize(("make", "trainer"), [(PPO, "ppo"), (POCA, "poca")])
def test_signals_learn_nothing_from_what_fills_up_the_last_sequence(make: Any, trainer: str) -> None:
    """Three decisions are a sequence of two and one of one."""
    whole = "hyperparameters.batch_size=16", "hyperparameters.buffer_size=16"
    memory = "network_settings.memory={memory_size: 8, sequence_length: 2}"
    learner = make(behavior_of(trainer, RND, memory, *whole), SPEC, torch.float32, 0)
    learner.signals["rnd"] = signal = Paying(False)
    empty = np.zeros((4, learner.network.state_size), np.float32)
    learner.update(replace(two_matches(), states=empty, last_states=empty, final_states=empty[:3]), 0)
    assert signal.learned == [11]


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_group_is_paid_the_sum_of_its_members_and_runs_on_into_its_next_episode(goes_on: bool) -> None:
    learner = paying_poca(goes_on)
    batch = learner.batch(two_matches())
    np.testing.assert_allclose(batch.values, [[2, 8]] * 6)
    # r = 3 (sum of the members' numbers); G = r + 0.25 (0.5 x 8 + 0.5 G'). Match 0: 27 + 0.25 x 8 = 29 | 15 + 0, or
    # + 0.25 x 8 | 9 + 1 + 0.125 G'. Match 1: 15 + 2 (row 2 goes on) | 39 + 2, a time-out | 21 + 1 + 0.125 x 41
    ended = 17.0 if goes_on else 15.0
    np.testing.assert_allclose(batch.returns[:, 1], [10 + ended / 8, 27.125, ended, 41, 29, 17], atol=1e-3)
    both = (batch.returns - [2, 8]).mean(1)
    np.testing.assert_allclose(batch.advantages[:, 0], both, atol=1e-3)
    found = learner.update(two_matches(), 0)
    assert "Policy/Rnd Baseline Estimate" in found and sum(learner.signals["rnd"].learned) == 11


def test_where_nobody_of_a_group_comes_back_its_return_runs_on_into_nothing() -> None:
    # Both leave for good at decision 0, where they see 1 and 2: 3 x 3, and V' is not the 8 of an empty group.
    gone = rollout(
        [[1, 2], [0, 0]], [0, 0], [], [[0, 0], [0, 0]], group_rewards=[[0, 0], [0, 0]], terminated=[(0, 0), (0, 1)],
        truncated=[], absent=[(1, 0), (1, 1)], actions=[[0, 0], [0, 0]], last_absent=(0, 1),
    )  # fmt: skip
    np.testing.assert_allclose(paying_poca(True).batch(gone).returns[0], [0, 9], atol=1e-5)


def test_a_group_that_waits_for_its_next_match_has_that_one_s_value_after_its_end() -> None:
    # It ends at decision 0, is out at decision 1, and sees 3 and 4 at 2: 3 x 3 + 0.25 x 8.
    waits = rollout(
        [[1, 2], [0, 0], [3, 4]], [0, 0], [], [[0, 0]] * 3, group_rewards=[[0, 0]] * 3, terminated=[(0, 0), (0, 1)],
        truncated=[], absent=[(1, 0), (1, 1)], actions=[[0, 0]] * 3,
    )  # fmt: skip
    np.testing.assert_allclose(paying_poca(True).batch(waits).returns[0], [0, 11], atol=1e-5)


def test_what_follows_a_decision_is_the_last_observation_where_it_was_cut_off() -> None:
    data = two_matches()
    found = decisions_of(data, np.array([2, 3, 4, 6, 11]), SPEC.actions, False)  # t B + b
    following = found.following["obs_0"] @ np.arange(1, NUMBERS + 1)
    assert found.known.tolist() == [True, True, False, True, True]
    assert following[found.known].tolist() == [6, 7, 8, 7]
    assert found.ended.tolist() == [False, False, True, True, True]


def test_signals_see_actions_as_the_game_was_told_them() -> None:
    """Clipped to the range, or tanh stretched to it, whatever was drawn."""
    numbers, drawn = ActionSpec((Continuous(1, -2.0, 2.0),)), np.float32(3.0)
    data = replace(two_matches(), actions=np.full_like(two_matches().actions, drawn))
    for squash, told in ((False, 2.0), (True, 2.0 * math.tanh(drawn))):
        found = decisions_of(data, np.array([0, 2]), numbers, squash).actions
        assert found.tolist() == [[pytest.approx(told)]] * 2
    behavior = load_run("debug", ["behaviors.SoccerTwos={trainer_type: sac}"]).behaviors["SoccerTwos"]
    learner = SAC(behavior, BehaviorSpec("X", SPEC.observations, numbers), torch.float32, 0)
    learner.buffer.actions[:2] = drawn
    assert learner._decisions(np.arange(2)).actions.tolist() == [[pytest.approx(2.0 * math.tanh(drawn))]] * 2


@pytest.mark.parametrize("goes_on", [False, True])
def test_sac_s_targets_are_each_signal_s_own_and_its_losses_means_over_them(goes_on: bool) -> None:
    """V = 2 and 8 and Q = 1 and 4 everywhere, whatever is seen, of the game's own reward and of another."""
    learner = sac(
        "hyperparameters.batch_size=11", "hyperparameters.buffer_init_steps=99", "network_settings.hidden_units=8",
        "reward_signals.extrinsic={gamma: 0.5, strength: 2.0}",
    )  # fmt: skip
    learner.signals["rnd"] = signal = Paying(goes_on)
    learner.buffer = ReplayBuffer(SPEC, 64, renews=True)
    weights = learner.network.weights
    weights.load(torch.zeros_like(weights.master))
    with torch.no_grad():
        weights.tensors["critic.value.head.bias"].copy_(torch.tensor([2.0, 8.0]))
        for q in ("q1", "q2"):
            weights.tensors[f"critic.{q}.head.bias"].copy_(torch.tensor([1.0, 1.0, 4.0, 4.0]))
    learner._trail(1.0)
    assert learner.update(two_matches(), 0) == {} and signal.learned == []
    rows = np.arange(11)
    inputs = learner.network.inputs(learner.buffer.observations, rows)
    target = learner._targets(rows, learner._paid(rows), inputs, torch.ones(1, 11)).detach().numpy()
    # Rows 1 of match 0 and 0 of match 0 ended by the rules, at decisions 0 and 1; the latter plays on.
    assert np.flatnonzero(learner.buffer.terminated[:11]).tolist() == [1, 4]
    assert np.flatnonzero(learner.buffer.renewed[:11]).tolist() == [4]
    own = 2 * np.float32([1, 0.5, -0.5, 0.5, 3, 0.25, 1, 0.25, 1.25, 1.5, -1])
    numbers = np.float32([1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3])
    follows = np.float32([1, 0, 1, 1, 0, 1, 1, 1, 1, 1, 1])
    on = np.float32([1, 0, 1, 1, goes_on, 1, 1, 1, 1, 1, 1])
    np.testing.assert_allclose(target[:, 0], own + 0.5 * 2 * follows, atol=1e-5)
    np.testing.assert_allclose(target[:, 1], 3 * numbers + 0.25 * 8 * on, atol=1e-5)
    drawn, state = learner.generator.get_state(), learner.buffer.draw(11, learner.generator).ravel()
    learner.generator.set_state(drawn)
    found = learner._step(0.0)
    assert (found["Policy/Extrinsic Value"], found["Policy/Rnd Value"]) == (2.0, 8.0)
    assert found["Policy/Rnd Reward"] == pytest.approx(3 * numbers[state].mean())
    errors = np.square(np.float32([1, 4]) - target[state])
    assert found["Losses/Q1 Loss"] == pytest.approx(0.5 * errors.mean(), rel=1e-4)
    # Both choices are as likely, and the entropy counts as it is: the policy is told the mean of both signals' Q.
    assert found["Losses/Policy Loss"] == pytest.approx(-np.log(2) - 2.5)
    assert found["Losses/Value Loss"] == pytest.approx(0.25 * ((2 - 1 - np.log(2)) ** 2 + (8 - 4 - np.log(2)) ** 2))
    assert len(learner._teach_signals(104)) == 4 and signal.learned == [11] * 4


def test_the_pace_of_sac_s_signals_goes_on_where_it_was_saved() -> None:
    one, two = (sac("hyperparameters.batch_size=6", "network_settings.hidden_units=8", seed=seed) for seed in (0, 1))
    one.learned_until, one.taught_until = 40.0, 50.0
    two.load_state_dict(one.state_dict())
    assert (two.learned_until, two.taught_until) == (40.0, 50.0)


def test_sac_s_signals_learn_from_what_counts_of_its_sequences_alone() -> None:
    memory = "network_settings.memory={memory_size: 8, sequence_length: 3}"
    learner, signal = sac("hyperparameters.batch_size=6", memory), Paying(False)
    learner.signals["rnd"], learner.buffer.size = signal, 12
    learner.buffer.counts[:12:3] = False  # of each sequence, the first decision only warms up
    learner._teach_signals(2)
    assert signal.learned == [4]  # of two sequences
