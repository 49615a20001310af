"""SAC: formulas by hand, whole gradient steps against a plain reference, and tiny games that it solves in seconds."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from readable import SPEC, two_matches
from toys import Aim, Errand, Forbidden, Pictures, Play, Recall, Remember, curve

from cart_pole import CartPole
from palus.config import load_run
from palus.errors import DivergenceError
from palus.learn.sac import SAC, Acts, drawn, entropy_slopes, policy_losses, soft_values, taken
from palus.rollout.collector import InProcessCollector
from palus.rollout.rollout import Seat
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

HYBRID = ActionSpec((Discrete(2), Continuous(1), Discrete(3)), masked=True)
SPECS = {
    "discrete": ActionSpec((Discrete(2), Discrete(3)), masked=True),
    "continuous": ActionSpec((Continuous(2),)),
    "hybrid": HYBRID,
}


def behavior_of(*settings: str) -> Any:
    defaults = ("trainer_type=sac", "hyperparameters=null", "network_settings=null", "network_settings.hidden_units=8")
    overrides = [f"behaviors.SoccerTwos.{s}" for s in (*defaults, *settings)]
    return load_run("debug", overrides).behaviors["SoccerTwos"]


def learner_of(actions: ActionSpec, *settings: str, seed: int = 3) -> SAC:
    spec = BehaviorSpec("X", (ObservationSpec("obs_0", (3,)), ObservationSpec("obs_1", (2,))), actions)
    return SAC(behavior_of(*settings), spec, torch.float32, seed)


def acts() -> Acts:
    """One state: branch probabilities 1/4 and 3/4, and 1/2, 1/2, 0 of one forbidden; u = 0.5 + 0.5 x 1 = 1."""
    parameters = torch.tensor([[0.0, math.log(3.0), 0.5, math.log(0.5), 0.0, 0.0, -1e8]])
    return drawn(parameters, torch.tensor([[1.0]]), HYBRID, squash=True)


def test_acts_by_hand() -> None:
    found = acts()
    assert found.log_p[0].exp()[0].tolist() == pytest.approx([0.25, 0.75])
    assert found.log_p[1].exp()[0].tolist() == [0.5, 0.5, 0.0]
    assert found.numbers is not None and found.numbers.tolist() == [[pytest.approx(0.7615942)]]  # tanh 1
    # log N(1; 0.5, 0.5) = -1/2 + log 2 - log sqrt(2 pi) = -0.7257914;  log(1 - tanh(1)^2) = -0.8675617
    assert found.log_density.item() == pytest.approx(-0.7257914 + 0.8675617, abs=1e-6)
    unsquashed = drawn(torch.tensor([[0.5, math.log(0.5)]]), torch.ones(1, 1), ActionSpec((Continuous(1),)), False)
    assert unsquashed.numbers is not None and unsquashed.numbers.item() == 1.0
    assert unsquashed.log_density.item() == pytest.approx(-0.7257914, abs=1e-6)
    apart = ActionSpec((Continuous(1), Continuous(1)))  # each with noise of its own: 0 + 1 x 3, 5 - 1 x 2
    both = drawn(torch.tensor([[0.0, 0.0, 5.0, 0.0]]), torch.tensor([[3.0, -2.0]]), apart, False)
    assert both.numbers is not None and both.numbers.tolist() == [[3.0, 3.0]]
    far = drawn(torch.tensor([[60.0, 2.0]]), torch.zeros(1, 1), ActionSpec((Continuous(1),)), True)
    assert far.log_density.item() == pytest.approx(-2.9189385 + 2 * (60 - math.log(2)), rel=1e-6)  # no infinity


def test_values_and_losses_by_hand() -> None:
    found, alpha = acts(), torch.tensor([0.1, 0.2, 0.4])
    q1, q2 = torch.tensor([[4.0, 8.0, 2.0, 6.0, 99.0]]), torch.tensor([[8.0, 8.0, 1.0, 1.0, 99.0]])
    # E Q1 = (7 + 4) / 2 = 5.5, E Q2 = (8 + 1) / 2 = 4.5; sum p log p = -0.5623351 and -log 2; log pi = 0.1417703
    entropy = (0.1 * -0.5623351 + 0.2 * -0.6931472) / 2
    assert soft_values(found, q1, q2, alpha).item() == pytest.approx(4.5 - entropy - 0.4 * 0.1417703, abs=1e-6)
    # of each branch alpha sum p log p - sum p Q1, and alpha log pi - sum of both branches' sum p Q1
    expected = 0.1 * -0.5623351 - 7 + 0.2 * -0.6931472 - 4 + 0.4 * 0.1417703 - 11
    assert policy_losses(found, q1, alpha).item() == pytest.approx(expected, abs=1e-6)
    # targets: 0.2 log 2 twice, as one of three choices is forbidden, and -1
    slopes = [-(-0.5623351 + 0.1386294) / 2, -(-0.6931472 + 0.1386294) / 2, -(0.1417703 - 1.0)]
    assert entropy_slopes(found)[:, 0].tolist() == pytest.approx(slopes, abs=1e-6)
    done = torch.tensor([[1.0, 0.3, 0.0], [0.0, -2.0, 2.0]])
    q = torch.tensor([[4.0, 8.0, 2.0, 6.0, 9.0], [1.0, 2.0, 3.0, 4.0, 5.0]])
    assert taken(q, done, HYBRID).tolist() == [5.0, 3.0]  # (8 + 2) / 2, (1 + 5) / 2
    assert taken(torch.tensor([[7.0]]), torch.tensor([[0.3]]), ActionSpec((Continuous(1),))).tolist() == [7.0]


def filled(learner: SAC, rows: int = 32) -> SAC:
    """The learner with random rows in its buffer; some end, some choices are forbidden."""
    rng, buffer = np.random.default_rng(5), learner.buffer
    for array in (*buffer.observations.values(), *buffer.following.values(), buffer.actions):
        array[:rows] = rng.normal(size=array[:rows].shape)
    if buffer.memory.size:
        buffer.memory[: rows // buffer.length] = rng.uniform(-1, 1, buffer.memory[: rows // buffer.length].shape)
        buffer.keep[:rows], buffer.counts[:rows] = rng.random(rows) < 0.7, rng.random(rows) < 0.7
    buffer.rewards[:rows], buffer.terminated[:rows] = rng.normal(size=rows), rng.random(rows) < 0.3
    spec = learner.spec
    for part, columns in zip(spec.actions.parts, spec.actions.column_slices, strict=True):
        if isinstance(part, Discrete):
            buffer.actions[:rows, columns] = rng.integers(0, part.choices, (rows, 1))
    if buffer.masks is not None:
        buffer.masks[:rows] = rng.random((rows, buffer.masks.shape[1])) < 0.7
        buffer.masks[:rows, spec.branch_offsets[:-1]] = True
    buffer.size = rows // buffer.length * buffer.length
    return learner


@pytest.mark.parametrize("fault", ["reward", "moment", "weight", "step"])
def test_numbers_that_are_not_finite_end_an_update(fault: str) -> None:
    rate = "hyperparameters.learning_rate=" + ("1e39" if fault == "step" else "0.01")  # more than a float32 holds
    learner = SAC(behavior_of("hyperparameters.batch_size=4", rate), SPEC, torch.float32, 0)
    data = two_matches()
    if fault in ("reward", "moment"):  # the second is finite, but its square is not, and Adam would never move again
        data = replace(data, rewards=np.full_like(data.rewards, np.nan if fault == "reward" else 1e25))
    if fault == "weight":
        learner.network.weights.tensors["critic.value.head.weight"].data[0, 0] = np.inf
    with pytest.raises(DivergenceError, match="weights or gradients are not finite; lower learning_rate"):
        learner.update(data, 0)


class Plain:
    """ML-Agents' SAC as section by section of its description, decision by decision, with three optimisers of torch and
    torch's own LSTM."""

    def __init__(self, learner: SAC) -> None:
        self.learner, self.twins = learner, learner.twins
        self.target = copy.deepcopy(self.twins.value)
        named = dict(learner.network.named_parameters())
        alphas = [named.pop("critic.log_coefficients")]
        critics = [p for name, p in named.items() if name.startswith("critic.")]
        policy = [p for name, p in named.items() if not name.startswith("critic.")]
        rate = learner.behavior.hyperparameters.learning_rate
        self.groups = [(group, torch.optim.Adam(group, lr=rate)) for group in (policy, critics, alphas)]
        self.cores = {"actor": learner.network._parts[""][1], "target": self.target.core}
        self.cores |= {name: getattr(self.twins, name).core for name in ("value", "q1", "q2")}

    def remember(self, name: str, x: Any) -> Any:
        """What comes out of a memory for x [1, n], and the memory after it."""
        core = self.cores[name]
        if not core.layers:
            return x, None
        before = self.memory.get(name)
        out, after = core.core(x[None], before)
        return out[0], after

    def estimate(self, name: str, seen: Any, acted: Any = None) -> tuple[Any, Any]:
        module = self.target if name == "target" else getattr(self.twins, name)
        x, after = self.remember(name, module._encoded(seen, acted))
        return module.head(module.layers(x))[0], after

    def step(self, rows: np.ndarray, noise: torch.Tensor) -> None:
        network, buffer, h = self.learner.network, self.learner.buffer, self.learner.behavior.hyperparameters
        log_alpha, count = self.twins.log_coefficients, int(buffer.counts[rows].sum())
        sums = dict.fromkeys(("policy", "critics", "alphas"), torch.zeros(()))
        encoder, _, decoder = network._parts[""]
        for r in range(rows.shape[1]):
            kept = torch.from_numpy(buffer.memory[rows[0, r] // buffer.length])[None, None]
            self.memory = {"actor": tuple(kept.chunk(2, 2))} if network.state_size else {}
            for t in range(len(rows)):
                row, one = int(rows[t, r]), rows[t, r : r + 1]
                if not buffer.keep[row]:
                    self.memory = {}
                seen, after = network.inputs(buffer.observations, one), network.inputs(buffer.following, one)
                masks = None if buffer.masks is None else torch.from_numpy(buffer.masks[one])
                x, actor = self.remember("actor", encoder(seen))
                numbers = network.masked(network.action_parameterization(decoder(x)), masks)[0]
                *losses, memory = self._row(row, noise[t, r], numbers, seen, after, log_alpha)
                self.memory = memory | {"actor": actor}
                for key, loss in zip(sums, losses, strict=True):
                    sums[key] = sums[key] + (loss / count if buffer.counts[row] else 0.0)
        found = [torch.autograd.grad(sums[key], group, retain_graph=True, allow_unused=True)
                 for key, (group, _) in zip(sums, self.groups, strict=True)]  # fmt: skip
        for (group, optimizer), gradients in zip(self.groups, found, strict=True):
            for parameter, gradient in zip(group, gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        with torch.no_grad():
            for slow, quick in zip(self.target.parameters(), self.twins.value.parameters(), strict=True):
                slow.copy_(h.tau * quick + (1 - h.tau) * slow)

    def _row(self, row: int, eps: Any, numbers: Any, seen: Any, after: Any, log_alpha: Any) -> Any:
        spec, buffer = self.learner.spec.actions, self.learner.buffer
        branches, u, log_pi, then, choices, k = [], [], torch.zeros(()), [], [], 0
        for part, own, columns in zip(spec.parts, spec.parameter_slices, spec.column_slices, strict=True):
            stored = torch.from_numpy(buffer.actions[row, columns])
            if isinstance(part, Discrete):
                branches.append(numbers[own].log_softmax(0))
                choices.append(int(stored))
                continue
            for i in range(part.size):
                normal = torch.distributions.Normal(numbers[own][i], numbers[own][part.size + i].clamp(-20, 2).exp())
                u.append(normal.mean + normal.stddev * eps[k])
                log_pi = log_pi + normal.log_prob(u[-1]) - torch.log(1 - torch.tanh(u[-1]) ** 2)
                then.append(torch.tanh(stored[i]))
                k += 1
        a, a_then = (torch.tanh(torch.stack(u))[None], torch.stack(then)[None]) if u else (None, None)
        q_now = [self.estimate(q, seen, a)[0] for q in ("q1", "q2")]
        then_and_memory = {q: self.estimate(q, seen, a_then) for q in ("q1", "q2")}
        q_then, memory = ([pair[k] for pair in then_and_memory.values()] for k in (0, 1))
        value, remembered = self.estimate("value", seen)
        memory = dict(zip(then_and_memory, memory, strict=True)) | {"value": remembered}
        memory["target"] = self.estimate("target", seen)[1]
        alpha = log_alpha.exp().detach()

        def per_branch(q: Any) -> list[Any]:
            return list(torch.split(q, [len(b) for b in branches])) if branches else [q]

        with torch.no_grad():
            before, self.memory = self.memory, memory
            y = buffer.rewards[row] + 0.99 * self.estimate("target", after)[0][0] * (not buffer.terminated[row])
            self.memory = before
            if branches:
                means = [sum((b.exp() * q).sum() for b, q in zip(branches, per_branch(values), strict=True))
                         / len(branches) for values in q_now]  # fmt: skip
                v = min(means) - sum(al * (b.exp() * b).sum() for al, b in zip(alpha, branches, strict=False)) / len(
                    branches
                )
            else:
                v = min(values[0] for values in q_now)
            v = v - (alpha[-1] * log_pi if u else 0.0)
        q_taken = [sum(q[c] for q, c in zip(per_branch(values), choices, strict=True)) / len(choices)
                   if choices else values[0] for values in q_then]  # fmt: skip
        critics = 0.5 * ((value[0] - v) ** 2 + (q_taken[0] - y) ** 2 + (q_taken[1] - y) ** 2)
        policy, alphas = torch.zeros(()), torch.zeros(())
        expected = q_now[0][0]
        if branches:
            pairs = list(zip(branches, per_branch(q_now[0]), strict=True))
            expected = sum((b.exp() * q).sum() for b, q in pairs)
            for al, (b, q) in zip(alpha, pairs, strict=False):
                policy = policy + (al * b.exp() * b - b.exp() * q).sum()
            for log_al, b in zip(log_alpha, branches, strict=False):
                target = 0.2 * math.log(int((b > -1e7).sum()))
                alphas = alphas - log_al.exp() * ((b.exp() * b).sum() + target).detach() / len(branches)
        if u:
            policy = policy + alpha[-1] * log_pi - expected
            alphas = alphas - log_alpha[-1].exp() * (log_pi - len(u)).detach()
        return policy, critics, alphas, memory


@pytest.mark.parametrize("kind", SPECS)
@pytest.mark.parametrize(("threads", "length"), [(1, 1), (2, 1), (2, 3)])
def test_gradient_steps_equal_a_plain_reference_with_three_optimisers(
    kind: str, threads: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palus.learn.sac.PART_ROWS", 2)
    settings = ("hyperparameters.batch_size=6", "hyperparameters.init_entcoef=0.3", "hyperparameters.tau=0.1")
    if length > 1:
        settings += (f"network_settings.memory={{memory_size: 8, sequence_length: {length}}}",)
    made = [filled(learner_of(SPECS[kind], *settings, "network_settings.normalize=true")) for _ in range(2)]
    learner, plain = made[0], Plain(made[1])
    learner.parallel = type(learner.parallel)(learner.network.weights, learner.optimizer, threads)
    generator = torch.Generator()
    for _ in range(3):
        generator.set_state(learner.generator.get_state())
        rows = torch.randint(learner.buffer.size // length, (6 // length,), generator=generator).numpy()
        rows = rows * length + np.arange(length)[:, None]
        noise = torch.randn((*rows.shape, learner.numbers), generator=generator)
        learner._step(3e-4)
        plain.step(rows, noise)
    first = learner_of(SPECS[kind], *settings).network.weights.master
    moved = learner.network.weights.master - first
    error = (learner.network.weights.master - plain.learner.network.weights.master).abs().max()
    assert moved.abs().max() > 8e-4 and error < 2e-6
    slow = torch.cat([p.detach().flatten() for p in plain.target.parameters()])
    mine = torch.cat([p.detach().flatten() for p in learner.target_value.parameters()])
    assert torch.allclose(mine, slow, atol=1e-6)


@pytest.mark.parametrize("kind", SPECS)
def test_a_minibatch_of_which_nothing_counts_moves_nothing(kind: str) -> None:
    """Buffers that older versions saved hold such sequences."""
    settings = ("hyperparameters.batch_size=6", "network_settings.memory={memory_size: 8, sequence_length: 3}")
    learner = filled(learner_of(SPECS[kind], *settings))
    learner.buffer.counts[:] = False
    before = learner.network.weights.master.clone()
    found = learner._step(3e-4)
    assert (learner.network.weights.master == before).all() and np.isfinite(list(found.values())).all()


def test_a_step_tells_the_mean_entropy_coefficient_of_the_branches_and_that_of_the_numbers() -> None:
    learner = filled(learner_of(HYBRID, "hyperparameters.batch_size=6"))
    learner.network.weights.masters["critic.log_coefficients"].copy_(torch.tensor([0.1, 0.3, 0.5]).log())
    found = learner._step(3e-4)
    assert found["Policy/Discrete Entropy Coeff"] == pytest.approx(0.2)
    assert found["Policy/Continuous Entropy Coeff"] == pytest.approx(0.5)


def test_gradient_steps_are_due_by_trainer_steps() -> None:
    """As ML-Agents counts: while (step - buffer_init_steps) / count > steps_per_update, count from 1."""
    settings = ("batch_size=8", "buffer_init_steps=20", "steps_per_update=3", "learning_rate_schedule=linear")
    learner = learner_of(Aim.spec.actions, *(f"hyperparameters.{s}" for s in settings), "max_steps=64")
    learner = SAC(learner.behavior, Aim.spec, torch.float32, 0)
    play, versions, rates = Play(learner, Aim(2)), [], []
    for k in range(4):
        found = learner.update(play.collect(), 16 * k)
        versions.append(learner.network.version)
        rates.append(found.get("Policy/Learning Rate"))
    assert versions == [0, 3, 9, 14]  # steps 16, 32, 48, 64: 12 > 3 count, 28 > 3 count, 44 > 3 count
    assert rates == [None, pytest.approx(1.5e-4), pytest.approx(0.75e-4), pytest.approx(1e-10)]
    assert {"Losses/Q1 Loss", "Losses/Q2 Loss", "Losses/Value Loss", "Losses/Policy Loss", "Policy/Extrinsic Value",
            "Policy/Discrete Entropy Coeff", "Policy/Continuous Entropy Coeff"} <= found.keys()  # fmt: skip


def test_a_buffer_of_fewer_whole_sequences_than_a_minibatch_has_rows_is_learned_from_once_it_is_full() -> None:
    """Of 11 rows it holds two sequences of 4, and so does a minibatch of 9."""
    sizes = ("hyperparameters.buffer_size=11", "hyperparameters.batch_size=9", "hyperparameters.steps_per_update=4")
    memory = "network_settings.memory={memory_size: 8, sequence_length: 4}"
    learner = SAC(behavior_of(*sizes, memory), Aim.spec, torch.float32, 0)
    learner.update(Play(learner, Aim(2)).collect(), 0)
    assert (learner.buffer.capacity, learner.network.version) == (8, 3)  # 16, 12 and 8 > 4


def test_another_learners_weights_are_taken_over_with_what_it_learned_from_but_not_its_pace() -> None:
    made = [SAC(behavior_of("hyperparameters.batch_size=8"), Aim.spec, torch.float32, seed) for seed in (1, 2, 3)]
    donor, heir, beginner = made
    donor.update(Play(donor, Aim(8)).collect(), 0)
    heir.take_over(donor)
    beginner.begin_from(donor.state_dict())  # as `initialize_from` does
    for learner, rows in ((heir, 64), (beginner, 0)):
        assert torch.equal(learner.network.weights.master, donor.network.weights.master)
        assert torch.equal(learner.target.master, donor.target.master)
        assert (learner.learned_until, learner.buffer.size) == (0.0, rows)
        assert learner.network.version == 1  # of its own: what it played before was by other weights
    assert donor.learned_until == 63.0


def test_a_target_network_that_is_not_finite_or_another_one_is_refused() -> None:
    learner = learner_of(HYBRID, "hyperparameters.batch_size=6")
    state = learner.state_dict()
    for wrong in (state["target"][1:], np.full_like(state["target"], np.nan)):
        with pytest.raises(ValueError, match=r"target network: .* numbers; expected"):
            learner.load_state_dict({**state, "target": wrong})


FAST = ("hyperparameters.batch_size=128", "hyperparameters.learning_rate=0.003", "hyperparameters.steps_per_update=20",
        "hyperparameters.init_entcoef=0.1", "hyperparameters.tau=0.02", "network_settings.hidden_units=32")  # fmt: skip


def scores(toy: Any, updates: int, *settings: str) -> list[float]:
    learner = SAC(behavior_of(*FAST, *settings), toy.spec, torch.float32, 1)
    return curve(learner, Play(learner, toy), updates, steps=8 * len(toy.active))


def test_a_game_of_choices_and_numbers_is_solved() -> None:
    found = scores(Aim(64), 12)
    assert np.mean(found[:2]) < 0.2 and np.mean(found[-3:]) > 0.9  # 1 at best


def test_choices_that_are_forbidden_are_never_made_and_the_best_of_the_rest_is_learned() -> None:
    found = scores(Forbidden(64), 12)
    assert found[0] < -0.2 and np.mean(found[-3:]) > -0.06  # 0 at best; the toy asserts the rest


def test_pictures_are_learned() -> None:
    encoder = ("network_settings.vis_encode_type=fully_connected",)
    found = scores(Pictures(64), 10, *encoder)
    assert np.mean(found[:2]) < 0.4 and np.mean(found[-3:]) > 0.9


class Reach:
    """A point on a line is pushed for eight decisions, and paid for being near the middle: it has to brake."""

    spec = BehaviorSpec("reach", (ObservationSpec("obs_0", (2,)),), ActionSpec((Continuous(1, -2.0, 2.0),)))
    group_size, masks = 1, None

    def __init__(self, rows: int) -> None:
        self.rng, self.active, self.age = np.random.default_rng(0), np.ones(rows, np.bool_), np.arange(rows) % 8
        self.place, self.speed = self.rng.uniform(-1, 1, rows), np.zeros(rows)

    def observe(self) -> dict[str, np.ndarray]:
        return {"obs_0": np.stack([self.place, self.speed], 1).astype(np.float32)}

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        assert (np.abs(actions) <= 2.0).all()
        self.speed = self.speed + 0.25 * actions[:, 0]
        self.place = self.place + 0.5 * self.speed
        reward, ended = -np.abs(self.place), self.age == 7
        self.age = np.where(ended, 0, self.age + 1)
        self.place = np.where(ended, self.rng.uniform(-1, 1, len(reward)), self.place)
        self.speed = np.where(ended, 0.0, self.speed)
        return reward, ended


def test_a_point_is_steered_with_continuous_actions() -> None:
    found = scores(Reach(64), 16, "reward_signals.extrinsic.gamma=0.9")
    assert np.mean(found[:2]) < -0.8 and np.mean(found[-3:]) > -0.12


@pytest.mark.slow
def test_the_cart_pole_is_balanced() -> None:
    settings = ("learning_rate=0.003", "steps_per_update=2", "init_entcoef=0.2", "tau=0.02", "batch_size=64")
    behavior = behavior_of(*(f"hyperparameters.{s}" for s in settings), "network_settings.hidden_units=64")
    env, lengths, step = CartPole(4), list[int](), 0
    learner = SAC(behavior, env.spec.behaviors[0], torch.float32, 1)
    acting = {0: ("CartPole", learner.network)}
    collector = InProcessCollector(env, acting, lambda slot: [Seat(0, True)], 16, 1, {0: 1}, lambda policy: None)
    while step < 5000:
        collected = collector.collect()
        learner.update(collected.rollouts[0], step)
        step += collected.rollouts[0].agent_steps
        lengths += [episode.length for episode in collected.episodes]
    assert np.mean(lengths[:10]) < 60 and np.mean(lengths[-10:]) > 150


def test_a_goal_decides_what_is_right() -> None:
    found = scores(Errand(64), 5, "hyperparameters.learning_rate=0.001")
    assert found[0] < 0.45 and np.mean(found[-2:]) > 0.95


def test_a_recurrent_policy_learns_to_remember_and_another_cannot() -> None:
    memory = "network_settings.memory={memory_size: 32, sequence_length: 4}"
    found, without = scores(Recall(64), 9, memory), scores(Recall(64), 6)
    assert np.mean(found[:2]) < 0.62 and np.mean(found[-4:]) > 0.9
    assert 0.4 < np.mean(without[-4:]) < 0.6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        ((Discrete(2), Continuous(1, -2.0, 2.0)), False),
        ((Continuous(1, -2.0, 2.0),), False),
        ((Continuous(1, -2.0, 2.0),), True),
    ],
)
def test_a_recurrent_policy_remembers_with_any_actions_and_of_lists_too(parts: Any, listed: bool) -> None:
    memory = "network_settings.memory={memory_size: 32, sequence_length: 4}"
    found = scores(Remember(*parts, listed=listed, rows=64), 24 if listed else 12, memory)
    assert found[0] < 0.4 and np.mean(found[-3:]) > 0.8  # half without a memory
