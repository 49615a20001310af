"""What a run computes with."""

import pytest
import torch

from palus.config import load_run
from palus.learn.ranks import ALONE
from palus.nn.place import CPU
from palus.run.computing import Computing


@pytest.mark.parametrize(("asked", "taken"), [(0, 6), (2, 2)])
def test_a_run_takes_the_cores_there_are_whatever_torch_was_told(monkeypatch, asked, taken):
    monkeypatch.setattr("palus.run.computing.physical_cores", lambda: 6)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    run = load_run("debug", [f"palus.threads={asked}", "palus.matmul=highest"])
    assert Computing.begin(run, CPU, None, ALONE).threads == taken
