"""probe.json: what anybody may have written, and what of it is believed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from palus.errors import HubError
from palus.hub.probe_file import MAX_PROBE_BYTES, PROBE_PICTURE, Probe, ProbePoint, parse_probe, read_probe, write_probe

CURVE = (ProbePoint(0, 0.5, 0.4, 0.6, 50), ProbePoint(9000, 0.75, 0.625, 0.85, 50))
FOUND = Probe("SoccerTwos", "SoccerTwos", True, "a" * 64, "ppo", 9000, 61.5, 3, CURVE[1], CURVE, "0.1.0")


def test_a_probe_is_read_as_it_was_written_and_only_for_its_model(tmp_path: Path) -> None:
    write_probe(tmp_path, FOUND)
    assert read_probe(tmp_path / "probe.json", "a" * 64) == FOUND
    assert read_probe(tmp_path / "probe.json", "b" * 64) is None and read_probe(tmp_path / "no.json", "a" * 64) is None
    picture = ElementTree.fromstring((tmp_path / PROBE_PICTURE).read_text())
    assert [len(part.attrib["points"].split()) for part in picture if part.tag.endswith("polygon")] == [4]


def test_a_bound_is_by_the_lower_end_and_an_exploitability_never_below_0() -> None:
    assert FOUND.bound == 0.25
    weak = replace(FOUND, best=ProbePoint(0, 0.5, 0.375, 0.6, 50))
    assert weak.bound == 0 and replace(weak, symmetric=False).bound == -0.25


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 2}, {"steps": -1}, {"steps": 2**53}, {"steps": True}, {"seed": "3"}, {"wall_seconds": 1e400},
        {"env_id": "<script>"}, {"trainer_type": "ppo](javascript:x)"}, {"behavior": "a" * 65}, {"env_id": "a\nb"},
        {"model_sha256": "../x"}, {"symmetric": 1}, {"best": None}, {"curve": []}, {"more": 1}, {"palus_version": "`"},
        {"best": {"steps": 0, "share": 0.5, "low": 0.6, "high": 0.7, "pairs": 1}},
        {"best": {"steps": 0, "share": float("nan"), "low": 0.0, "high": 1.0, "pairs": 1}},
        {"best": {"steps": 0, "share": 1.5, "low": 0.0, "high": 2.0, "pairs": 1}},
        {"curve": [vars(CURVE[1]), vars(CURVE[0])]}, {"curve": 65 * [vars(CURVE[0])]},
    ],
)  # fmt: skip
def test_what_nobody_measured_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    write_probe(tmp_path, FOUND)
    told = json.loads((tmp_path / "probe.json").read_text())
    assert parse_probe(json.dumps(told).encode()) == FOUND
    with pytest.raises(HubError, match="probe again"):
        parse_probe(json.dumps(told | change).replace("Infinity", "1e400").encode())


@pytest.mark.parametrize("data", [b"", b"null", b"[]", b"{", b"[" * 9000, b"\xff", b'"' + b"x" * MAX_PROBE_BYTES])
def test_what_is_no_probe_is_refused_with_what_to_do(data: bytes) -> None:
    with pytest.raises(HubError, match="probe again"):
        parse_probe(data)
