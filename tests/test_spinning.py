"""How many threads may spin, and what OpenMP is told of it."""

import os

import numba
import pytest

from palus import spinning


@pytest.fixture(autouse=True)
def _layer(monkeypatch):
    monkeypatch.setattr(spinning.config, "THREADING_LAYER", spinning.config.THREADING_LAYER)


def test_half_of_the_threads_spin_where_there_are_enough(monkeypatch):
    monkeypatch.setattr(spinning, "_has_openmp", lambda: True)
    assert [spinning.spinners(threads) for threads in (1, 3, 4, 7, 16)] == [0, 0, 2, 3, 8]
    monkeypatch.setattr(spinning, "_has_openmp", lambda: False)
    assert spinning.spinners(16) == 0


def test_openmp_is_told_to_spin_as_it_loads_and_nobody_else_is(monkeypatch):
    told = []
    monkeypatch.setattr(spinning.importlib, "import_module", lambda name: told.append(os.environ["GOMP_SPINCOUNT"]))
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    assert spinning._has_openmp.__wrapped__() and "GOMP_SPINCOUNT" not in os.environ
    assert spinning.config.THREADING_LAYER == "omp"
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert spinning._has_openmp.__wrapped__() and os.environ["GOMP_SPINCOUNT"] == "7"
    assert told == [str(spinning.TURNS), "7"]


def test_a_numba_without_openmp_has_no_threads_that_spin(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(spinning.importlib, "import_module", missing)
    monkeypatch.setattr(spinning.config, "THREADING_LAYER", "default")
    assert not spinning._has_openmp.__wrapped__() and "GOMP_SPINCOUNT" not in os.environ
    assert spinning.config.THREADING_LAYER == "default"  # a game may have threads of its own


def test_no_more_threads_are_taken_than_there_are():
    before = numba.get_num_threads()
    try:
        spinning.take_threads(10_000)
        assert numba.get_num_threads() == numba.config.NUMBA_NUM_THREADS
        spinning.take_threads(1)
        assert numba.get_num_threads() == 1
    finally:
        numba.set_num_threads(before)
