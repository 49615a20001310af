"""Trajectories: what counts as a sample, and that arrays of the wrong shape are refused where they are made."""

from __future__ import annotations

import numpy as np
import pytest

from palus.rollout.trajectories import EpisodeEnd, Trajectories

T, B = 4, 3


def trajectories(**changes) -> Trajectories:
    floats, flags = np.zeros((T, B), np.float32), np.zeros((T, B), np.bool_)
    valid = flags.copy()
    valid[:, :2] = True
    fields = {
        "observations": {"obs": np.zeros((T + 1, B, 3, 8, 8), np.uint8)},
        "states": np.zeros((B, 16), np.float32),
        "last_states": np.zeros((B, 16), np.float32),
        "actions": np.zeros((T, B, 2), np.float32),
        "parameters": np.zeros((T, B, 5), np.float32),
        "log_probs": floats,
        "values": floats,
        "rewards": floats,
        "terminated": flags,
        "truncated": flags,
        "final_values": floats,
        "valid": valid,
        "versions": np.zeros((T, B), np.int32),
        "frames": 32,
    }
    return Trajectories(**{**fields, **changes})


def test_only_valid_decisions_are_samples() -> None:
    assert trajectories().samples == 8


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("actions", np.zeros((T + 1, B, 2), np.float32)),
        ("observations", {"obs": np.zeros((T, B, 3), np.float32)}),
        ("states", np.zeros((B + 1, 16), np.float32)),
        ("last_states", np.zeros((B, 8), np.float32)),
    ],
)
def test_arrays_of_another_shape_are_refused(field, value) -> None:
    with pytest.raises(ValueError, match="expected"):
        trajectories(**{field: value})


def test_the_true_objective_falls_back_to_the_reward() -> None:
    assert EpisodeEnd(0, 0, 0, 2100, 67.0, {"true_objective": 21.0}).true_objective == 21.0
    assert EpisodeEnd(0, 0, 0, 2100, 67.0, {}).true_objective == 67.0
