"""A policy that keeps to the mirror image of its game: before, while and after it learns, and in its file."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
import torch

from palus import envs
from palus.config import load_run
from palus.errors import ConfigError, ModelError
from palus.learn import ALGORITHMS
from palus.train import Run
from palus.types import ActionSpec, Continuous

SPEC = envs.make("SoccerTwos", 1).spec.behaviors[0]
SYMMETRIC = "behaviors.SoccerTwos.network_settings.symmetric=true"
SMALL = "behaviors.SoccerTwos.network_settings.hidden_units=16"


def learner(trainer, *overrides, spec=SPEC):
    run = load_run("debug", [f"behaviors.SoccerTwos.trainer_type={trainer}", SMALL, SYMMETRIC, *overrides])
    return ALGORITHMS[trainer](run.behaviors["SoccerTwos"], spec, torch.float32, 1)


def both():
    """Observations of five agents, and their mirror images."""
    x = np.random.default_rng(2).random((5, SPEC.observation_size), np.float32)
    cut = np.cumsum([0, *SPEC.observation_sizes])

    def named(x):
        return {
            o.name: np.ascontiguousarray(x[:, a:b]) for o, a, b in zip(SPEC.observations, cut, cut[1:], strict=False)
        }

    return named(x), named(x[:, list(SPEC.reflection.observations)])


@torch.no_grad()
def asymmetry(network) -> float:
    """By how much the answer to the mirror image is not the mirror image of the answer."""
    (plain, value, _), (mirrored, image, _) = (
        network(network.inputs(x), torch.zeros(5, 0), torch.ones(1, 5)) for x in both()
    )
    off = (plain[:, list(SPEC.reflection.logits)] - mirrored).abs().max()
    return float(off if value is None else max(off, (value - image).abs().max()))


@pytest.mark.parametrize("trainer", ["ppo", "poca"])
def test_a_policy_stays_symmetric_while_it_learns_and_in_its_file(trainer, tmp_path) -> None:
    where = [f"checkpoint_settings.results_dir={tmp_path}", f"behaviors.SoccerTwos.trainer_type={trainer}"]
    run = Run(load_run("debug", [*where, SMALL, SYMMETRIC]))
    try:
        network = run.trainees[0].learner.network
        before = network.weights.master.clone()
        for _ in range(2):
            run.iterate()
        assert asymmetry(network) < 1e-5 and not torch.equal(network.weights.master, before)
        session = onnxruntime.InferenceSession(network.onnx().SerializeToString())
        named = {i.name for i in session.get_inputs()}
        answers = []
        for x in both():
            masks = {"action_masks": np.ones((5, 9), np.float32)}
            feed = {k: v for k, v in ({f"obs_{i}": o for i, o in enumerate(x.values())} | masks).items() if k in named}
            answers.append(session.run(["deterministic_discrete_actions"], feed)[0])
        ahead, aside = answers[0][:, :1], np.array([0, 2, 1])[answers[0][:, 1:]]
        np.testing.assert_array_equal(answers[1], np.hstack([ahead, aside]))
    finally:
        run.close()


@torch.no_grad()
def test_hidden_units_come_in_pairs_of_which_one_answers_the_image_as_the_other_answers_what_is_seen() -> None:
    network = learner("ppo").network
    answers = [network._parts[side][0](network.inputs(x)) for side in network.sides for x in both()]
    for plain, mirrored in zip(answers[::2], answers[1::2], strict=True):
        torch.testing.assert_close(mirrored, plain.roll(8, 1))
        assert not torch.allclose(mirrored, plain)  # it can tell left from right


def test_weights_that_are_not_symmetric_are_refused() -> None:
    other = learner("ppo", "behaviors.SoccerTwos.network_settings.symmetric=false")
    with pytest.raises(ModelError, match="symmetric"):
        learner("ppo").load_state_dict(other.state_dict())


@pytest.mark.parametrize(
    ("overrides", "spec"),
    [
        ((), replace(SPEC, reflection=None)),
        (("behaviors.SoccerTwos.network_settings.hidden_units=15",), SPEC),
        (("behaviors.SoccerTwos.network_settings.memory.memory_size=8",), SPEC),
        (("behaviors.SoccerTwos.network_settings.encoding=apart",), SPEC),
        (("behaviors.SoccerTwos.network_settings.decoder_layers=[8, 7]",), SPEC),
        ((), replace(SPEC, observations=tuple(replace(o, goal=True) for o in SPEC.observations))),
        ((), replace(SPEC, actions=ActionSpec((*SPEC.actions.parts, Continuous(1))))),
    ],
)
def test_what_has_no_mirror_image_is_refused(overrides, spec) -> None:
    with pytest.raises(ConfigError, match=r"network_settings\.symmetric: SoccerTwos has"):
        learner("ppo", *overrides, spec=spec)
