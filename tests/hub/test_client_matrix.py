"""The unmodified clients of three years, each in an environment of its own, against a real hub."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import RunningHub, client_environment, running_hub

OPERATIONS = Path(__file__).with_name("client_operations.py")
CURRENT = "2.4.0"  # what palus itself is tested with; comes with hf_xet, and nothing of it is turned off
CLIENTS = Path(sys.prefix) / "hub-clients"
LFS_ABOVE = 1 << 20
NO_XET = {"HF_HUB_DISABLE_XET": "1", "HF_HUB_USER_AGENT_ORIGIN": "lfs"}


def client_python(version: str) -> Path:
    """An interpreter with this client, made once per environment of palus; skips where no index can be reached."""
    import huggingface_hub

    if version == huggingface_hub.__version__ and importlib.util.find_spec("hf_xet"):
        return Path(sys.executable)
    folder = CLIENTS / version
    python, complete = folder / "bin" / "python", folder / "complete"
    if not complete.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", folder], check=True)
        pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet"]
        done = subprocess.run([*pip, f"huggingface_hub=={version}", "hf_xet"], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"huggingface_hub {version} cannot be installed here: {done.stderr.strip()[-300:]}")
        complete.touch()
    return python


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    with running_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


@pytest.fixture(scope="module")
def lfs_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHub]:
    """A hub that takes only small files inside commits."""
    with running_hub(tmp_path_factory.mktemp("lfs"), json.dumps({"file_bytes": LFS_ABOVE})) as running:
        yield running


def run_operations(hub: RunningHub, python: Path, folder: Path, **extra: str) -> str:
    environment = client_environment(hub, folder / "home", hub.token("ada"))
    environment |= {"OTHER_TOKEN": hub.token("grace"), **extra}
    command = [python, OPERATIONS, folder]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", [CURRENT, pytest.param("1.4.0", marks=pytest.mark.slow), "0.36.0"])
def test_a_client_does_everything_it_does_with_the_reference_hub(hub: RunningHub, tmp_path: Path, version: str) -> None:
    assert "all operations passed" in run_operations(hub, client_python(version), tmp_path)


def test_an_old_client_sends_large_files_by_lfs(lfs_hub: RunningHub, tmp_path: Path) -> None:
    assert "all operations passed" in run_operations(lfs_hub, client_python("0.36.0"), tmp_path)


@pytest.mark.slow
def test_a_new_client_without_xet_sends_large_files_by_lfs(lfs_hub: RunningHub, tmp_path: Path) -> None:
    assert "all operations passed" in run_operations(lfs_hub, client_python(CURRENT), tmp_path, **NO_XET)


def test_a_new_client_with_xet_learns_what_to_do_about_a_large_file(lfs_hub: RunningHub, tmp_path: Path) -> None:
    environment = client_environment(lfs_hub, tmp_path / "home", lfs_hub.token("mary"))
    (tmp_path / "large.pt").write_bytes(bytes(LFS_ABOVE + 1))
    command = [client_python(CURRENT).with_name("hf"), "upload", "mary/one", tmp_path / "large.pt", "large.pt"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode != 0
    said = " ".join((done.stdout + done.stderr).split())
    assert "large.pt has 1 MiB" in said and "--exclude" in said and "HF_HUB_DISABLE_XET=1" in said


def test_the_command_line_logs_in_uploads_lists_and_downloads(hub: RunningHub, tmp_path: Path) -> None:
    environment = client_environment(hub, tmp_path / "home") | {"COLUMNS": "300"}
    hf = client_python(CURRENT).with_name("hf")

    def run(*words: str | Path) -> str:
        done = subprocess.run([hf, *words], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "SoccerTwos.onnx").write_bytes(b"not really a model")
    (tmp_path / "team" / "README.md").write_text("---\ntags: [ML-Agents-SoccerTwos]\n---\n")
    run("auth", "login", "--token", hub.token("hopper"))
    assert "hopper" in run("auth", "whoami")
    run("upload", "hopper/team", tmp_path / "team")
    assert "hopper/team" in run("models", "ls", "--filter", "ML-Agents-SoccerTwos")
    run("download", "hopper/team", "--local-dir", tmp_path / "copy")
    assert (tmp_path / "copy" / "SoccerTwos.onnx").read_bytes() == b"not really a model"
