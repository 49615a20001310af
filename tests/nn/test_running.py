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


def test_sums_of_bytes_hold_more_rows_than_32_bits_do() -> None:
    """70,000 squares of 255 are more than 2^32."""
    rows = np.repeat(np.array([[255], [0]], np.uint8), [70_000, 10_000], axis=0)
    mean, variance = moments(rows, np.arange(80_000), 255.0)
    np.testing.assert_allclose((mean[0], variance[0]), (7 / 8, 7 / 64), rtol=1e-12)


def test_vectors_are_normalised_clipped_and_written_beside_others() -> None:
    scaler, rows = ObservationScaler((2,), 2.0, True), np.array([[9, 9], [40, -40], [6, 4]], np.float32)
    scaler.take([None, (np.array([2.0, 1.0]), np.array([3.0, 1.0]), 1)])
    # With the virtual sample: means 1 and 1/2, variances (1 + 3 + 4/2) / 2 = 3 and (1 + 1 + 1/2) / 2 = 5/4.
    out = torch.full((2, 4), 7.0)
    scaler.write(rows, np.array([1, 2]), out.numpy(), 1)
    expected = [[7, 5, -5, 7], [7, 2 / 3.00001**0.5, 1.5 / 1.25001**0.5, 7]]
    np.testing.assert_allclose(out, expected, rtol=1e-6)
    assert not scaler.moments_of(rows, np.array([], np.int64))
    scaler.move(torch.device("cpu"))
    np.testing.assert_allclose(scaler.scaled(torch.from_numpy(rows[1:]), torch.float32), out[:, 1:3], rtol=1e-6)
    plain = ObservationScaler((2,), 2.0, False)
    assert plain(rows, np.array([1]), torch.float32).tolist() == [[20.0, -20.0]]  # clipped nowhere


def test_who_follows_scales_as_the_other_one_did_then() -> None:
    one, other = ObservationScaler((1,), 1.0, True), ObservationScaler((1,), 1.0, True)
    assert other.moments is not None
    other.update(np.array([[4.0], [8.0]], np.float32), np.arange(2))  # and a virtual 0: the mean is 4
    one.follow(other)
    row = np.array([[5.0]], np.float32)
    expected = other(row, np.array([0]), torch.float32)
    other.update(np.array([[100.0]], np.float32), np.arange(1))
    assert torch.equal(one(row, np.array([0]), torch.float32), expected)
    assert one.moments is not None and one.moments.mean.tolist() == [4.0]
    assert expected.item() == pytest.approx(1 / 11.00001**0.5)  # variance (1 + 2 x 4 + 6^2 x 2/3) / 3


@pytest.mark.parametrize("name", ["running_mean", "running_var"])
def test_moments_of_another_size_are_refused(name: str) -> None:
    arrays = RunningMoments(2).arrays("") | {name: np.ones(3)}
    with pytest.raises(ValueError, match="expected 2"):
        RunningMoments(2).load_arrays(arrays, "")


def test_a_copy_goes_on_as_the_moments_would_have() -> None:
    one = RunningMoments(1)
    one.update(np.array([4.0]), np.array([2.0]), 9)
    other = one.copy()
    for each in (one, other):
        each.update(np.array([1.0]), np.array([0.0]), 5)
    assert (one.mean, one.variance, one.count) == (other.mean, other.variance, other.count)


def test_what_was_captured_reads_the_newest_moments() -> None:
    """From the memory that it was captured with."""
    scaler, rows = ObservationScaler((2,), 1.0, True), np.array([[3.0, 5.0]], np.float32)
    scaler.move(torch.device("cpu"))
    assert scaler._there is not None
    captured = scaler._there
    scaler.update(np.array([[2.0, 4.0], [4.0, 8.0]], np.float32), np.arange(2))
    found = torch.addcmul(captured[1], torch.from_numpy(rows), captured[0])
    torch.testing.assert_close(found, scaler(rows, np.array([0]), torch.float32))
