"""These tests need grpcio; without `palus[unity]` there is nothing to collect."""

import importlib.util
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from palus.cli import app

collect_ignore_glob = [] if importlib.util.find_spec("grpc") else ["test_*.py"]


@pytest.fixture
def served(tmp_path: Path) -> Callable[[str, int], Path]:
    """Writes the executable of a palus game with so many matches."""

    def write(game: str, matches: int) -> Path:
        words = ["unity-serve", game, "--num-matches", str(matches), "--write-executable", str(tmp_path / game)]
        assert CliRunner().invoke(app, words).exit_code == 0
        return tmp_path / game

    return write
