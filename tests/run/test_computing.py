"""What a run computes with."""

from types import SimpleNamespace

import pytest

from palus.config import load_run
from palus.learn.ranks import ALONE
from palus.nn.place import CPU
from palus.run.computing import Computing


@pytest.mark.parametrize(("asked", "cpus", "taken"), [(0, [0, 1], 6), (2, [0, 1], 2), (0, [], 4)])
def test_a_run_takes_the_cores_there_are_whatever_torch_was_told(monkeypatch, asked, cpus, taken):
    monkeypatch.setattr("palus.run.computing.physical_cores", lambda: 6)
    monkeypatch.setattr("palus.run.computing.usable_cpus", lambda: cpus)
    monkeypatch.setattr("palus.run.computing.TORCH_THREADS", 4)
    run = load_run("debug", [f"palus.threads={asked}", "palus.matmul=highest"])
    assert Computing.begin(run, CPU, None, ALONE).threads == taken


def test_ranks_take_as_many_threads_each_as_the_one_that_has_the_fewest():
    """A stratum of a rollout for each: ranks have to cut theirs alike."""
    ranks = SimpleNamespace(size=2, local_size=1, gather=lambda own: [own, 2 if isinstance(own, int) else own])
    run = load_run("debug", ["palus.threads=6", "palus.matmul=highest"])
    assert Computing.begin(run, CPU, None, ranks).threads == 2
