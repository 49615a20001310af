"""Run files written in the test that reads them."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from palus.config import RunFile, load_run
from palus.errors import ConfigError

Load = Callable[..., RunFile]
Faults = Callable[..., list[str]]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write a text to run.yaml and load it."""

    def load(text: str, overrides: Sequence[str] = ()) -> RunFile:
        path = tmp_path / "run.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return load_run(path, overrides)

    return load


@pytest.fixture
def faults(load: Load) -> Faults:
    """The faults of a text, in order."""

    def faults(text: str, overrides: Sequence[str] = ()) -> list[str]:
        with pytest.raises(ConfigError) as caught:
            load(text, overrides)
        return caught.value.faults

    return faults
