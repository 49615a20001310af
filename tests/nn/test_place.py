"""Which device a run file may name, and what it is told where there is none."""

import types
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from palus.errors import ConfigError
from palus.nn.place import CPU, Placement, place_of


@pytest.mark.parametrize("setting", [None, "cpu", "cpu:0"])
def test_the_cpu_has_compiled_kernels(setting):
    assert place_of(setting) == CPU and CPU.compiled


@pytest.mark.parametrize("setting", ["gpu", "xpu", "meta", "cpu:3", "cuda:x", ""])
def test_another_word_is_refused(setting):
    with pytest.raises(ConfigError, match=f"^torch_settings.device {setting}: no device that palus computes on; use"):
        place_of(setting)


def test_a_torch_without_cuda_is_named(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match=r"device cuda:1: the installed torch 2\..* was built without CUDA; install"):
        place_of("cuda:1")


def test_a_machine_without_a_gpu_is_told_so(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"finds no GPU of NVIDIA's that works; see whether nvidia-smi .* CUDA 12\.8"):
        place_of("cuda")


def test_a_gpu_is_taken_by_its_number(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert place_of("cuda:1") == Placement(torch.device("cuda", 1), compiled=False)
    with pytest.raises(ConfigError, match="cuda:2: torch finds cuda:0 to cuda:1; name one of these, or remove the key"):
        place_of("cuda:2")


def test_apples_gpu_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(ConfigError, match=r"device mps: torch .* finds no GPU of Apple's here"):
        place_of("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert place_of("mps") == Placement(torch.device("mps"), compiled=False)


def test_tensors_of_the_cpu_are_the_arrays():
    array = CPU.zeros((2, 3), np.float32)
    CPU.tensor(array)[0, 1] = 5
    assert array.tolist() == [[0, 5, 0], [0, 0, 0]]


def test_passes_are_as_long_as_a_cache_or_as_launching_asks_for():
    device = Placement(torch.device("meta"), compiled=False)
    assert [place.rows(pictures) for place in (CPU, device) for pictures in (False, True)] == [2048, 2048, 65536, 8192]


def test_only_work_of_a_gpu_of_nvidias_can_be_captured():
    places = (Placement(torch.device(kind), compiled=False) for kind in ("cuda", "mps", "cpu"))
    assert [place.captures for place in (*places, CPU)] == [True, False, False, False]


@pytest.mark.parametrize("refused", [False, True])
def test_a_gpu_reads_an_array_s_memory_until_it_is_let_go(refused, monkeypatch):
    told = []

    def register(first, size, flags):
        told.append(("register", first, size, flags))
        return int(refused)

    def unregister(first):
        told.append(("unregister", first))

    def behind(*_, device):
        raise RuntimeError("of the call before")

    driver = types.SimpleNamespace(cudaHostRegister=register, cudaHostUnregister=unregister)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: driver)
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    monkeypatch.setattr(torch, "zeros", behind)
    array = np.zeros((2, 3), np.float32)
    let_go = Placement(torch.device("cuda", 1), compiled=False).pin(array)
    assert told == [("register", array.ctypes.data, 24, 0)]
    let_go()
    assert told[1:] == ([] if refused else [("unregister", array.ctypes.data)])
    CPU.pin(array)()
    assert len(told) == 2 - refused
