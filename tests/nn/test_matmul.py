"""The choice of a matrix path: by measurement, never a slower one, and bfloat16 only where it pays for its rounding."""

import pytest
import torch

from palus.errors import ConfigError
from palus.nn import matmul
from palus.nn.matmul import (
    PATHS,
    MatmulPath,
    choose,
    choose_once,
    exact_setting,
    explain,
    fastest_everywhere,
    measure,
    slowness,
)

FP32, FINER, ROUNDED = 3e-7, 3e-4, 3e-3


@pytest.fixture(autouse=True)
def precision():
    before, rounded = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    yield
    torch.set_float32_matmul_precision(before)
    torch.backends.cudnn.allow_tf32 = rounded


def measured(monkeypatch, medium, bf16, medium_error=FP32, int16=None):
    """Let the paths have these rates; `highest` has 100. int16: None where there is none."""
    paths = {
        "highest": MatmulPath("highest", 100.0, FP32),
        "medium": MatmulPath("medium", medium, medium_error),
        "bf16": MatmulPath("bf16", bf16, ROUNDED),
        "int16": MatmulPath("int16", int16, FINER),
    }
    monkeypatch.setattr(matmul, "measure", lambda name, seconds, device: paths[name])
    monkeypatch.setattr(matmul.int16, "AVAILABLE", int16 is not None)


def test_errors_are_those_of_the_number_formats():
    highest, medium, bf16 = (measure(name, seconds=0.0) for name in PATHS[:3])
    assert highest.error < 2e-6
    assert medium.error < 2e-6 or 1e-3 < medium.error < 1e-2  # rounded where the CPU multiplies in bfloat16
    assert 1e-3 < bf16.error < 1e-2
    assert min(p.gflops for p in (highest, medium, bf16)) > 0


@pytest.mark.skipif(not matmul.int16.AVAILABLE, reason="such products take a CPU with AVX2")
def test_the_error_of_whole_numbers_is_below_that_of_bf16():
    assert 1e-4 < measure("int16", seconds=0.0).error < 1e-3


@pytest.mark.parametrize("rounded", [False, True])
def test_measuring_leaves_the_precision_as_it_was(rounded):
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = rounded
    measure("highest" if rounded else "medium", seconds=0.0)
    assert torch.get_float32_matmul_precision() == "high" and torch.backends.cudnn.allow_tf32 is rounded


@pytest.mark.parametrize(("name", "rounds"), [("highest", False), ("medium", True), ("bf16", False)])
def test_fp32_on_a_gpu_is_fp32_in_convolutions_too(name, rounds):
    MatmulPath(name, 0.0, 0.0).activate(torch.device("cuda"))
    assert torch.backends.cudnn.allow_tf32 is rounds
    assert torch.backends.cuda.matmul.allow_tf32 is rounds


def test_the_rate_counts_two_products_by_the_given_clock():
    seconds = iter([0.0, 0.5] + [1.0] * 9)  # one repetition of half a second
    assert measure("highest", seconds=0.0, clock=lambda: next(seconds)).gflops == pytest.approx(
        4 * 2048 * 512 * 512 / 0.5 / 1e9
    )


def test_a_path_that_was_asked_for_is_taken_beside_the_plain_one():
    assert [p.name for p in choose("bf16")[1]] == ["highest", "bf16"]
    path, seen = choose("highest")
    assert (path.name, [p.name for p in seen]) == ("highest", ["highest"])
    assert path.dtype == torch.float32
    assert path.error < 2e-6


@pytest.mark.parametrize(
    ("medium", "bf16", "medium_error", "chosen"),
    [
        (80.0, 10.0, FP32, "highest"),
        (104.0, 10.0, FP32, "highest"),  # within the noise of a measurement
        (110.0, 10.0, FP32, "medium"),
        (110.0, 10.0, ROUNDED, "highest"),  # rounding has to pay by a fifth
        (130.0, 10.0, ROUNDED, "medium"),
        (100.0, 119.0, FP32, "highest"),
        (100.0, 121.0, FP32, "bf16"),
        (200.0, 230.0, FP32, "medium"),  # measured against the best before it
        (200.0, 250.0, FP32, "bf16"),
        (1.0, 1.0, FP32, "highest"),
    ],
)
def test_auto_takes_the_fastest_that_is_worth_its_error(monkeypatch, medium, bf16, medium_error, chosen):
    measured(monkeypatch, medium, bf16, medium_error)
    path, seen = choose("auto")
    assert path.name == chosen
    assert path.gflops >= 100.0
    assert [p.name for p in seen] == list(PATHS[:3])


def test_what_a_process_measured_it_measures_no_more(monkeypatch):
    choose_once.cache_clear()
    try:
        measured(monkeypatch, 110.0, 10.0)
        assert choose_once("auto")[0].name == "medium"
        measured(monkeypatch, 100.0, 200.0)
        assert choose("auto")[0].name == "bf16"
        assert choose_once("auto")[0].name == "medium" and choose_once("highest")[0].name == "highest"
    finally:
        choose_once.cache_clear()


@pytest.mark.parametrize(
    ("bf16", "int16", "chosen"),
    [(10.0, 99.0, "highest"), (10.0, 101.0, "int16"), (200.0, 239.0, "bf16"), (200.0, 241.0, "int16")],
)
def test_whole_numbers_have_to_win_and_over_bf16_by_a_fifth(monkeypatch, bf16, int16, chosen):
    measured(monkeypatch, 100.0, bf16, int16=int16)
    path, seen = choose("auto")
    assert path.name == chosen and [p.name for p in seen] == list(PATHS)
    assert "fastest of" in explain(path, seen)


@pytest.mark.parametrize(("device", "available"), [("cpu", False), ("meta", True)])
def test_whole_numbers_take_a_cpu_that_has_them(monkeypatch, device, available):
    measured(monkeypatch, 100.0, 10.0, int16=500.0 if available else None)
    with pytest.raises(ConfigError, match=rf"palus.matmul int16: {device} has no such products"):
        choose("int16", torch.device(device))
    assert "int16" not in [path.name for path in choose("auto", torch.device(device))[1]]


def test_ranks_take_what_all_of_them_have():
    slow, fast = (MatmulPath("highest", rate, FP32) for rate in (90.0, 100.0))
    coded = [MatmulPath("int16", rate, FINER) for rate in (120.0, 85.0)]
    assert fastest_everywhere([[fast, coded[0]], [slow, coded[0]]]) == "int16"
    assert fastest_everywhere([[fast, coded[0]], [slow, coded[1]]]) == "highest"
    assert fastest_everywhere([[fast, coded[0]], [slow]]) == "highest"


def test_another_program_that_runs_for_a_moment_does_not_change_the_choice(monkeypatch):
    rates = {"highest": [90, 100, 40], "medium": [30, 20, 200], "bf16": [20, 110, 10]}
    monkeypatch.setattr(matmul.int16, "AVAILABLE", False)
    monkeypatch.setattr(matmul, "measure", lambda name, seconds, device: MatmulPath(name, rates[name].pop(0), FP32))
    path, seen = choose("auto")
    assert path.name == "medium"
    assert [p.gflops for p in seen] == [100, 200, 110]
    rates |= {"highest": [90, 100, 40], "medium": [30, 20, 200], "bf16": [17]}  # what cannot win is not tried again
    assert [p.gflops for p in choose("auto")[1]] == [100, 200, 17]


@pytest.mark.parametrize("rounds", [False, True])
def test_activating_a_path_takes_what_keeps_fp32_except_where_rounding_is_asked_for(monkeypatch, rounds):
    monkeypatch.setattr(matmul, "_error", lambda *_: ROUNDED if rounds else FP32)
    exact_setting.cache_clear()
    try:
        settings = {}
        for name in PATHS:
            torch.set_float32_matmul_precision("high")
            MatmulPath(name, 1.0, 0.0).activate()
            settings[name] = torch.get_float32_matmul_precision()
    finally:
        exact_setting.cache_clear()
    exact = "highest" if rounds else "medium"
    assert settings == {"highest": exact, "medium": "medium", "bf16": exact, "int16": exact}


def test_a_path_that_is_slower_here_is_warned_of_with_both_rates(monkeypatch):
    measured(monkeypatch, 100.0, 25.0)
    assert slowness(*choose("bf16"), setting="bf16") == (
        "palus.matmul bf16 makes 25 GFLOP/s on one thread here, highest 100: 4.0 times slower, as on CPUs without bf16 "
        "units; remove palus.matmul, or set it to highest."
    )
    resumed = slowness(*choose("bf16"))  # by a file that leaves the path to the run
    assert resumed is not None and resumed.endswith(
        "; the run began with it. palus.matmul: highest would go on by the faster one, to other bits."
    )
    measured(monkeypatch, 100.0, 190.0)
    assert slowness(*choose("bf16")) is None
    assert slowness(*choose("auto")) is None
    assert "fastest of" in explain(*choose("auto"))
    assert "bf16: as the run file says, measured" in explain(*choose("bf16"), setting="bf16")
    assert "bf16: as the run began, measured" in explain(*choose("bf16"))  # which was resumed


def test_a_quarter_faster_is_worth_a_warning_and_less_is_not():
    slow, near, far = (MatmulPath(*own, FP32) for own in (("highest", 100.0), ("medium", 124.0), ("bf16", 126.0)))
    assert slowness(slow, [slow, near]) is None
    told = slowness(slow, [slow, near, far])
    assert told is not None and told.startswith("palus.matmul highest makes 100 GFLOP/s on one thread here, bf16 126: ")


def test_ranks_may_name_the_setting_that_keeps_fp32():
    """What one of them has found is taken by all."""
    for exact in ("highest", "medium"):
        MatmulPath("highest", 1.0, 0.0).activate(exact=exact)
        assert torch.get_float32_matmul_precision() == exact


@pytest.mark.parametrize("error", [FP32, ROUNDED])
def test_to_find_what_keeps_fp32_leaves_the_precision_as_it_was(monkeypatch, error):
    monkeypatch.setattr(matmul, "_error", lambda *_: error)
    exact_setting.cache_clear()
    try:
        torch.set_float32_matmul_precision("high")
        assert exact_setting() == ("medium" if error == FP32 else "highest")
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        exact_setting.cache_clear()
