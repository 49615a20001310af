"""Counted operations of the reference networks: 336 floats, 512 x 2, 3 x 3 actions, teams of two."""

import pytest

import flops

ACTOR = {"actor_layer0_weight": (512, 336), "actor_layer1_weight": (512, 512), "actor_heads_weight": (9, 512)}
PPO = ACTOR | {"critic_layer0_weight": (512, 336), "critic_layer1_weight": (512, 512), "critic_value_weight": (1, 512)}
SQUARES = ("out", "layer0", "layer1")
POCA = (
    ACTOR
    | {"critic_observation_weight": (512, 336), "critic_action_weight": (512, 345), "critic_head_weight": (1, 513)}
    | {"critic_query_key_value_weight": (3 * 512, 512)}
    | {f"critic_{name}_weight": (512, 512) for name in SQUARES}
)


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
        flops.training_flop("poca", POCA | {"critic_gate_weight": (512, 512)}, 2)
