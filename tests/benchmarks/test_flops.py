"""Counted operations of the reference networks: 336 floats, 512 x 2, 3 x 3 actions, teams of two."""

import pytest
import torch

import flops
from palus.config import load_run
from palus.envs import make
from palus.learn import ALGORITHMS

POLICY = {"layers.0.weight": (512, 336), "layers.2.weight": (512, 512)}
HEADS = {"action_parameterization.distribution_linear.weight": (9, 512)}
PPO = (
    {f"{side}_encoder.{name}": shape for side in ("actor", "critic") for name, shape in POLICY.items()}
    | HEADS
    | {"critic_linear.weight": (1, 512)}
)
SQUARES = ("attention.out", "layers.0", "layers.2")
POCA = (
    {f"encoder.{name}": shape for name, shape in POLICY.items()}
    | HEADS
    | {"critic.observation.weight": (512, 336), "critic.action.weight": (512, 345), "critic.head.weight": (1, 513)}
    | {"critic.attention.query_key_value.weight": (3 * 512, 512)}
    | {f"critic.{name}.weight": (512, 512) for name in SQUARES}
)


@pytest.mark.parametrize(("preset", "counted"), [("soccertwos-ppo", PPO), ("soccertwos", POCA)])
def test_the_shapes_are_those_of_the_presets_networks(preset, counted):
    behavior = load_run(preset).behaviors["SoccerTwos"]
    spec = make("SoccerTwos", 1).spec.behavior("SoccerTwos")
    shapes = ALGORITHMS[behavior.trainer_type](behavior, spec, torch.float32, seed=0).network.weights.shapes
    assert {name: shape for name, shape in shapes.items() if name.endswith(".weight")} == counted


def test_layers_fed_by_observations_need_no_gradient_of_their_input():
    # Twice (actor, critic) 336 x 512: forward and weight gradient. 512 x 512 and the heads: input gradient too.
    assert flops.training_flop("ppo", PPO, 1) == 2 * (2 * 2 * 336 * 512 + 3 * (2 * 512 * 512 + 9 * 512 + 512))


def test_a_trained_agent_step_costs_what_is_published_for_the_reference_task():
    # Three epochs, one estimate, and a forward pass of the policy for the agent and for its opponent.
    def per_agent_step(trainer, shapes, group):
        update = flops.update_flop(trainer, shapes, group, flops.Work(trained=3, estimated=1, bootstrapped=0))
        return update / group + 2 * flops.acting_flop(shapes)

    assert per_agent_step("ppo", PPO, 1) == pytest.approx(16.3e6, rel=0.005)
    assert per_agent_step("poca", POCA, 2) == pytest.approx(76e6, rel=0.01)


def test_the_value_alone_is_one_set_of_embeddings():
    # Two agents: embedded once, projected three times, mixed once; one row of the body.
    assert flops.estimate_flop("poca", POCA, 2, value_only=True) == 2 * (
        2 * 336 * 512 + (3 * 2 + 2) * 512 * 512 + 2 * 512 * 512 + 513
    )


def test_a_layer_that_nobody_counted_is_an_error():
    with pytest.raises(KeyError):
        flops.training_flop("poca", POCA | {"critic.gate.weight": (512, 512)}, 2)
