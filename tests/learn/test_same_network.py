"""Which settings of a network saved weights depend on."""

from __future__ import annotations

from typing import Any

import pytest

from palus.config.network import NetworkSettings
from palus.errors import ModelError
from palus.learn.same_network import refuse_another
from palus.types import ActionSpec, BehaviorSpec, Continuous, Discrete, ObservationSpec

VECTOR, IMAGE = ObservationSpec("v", (3,)), ObservationSpec("i", (3, 20, 20), "uint8")
GOAL = ObservationSpec("g", (2,), goal=True)
CHOICES, NUMBERS = ActionSpec((Discrete(2),)), ActionSpec((Continuous(2, -1.0, 1.0),))
WITH_MEMORY: dict[str, Any] = {"memory": {"memory_size": 8}}


@pytest.mark.parametrize(
    ("key", "before", "now", "seen", "acts"),
    [
        ("normalize", {"normalize": True}, {}, VECTOR, CHOICES),
        ("normalize_names", {"normalize": True}, {"normalize": True, "normalize_names": ["x"]}, VECTOR, CHOICES),
        ("activation", {}, {"activation": "tanh"}, VECTOR, CHOICES),
        ("hidden_units", {}, {"hidden_units": 8}, VECTOR, CHOICES),
        ("image_scale", {}, {"image_scale": 1.0}, IMAGE, CHOICES),
        ("goal_conditioning_type", {}, {"goal_conditioning_type": "none"}, GOAL, CHOICES),
        ("squash", {}, {"squash": True}, VECTOR, NUMBERS),
        ("tanh_scale", {"tanh_scale": 2.0}, {}, VECTOR, NUMBERS),
        ("range_end", {}, {"range_end": 3.0}, VECTOR, NUMBERS),
        ("range_end", {"range_end": 3.0}, {}, VECTOR, NUMBERS),
        ("memory", {}, WITH_MEMORY, VECTOR, CHOICES),
        ("memory.kind", WITH_MEMORY, {"memory": {"memory_size": 8, "kind": "gru"}}, VECTOR, CHOICES),
    ],
)
def test_settings_by_which_weights_compute_something_else_are_named(
    key: str, before: dict[str, Any], now: dict[str, Any], seen: ObservationSpec, acts: ActionSpec
) -> None:
    saved, spec = NetworkSettings.model_validate(before).model_dump(mode="json"), BehaviorSpec("X", (seen,), acts)
    with pytest.raises(ModelError, match=rf"^network_settings\.{key} is .* here, and was .* where the weights are"):
        refuse_another(saved, NetworkSettings.model_validate(now), spec)


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({"initialization": "torch", "initialization_gain": 2.0, "initial_deviation": 0.5}, {}),
        ({"deterministic": True}, {}),
        ({"image_scale": 1.0, "squash": True, "tanh_scale": 2.0, "goal_conditioning_type": "none"}, {}),
        ({"normalize_names": ["x"]}, {}),
        (WITH_MEMORY, {"memory": {"memory_size": 8, "sequence_length": 4}}),
    ],
)
def test_settings_that_compute_nothing_in_this_game_may_change(before: dict[str, Any], now: dict[str, Any]) -> None:
    saved = NetworkSettings.model_validate(before).model_dump(mode="json")
    refuse_another(saved, NetworkSettings.model_validate(now), BehaviorSpec("X", (VECTOR,), CHOICES))
    refuse_another({}, NetworkSettings(activation="tanh"), BehaviorSpec("X", (VECTOR,), CHOICES))  # of an older version


def test_numbers_of_an_older_version_were_in_the_units_of_the_game() -> None:
    game = BehaviorSpec("X", (VECTOR,), NUMBERS)
    refuse_another({}, NetworkSettings(activation="tanh"), game)
    with pytest.raises(ModelError, match=r"range_end is 3\.0 here, and was 0\.0 where the weights are from"):
        refuse_another({}, NetworkSettings(range_end=3.0), game)
    refuse_another({"squash": True}, NetworkSettings(range_end=3.0, squash=True), game)  # which has units of its own
    endless = BehaviorSpec("X", (VECTOR,), ActionSpec((Continuous(2), Continuous(1, low=0.0))))
    refuse_another({}, NetworkSettings(range_end=3.0), endless)
