"""A game whose returns are large: a cart-pole that is paid 1 per decision, up to 500 of them."""

import pytest

from cart_pole import CartPole
from palus.envs.check import check_env
from value_clipping import train


@pytest.mark.parametrize("agents", [1, 2])
def test_the_cart_pole_keeps_the_contract(agents):
    check_env(CartPole(3, agents), make=lambda n: CartPole(n, agents), decisions=80)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", ["ppo", "poca"])
def test_large_returns_are_learned(trainer):
    assert train("cart-pole", trainer, "none", 1, share=1.0)["score"]["decisions of 500"] > 450


@pytest.mark.slow
def test_clipping_values_in_units_of_returns_stops_that():
    # Mostly the first seed; on some processor, in other bits, it may get away with it.
    scores = (train("cart-pole", "ppo", "absolute", seed, share=1.0)["score"] for seed in (1, 2, 3))
    assert any(score["decisions of 500"] < 300 for score in scores)
