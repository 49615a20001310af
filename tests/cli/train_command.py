"""`palus train` in this process, and what is said to it: FAST for runs that start at once, SETTINGS of SoccerTwos."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from palus.cli import app

FAST = ("palus.threads=1", "palus.matmul=highest")
SETTINGS = "behaviors.SoccerTwos."


def palus(*words: str | Path, code: int = 0):
    result = CliRunner().invoke(app, ["train", *(str(word) for word in words)])
    assert result.exit_code == code, result.output
    return result
