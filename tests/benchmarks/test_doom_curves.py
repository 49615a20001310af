"""Marks are reached by the first policy at or above them; results come from committed trees only."""

from pathlib import Path

import pytest

import doom_curves
import doom_curves_table
import machine
from doom_curves import Saved


def policy(frames, mean, std):
    return {"frames": frames, "wall": 2.0 * frames / 1000, "cpu": frames / 1000, "mean": mean, "std": std}


def run(row="doom-health-gathering-supreme", commit="abc"):
    return {
        "recipe": "doom-curves", "row": row, "seed": 11, "wall": 6000.0, "cpu": 3000.0, "curve": [[1, 2.0]],
        "machine": {"cpu": "Some CPU", "cpu_flags": ["avx2"], "cores": 2, "commit": commit},
        "started": "2026-01-02T03:04:05+00:00", "load_average": {"before": [0.5, 0, 0], "after": [1.5, 0, 0]},
        "evaluated": {"commit": "def", "seed": 7, "episodes": 100},
        "policies": [policy(600_000, 9.0, 4.5), policy(1_200_000, 13.0, 5.0), policy(1_800_000, 12.0, 5.0)],
    }  # fmt: skip


def test_a_mark_is_reached_by_the_first_policy_at_it_and_10_not_at_all():
    lines = doom_curves_table.markdown({"runs": [run()]}).splitlines()
    assert "| doom-health-gathering-supreme | 11 | 1.8M | 100 | 50 | 12.00 ± 5.00 | 7.00 |" in lines
    assert "| doom-health-gathering-supreme | 11 | 1.2M / 20 | 1.2M / 20 | not reached |" in lines


def test_every_run_names_the_commits_that_trained_and_evaluated_it():
    text = doom_curves_table.markdown({"runs": [run()]})
    assert "trained at commit abc, evaluated at def; Some CPU (avx2), 2 cores" in text


def test_ends_of_names_are_explained_where_a_row_has_them():
    text = doom_curves_table.markdown({"runs": [run(), run("doom-health-gathering-supreme-hour")]})
    assert "`-hour`: by `--minutes 58`" in text and "`-fp32`" not in text


@pytest.mark.parametrize("commit", ["abc-dirty", "unknown"])
def test_results_take_no_figures_of_a_tree_with_changes(tmp_path, monkeypatch, commit):
    monkeypatch.setattr(machine, "RESULTS", tmp_path)
    with pytest.raises(SystemExit, match="committed tree only"):
        machine.save(run(commit=commit), tmp_path / "doom-curves.json", lambda report: "")
    assert not list(tmp_path.iterdir())


def test_a_policy_is_evaluated_every_half_million_frames_and_at_the_end():
    saved = [Saved(Path(), frames, (0.0, 0.0)) for frames in (100_000, 500_000, 700_000, 1_100_000, 1_200_000)]
    assert [policy.frames for policy in doom_curves._thinned(saved)] == [500_000, 1_100_000, 1_200_000]
