"""Workers of an arena that means them harm: what it names is looked up, never run or opened."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from code_that_runs import MODULE, Stranger

from palus.arena.jobs.worker import Done, Lease, work
from palus.arena.locked.unit import Unit
from palus.arena.models.entity import Entity

ENV = "SoccerTwos"


@dataclass
class Hostile:
    """An arena that hands out one job of its own making. faults: what workers gave back."""

    kind: str
    payload: dict[str, Any]
    lease_s: float = 60.0
    faults: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    play_s: float = 0.0
    pause_s: float = 0.0

    def take(self, count: int) -> list[Lease]:
        return [Lease(1, self.kind, self.payload, "0" * 32, 0)]

    def renew(self, leases: Sequence[Lease]) -> None:
        """It is not asked for long."""

    def model(self, sha256: str) -> bytes:
        return b"no model"

    def finish(self, done: Sequence[Done]) -> set[int]:
        raise AssertionError("there is nothing to finish")

    def give_back(self, lease: Lease, fault: str) -> None:
        self.faults.append(fault)
        if len(self.faults) == 2:
            self.stop.set()


@pytest.mark.parametrize("kind", ["pair", "validate"])
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (
            {"env": f"{MODULE}:make"},
            f"'{MODULE}:make' is no game of an arena; there are SoccerTwos, StrikersVsGoalie, doom_duel",
        ),
        ({"env": "os:_exit"}, "'os:_exit' is no game of an arena"),
        ({"env": "RescueToy"}, "'RescueToy' is no game of an arena"),
        ({"env": ["SoccerTwos"]}, "the job cannot be understood"),
        ({"contender": None, "contenders": [1, 2]}, "the job cannot be understood"),
    ],
)
def test_a_worker_plays_no_game_that_it_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, change: dict[str, Any], fault: str
) -> None:
    monkeypatch.setattr("palus.arena.jobs.worker.RESTART_S", 0.0)
    stranger = Stranger(tmp_path, monkeypatch)
    side = Entity("a" * 64, "palus/random")
    order = Unit(ENV, 1, (side, side), season=1, rated=True).to_payload()
    model = replace(side, repo="ann/a", files=((ENV, "a" * 64),)).to_json()
    arena = Hostile(kind, {**order, "contender": model, **change})
    work(arena, arena.stop)
    assert len(arena.faults) == 2 and all(fault in said for said in arena.faults)
    assert not stranger.ran


def test_a_worker_opens_no_file_as_a_player_of_the_house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("palus.arena.jobs.worker.RESTART_S", 0.0)
    (tmp_path / "own.onnx").write_bytes(b"mine")
    sides = Entity("a" * 64, f"palus/{tmp_path / 'own.onnx'}"), Entity("a" * 64, "palus/random")
    arena = Hostile("pair", Unit(ENV, 1, (sides[0], sides[1]), season=1, rated=True).to_payload())
    work(arena, arena.stop)
    assert "is no built-in player of SoccerTwos; there are random, ball-chaser, goalie-striker" in arena.faults[0]
