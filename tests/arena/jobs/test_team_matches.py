"""Teams of two behaviors, from the push to the rating: vetted, played by locked processes, logged and ranked."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from arena_records import read_log
from sqlalchemy import select
from team_models import ENV, RIGHT, WRONG, Squads, keeper, striker, team_folder
from units import LIMITS, squad

from palus.arena.jobs.worker import describe_here, work
from palus.arena.ladder.discovery import FolderPool, sweep_house
from palus.arena.ladder.entries import read_lineup
from palus.arena.ladder.refresh import Refresher
from palus.arena.ladder.scheduler import PeriodicSweep, Scheduler
from palus.arena.ladder.settings import ArenaSettings
from palus.arena.ladder.verification import verify, verify_record
from palus.arena.ladder.workers import StoreSource
from palus.arena.locked.play import play_unit
from palus.arena.locked.unit import Unit
from palus.arena.locked.vet import vet
from palus.arena.models.players import load_player
from palus.arena.referee.match import play_pairs
from palus.arena.referee.recorder import Recorder
from palus.store import open_store
from palus.store.derived import ratings
from palus.store.tables import entries

SKILLS = {"ann/whole": (RIGHT, RIGHT), "bob/striking": (RIGHT, WRONG), "cid/lost": (WRONG, WRONG)}


pytestmark = pytest.mark.usefixtures("squads")


def test_two_teams_are_vetted_played_logged_and_rated(tmp_path: Path) -> None:
    store = open_store(tmp_path / "arena")
    for name, skills in SKILLS.items():
        (tmp_path / "pool" / name).parent.mkdir(parents=True)
        team_folder(tmp_path / "pool" / name, *skills)
    settings = ArenaSettings(envs=(ENV,))
    pool = FolderPool(tmp_path / "pool", store.blobs)
    sweeps = (sweep_house, lambda env: pool.sweep(env, quiet_since_ms=2**62))
    plan = Scheduler(store, settings, [PeriodicSweep(sweep, 1e9) for sweep in sweeps], seed=1)
    source = StoreSource(store, "w", settings, describe_here())
    stop = threading.Event()
    patience = threading.Timer(60.0, stop.set)  # a job that is given back again and again would never end
    patience.start()
    for _ in range(16):
        plan.tick()
        assert work(source, stop, max_jobs=1) == 1
    patience.cancel()
    plan.link()
    with store.read() as connection:
        rows = {row.repo: row for row in connection.execute(select(entries))}
        played = list(read_log(connection))
    assert {row.state for row in rows.values()} == {"accepted"}
    rated = [match for match in played if match.rated]
    assert rated and {match.cause for match in rated} == {"time_limit"}
    assert all("limits" in match.runner.isolation and match.actions for match in rated)
    strength = {"ann/whole": 3, "bob/striking": 2, "palus/random": 1, "cid/lost": 0}
    for match in rated:
        first, second = (strength[side.entity.repo] for side in match.sides)
        if abs(first - second) > 1:
            assert match.result == ("win1" if first > second else "win2")
    Refresher(store, settings).refresh()
    with store.read() as connection:
        lineup = read_lineup(connection, ENV, repos_per_owner=0)
        names = {sha256: entity.repo for sha256, entity in lineup.ranked.items()}
        order = connection.execute(select(ratings.c.sha256).order_by(ratings.c.rank)).scalars()
        ranked = [names[sha256] for sha256 in order]
    assert ranked[0] == "ann/whole" and ranked[-1] == "cid/lost"
    of_teams = [match for match in rated if all(side.entity.house is None for side in match.sides)]
    assert all(verify(store, match.id).ok for match in (of_teams[0], of_teams[-1]))
    forged = replace(of_teams[0], sides=of_teams[0].sides[::-1])
    assert verify_record(store, forged).forged


def test_a_team_in_a_locked_process_plays_as_it_does_here(tmp_path: Path) -> None:
    spec = Squads(1).spec
    weak = (RIGHT / 50, RIGHT / 25)  # whose choices are drawn
    here = [load_player(str(team_folder(tmp_path / name, *weak)), spec, f"ann/{name}") for name in ("a", "b")]
    expected = play_pairs(here[0], here[1], 1, 5, env_id=ENV, recorder=Recorder())
    locked = play_unit(Unit(ENV, 5, (squad("ann/a", *weak), squad("ann/b", *weak))), LIMITS)
    assert [replace(result, final_state=None) for result in locked.results] == list(expected)


def test_the_file_that_does_not_fit_is_named_and_its_team_refused_or_beaten() -> None:
    sound = squad("ann/a", RIGHT, RIGHT)
    assert [name for name, _ in sound.files] == ["Keeper", "Striker"]
    found = vet(sound, ENV, limits=LIMITS)
    assert found.refusal is None and found.details["bytes"] == len(keeper(RIGHT)) + len(striker(RIGHT))
    alone = vet(squad("ann/a", RIGHT, WRONG), ENV, limits=LIMITS).details
    assert alone["computation"] != found.details["computation"] and alone["nodes"] == found.details["nodes"]

    twice = replace(sound, models=(striker(RIGHT), striker(RIGHT)))
    refusal = vet(twice, ENV, limits=LIMITS).refusal
    assert refusal is not None and refusal.code == "wrong-contract"
    assert refusal.sentence.startswith("Keeper.onnx: takes obs_0 [batch, 4]")
    outcome = play_unit(Unit(ENV, 0, (twice, sound)), LIMITS)
    assert [(r.result, r.cause) for r in outcome.results] == [("forfeit1", "invalid"), ("forfeit2", "invalid")]
    assert "Keeper.onnx" in outcome.failures[0]
    large = replace(sound, models=(sound.models[0], bytes(17 << 20)))
    too_large = vet(large, ENV, limits=LIMITS).refusal
    assert too_large is not None and too_large.sentence.startswith("Striker.onnx: has 17.0 MiB")
