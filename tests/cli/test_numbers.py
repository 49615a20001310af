"""Numbers that no command can mean are refused before anything begins."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from palus.cli import app

HUGE = "99999999999999999999"


@pytest.mark.parametrize(
    "words",
    [
        "demo --minutes 0", "demo --minutes inf", "demo --arena-minutes inf", "train debug --minutes inf",
        "probe random --minutes inf", "probe random --steps inf",
        "sweep debug --minutes inf", "sweep debug --steps inf",
        "compare random random --elo1 1e99", "compare random random --elo0 -inf", "enjoy results/mine --seed -1",
        f"enjoy results/mine --seed {2**63}", f"record random x.demo --seed {2**63}", "record random x.demo --seed -1",
        "unity-serve SoccerTwos --timeout-wait inf",
        f"arena --workers {HUGE}", f"arena --season {HUGE}", f"arena --repos-per-owner {HUGE}",
    ],
)  # fmt: skip
def test_a_number_out_of_reach_is_refused_with_its_range(words: str) -> None:
    option = words.split()[-2]
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 2, result.output
    told = " ".join(result.output.replace("│", " ").split())
    assert option in told and (
        "should be less than or equal to" in told or "should be greater than or equal to" in told
    )
