"""The file in which a run tells what it does: it survives cuts, kills and full disks, and readers follow it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palus.errors import StorageError
from palus.progress import ProgressReader, ProgressWriter, decoded_line, finite


def summary(step: int, policy: int = 0) -> dict[str, object]:
    return {"kind": "summary", "policy": policy, "step": step}


def steps_in(path: Path) -> list[object]:
    return [json.loads(line)["step"] for line in path.read_text().splitlines()]


def test_a_resumed_run_forgets_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run_logs" / "progress.jsonl"
    writer = ProgressWriter(path)
    for line in (summary(10), summary(12, policy=1), summary(20), {"kind": "end", "step": 20, "finished": False}):
        writer.append(line)
    path.write_bytes(path.read_bytes() + b'{"kind": "summ')  # killed while writing
    resumed = ProgressWriter(path)
    resumed.cut_back({0: 19, 1: 12})
    resumed.append(summary(21))
    assert steps_in(path) == [10, 12, 21]
    # A session that ended in order: only its last word goes.
    resumed.append({"kind": "end", "step": 21, "finished": True})
    resumed.cut_back({0: 21, 1: 21})
    resumed.append(summary(30))
    assert steps_in(path) == [10, 12, 21, 30]


def test_half_a_line_is_overwritten_by_the_next(tmp_path: Path) -> None:
    writer = ProgressWriter(tmp_path / "progress.jsonl")
    writer.append(summary(1))
    writer.path.write_bytes(writer.path.read_bytes() + b'{"kind":')
    writer.append(summary(2))
    assert steps_in(writer.path) == [1, 2]


def test_a_folder_that_takes_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "run_logs").write_text("a file in the place of the folder")
    with pytest.raises(StorageError, match=r"progress\.jsonl: could not be written"):
        ProgressWriter(tmp_path / "run_logs" / "progress.jsonl").append(summary(1))


def test_a_reader_gets_each_line_once_and_notices_a_cut(tmp_path: Path) -> None:
    writer = ProgressWriter(tmp_path / "progress.jsonl")
    reader = ProgressReader(writer.path)
    assert reader.news() == (False, [])
    writer.append(summary(1))
    writer.path.write_bytes(writer.path.read_bytes() + b"null\n[broken\n" + b'{"kind": "summary", "st')
    assert reader.news() == (False, [summary(1)])
    assert reader.news() == (False, [])
    writer.append(summary(2))  # puts an end to what was no line
    assert reader.news() == (True, [summary(1), summary(2)])
    writer.append(summary(3))
    assert reader.news() == (False, [summary(3)])
    writer.cut_back({0: 1})
    for step in (4, 5, 6):  # longer than before
        writer.append(summary(step))
    assert reader.news() == (True, [summary(1), summary(4), summary(5), summary(6)])


def test_numbers_that_json_cannot_hold_are_gaps() -> None:
    assert finite({"a": float("nan"), "b": float("inf"), "c": 1}) == {"a": None, "b": None, "c": 1.0}


def test_half_of_a_character_is_a_question_mark() -> None:
    line = b'{"kind": "run", "\\ud800": ["\\ud83d\\ude00", "\\udc00\\ud83d", "\\u00e4", "\\\\ud800"]}'
    assert decoded_line(line) == {"kind": "run", "?": ["\U0001f600", "??", "ä", "\\ud800"]}
    assert decoded_line(b'{"kind": "\xed\xa0\x80"}') is None
