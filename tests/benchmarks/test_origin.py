"""A published run names the commit that trained it, sitting by sitting."""

import json

import pytest

import machine


def test_every_sitting_of_a_resumed_run_is_noted(tmp_path, monkeypatch):
    run = tmp_path / "mine"
    for commit in ("abc", "def"):
        monkeypatch.setattr(machine, "_commit", lambda commit=commit: commit)
        machine.note_origin(run)
        run.mkdir(exist_ok=True)
    assert [sitting["commit"] for sitting in machine.origin(run)] == ["abc", "def"]


def test_a_run_that_starts_anew_forgets_the_sittings_of_the_one_before(tmp_path):
    run = tmp_path / "mine"
    (tmp_path / "mine.origin.json").write_text(json.dumps([{"commit": "old"}]))
    machine.note_origin(run)
    assert len(json.loads((tmp_path / "mine.origin.json").read_text())) == 1


def test_runs_of_unknown_origin_or_of_a_tree_with_changes_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="not known"):
        machine.origin(tmp_path / "mine")
    (tmp_path / "mine.origin.json").write_text(json.dumps([{"commit": "abc-dirty"}]))
    with pytest.raises(SystemExit, match="committed tree only"):
        machine.origin(tmp_path / "mine")
