"""Running moments and the one-pass scaling of observations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from palus.nn.running import ObservationScaler, RunningMoments, moments, moments_there


def test_batches_add_up_to_the_moments_of_everything_and_one_virtual_sample() -> None:
    running, data = RunningMoments(2), np.random.default_rng(0).normal(3.0, 2.0, (50, 2))
    for batch in np.split(data, [10, 11, 40]):
        running.update(batch.mean(0), batch.var(0), len(batch))
    everything = np.concatenate([[[-1.0, -1.0], [1.0, 1.0]]] * 1 + [data, data])  # +-1: mean 0, variance 1, half weight
    np.testing.assert_allclose(running.mean, everything.mean(0))
    np.testing.assert_allclose(running.variance, everything.var(0))
    assert running.count == 51


def test_moments_of_bytes_are_exact() -> None:
    rows = np.random.default_rng(0).integers(0, 256, (300, 7), np.uint8)
    index = np.arange(0, 300, 2)
    mean, variance = moments(rows, index, 255.0)
    np.testing.assert_allclose(mean, (rows[index] / 255.0).mean(0))
    np.testing.assert_allclose(variance, (rows[index] / 255.0).var(0))


def test_a_device_finds_the_same_moments_of_bytes_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.nn.running.SUMMED_ROWS", 64)
    rows, index = np.random.default_rng(0).integers(0, 256, (300, 7), np.uint8), np.arange(0, 300, 2)
    found = moments_there(torch.from_numpy(rows), torch.from_numpy(index), 255.0)
    for there, here in zip(found, moments(rows, index, 255.0), strict=True):
        np.testing.assert_array_equal(there, here)


@pytest.mark.parametrize(("dtype", "error"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02)])
def test_images_are_normalised_pixel_by_pixel_and_clipped(dtype: torch.dtype, error: float) -> None:
    rng = np.random.default_rng(1)
    rows = rng.integers(100, 120, (200, 3, 4, 5), np.uint8)
    scaler = ObservationScaler((3, 4, 5), 255.0, True)
    scaler.update(rows, np.arange(200))
    shown = rows.copy()
    shown[0, 0, 0, 0] = 255
    found = scaler(shown, np.array([3, 0]), dtype)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert scaler.moments is not None
    mean, deviation = (x.reshape(3, 4, 5) for x in (scaler.moments.mean, scaler.moments.deviation))
    expected = np.clip((shown[[3, 0]] / 255.0 - mean) / deviation, -5.0, 5.0)
    np.testing.assert_allclose(found.float(), expected, atol=error)


def test_without_normalisation_images_are_only_divided() -> None:
    rows = np.array([[[[0, 51]], [[102, 255]]]], np.uint8)
    np.testing.assert_allclose(
        ObservationScaler((2, 1, 2), 255.0, False)(rows, np.array([0]), torch.float32), [[[[0, 0.2]], [[0.4, 1.0]]]]
    )
