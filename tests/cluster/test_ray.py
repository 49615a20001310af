"""A league on two machines that are one: Ray's own test cluster on loopback, and what of it can be killed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from small_league import assert_whole, plan_of, read, wait, write_file

from palus.trust import NOBODY

psutil = pytest.importorskip("psutil")
pytest.importorskip("ray", reason="takes the extra `cluster`")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("default")]  # Ray's own


class Machines:
    """A head and a node, each a raylet with processes of its own, on loopback."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        self._kind, self.cluster, self.node = Cluster, None, None

    def start(self) -> None:
        """Once more where Ray gives up: it does when its agents take more than 15 s."""
        for last in (False, True):
            try:
                self.cluster = self._kind(initialize_head=True, head_node_args={"num_cpus": 2})
                self.add_node()
                return
            except Exception:
                self.stop()
                if last:
                    raise

    def add_node(self) -> None:
        self.node = self.cluster.add_node(num_cpus=2)

    def lose_node(self) -> None:
        """As a power cut takes it: its raylet and all that it started."""
        raylet = psutil.Process(self.node.all_processes["raylet"][0].process.pid)
        for process in [raylet, *raylet.children(recursive=True)]:
            with_kill(process)
        self.cluster.remove_node(self.node, allow_graceful=False)

    def stop(self) -> None:
        if self.cluster is not None:
            self.cluster.shutdown()

    @property
    def address(self) -> str:
        return str(self.cluster.address)


def with_kill(process: Any) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


@pytest.fixture(scope="module")
def machines() -> Iterator[Machines]:
    made = Machines()
    made.start()
    yield made
    made.stop()


class LeagueOnRay:
    """`palus league FILE --cluster ... --storage ...`, typed again whenever its driver is gone."""

    def __init__(self, folder: Path, machines: Machines, **more: Any) -> None:
        self.folder, self.machines = folder, machines
        self.file, self.storage = write_file(folder, **more), folder / "storage"
        self.driver: subprocess.Popen[bytes] | None = None

    def type(self, *words: str) -> None:
        command = [sys.executable, "-m", "palus", "league", str(self.file), "--cluster", self.machines.address,
                   "--storage", str(self.storage), "--results-dir", str(self.folder / "results"), *words]  # fmt: skip
        with (self.folder / "out").open("ab") as out:
            self.driver = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    @property
    def pids(self) -> dict[str, int]:
        """Of the processes that train, by run."""
        runs = read(str(self.storage)).items()
        alive = {name: run.seen.pid for name, run in runs if run.seen and run.seen.state == "training"}
        return {name: pid for name, pid in alive.items() if psutil.pid_exists(pid)}

    @property
    def parts(self) -> dict[str, int]:
        return {name: run.parts for name, run in read(str(self.storage)).items()}

    def finished(self) -> bool:
        runs = read(str(self.storage)).values()
        return len(runs) == 2 and all(run.state(time.time()) == "finished" for run in runs)

    @property
    def printed(self) -> str:
        return (self.folder / "out").read_text()


def test_a_league_on_two_nodes_outlives_a_run_an_actor_and_its_driver(machines: Machines, tmp_path: Path) -> None:
    league = LeagueOnRay(tmp_path, machines, max_steps=20000)
    league.type()
    wait(lambda: len(league.pids) == 2 and len(league.parts) == 2, "both train", 300)
    killed = league.pids["ada"]
    os.kill(killed, signal.SIGKILL)
    wait(lambda: league.pids.get("ada", killed) != killed, "ada goes on in another process")
    (actor,) = [p for p in psutil.process_iter(["cmdline"]) if "RunActor" in " ".join(p.info["cmdline"] or ())][:1]
    actor.kill()
    wait(lambda: "another one goes on from its checkpoint" in league.printed, "the driver saw it")
    before = league.parts
    wait(lambda: all(league.parts[name] > before[name] for name in before), "both go on")
    assert league.driver is not None
    league.driver.kill()
    league.driver.wait()
    wait(lambda: not league.pids, "both runs end")
    assert_whole(str(league.storage), tmp_path / "results" / "cup")
    league.type()
    wait(league.finished, "the same command ends it", 300)
    assert league.driver.wait(60) == 0, league.printed
    assert_whole(str(league.storage), tmp_path / "results" / "cup")
    assert all(f"{name}    DuelToy. Step: " in league.printed for name in ("ada", "bob"))


def test_runs_without_room_say_so_and_end_by_one_ctrl_c(machines: Machines, tmp_path: Path) -> None:
    """One league fills both nodes, and another one waits."""
    leagues = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        leagues.append(LeagueOnRay(tmp_path / name, machines, max_steps=10_000_000))
    first, second = leagues
    first.type("palus.threads=2")
    wait(lambda: len(first.parts) == 2, "both train", 300)
    second.type("palus.threads=2")
    told = [f"{name} has not begun yet: it takes 2 CPUs, and 0 of the cluster's 4 are free." for name in ("ada", "bob")]
    wait(lambda: all(line in second.printed for line in told), "both say that they wait", 120)
    assert second.driver is not None
    second.driver.send_signal(signal.SIGINT)
    assert second.driver.wait(30) == 130, second.printed
    assert [second.printed.count(line) for line in told] == [1, 1]
    assert first.driver is not None and len(first.pids) == 2
    first.driver.send_signal(signal.SIGINT)
    assert first.driver.wait(60) == 130, first.printed


def kill_run(league: LeagueOnRay, random: Random) -> None:
    """The process that trains, or the actor that keeps it."""
    pids = league.pids
    pid = random.choice(sorted(pids.values())) if pids else None
    actors = [p.pid for p in psutil.process_iter(["cmdline"]) if "RunActor" in " ".join(p.info["cmdline"] or ())]
    for victim in random.choice([[pid], actors[:1]]):
        with contextlib.suppress(psutil.NoSuchProcess, TypeError):
            psutil.Process(victim).kill()


def kill_node(league: LeagueOnRay, _: Random) -> None:
    league.machines.lose_node()
    league.machines.add_node()


def kill_driver(league: LeagueOnRay, _: Random) -> None:
    assert league.driver is not None
    league.driver.kill()
    league.driver.wait()
    league.type()


def kill_head(league: LeagueOnRay, _: Random) -> None:
    """Of a cluster without its head nothing is left."""
    head = league.machines.cluster.head_node
    head.all_processes["gcs_server"][0].process.kill()
    head.all_processes["raylet"][0].process.kill()
    assert league.driver is not None
    league.machines.stop()
    league.driver.kill()
    league.driver.wait()
    league.machines.start()
    league.type()


KILLS = {kill_run: 10, kill_driver: 5, kill_node: 3, kill_head: 2}


def test_after_twenty_random_kills_every_match_counts_once(tmp_path: Path) -> None:
    machines, random = Machines(), Random(15)
    machines.start()
    try:
        league = LeagueOnRay(tmp_path, machines, max_steps=10_000_000)
        league.type()
        wait(lambda: len(league.parts) == 2, "both have told something", 300)
        kills = [kill for kill, times in KILLS.items() for _ in range(times)]
        for kill in random.sample(kills, len(kills)):
            time.sleep(random.uniform(0.0, 2.0))
            kill(league, random)
            before = league.parts
            wait(lambda: all(league.parts[name] > before[name] for name in before), f"{kill.__name__}: both go on", 300)  # noqa: B023
        assert league.driver is not None
        league.driver.send_signal(signal.SIGTERM)
        assert league.driver.wait(120) == 130, league.printed
        assert_whole(str(league.storage), tmp_path / "results" / "cup")
    finally:
        machines.stop()


def test_what_an_actor_raises_ends_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ray.exceptions import RayError

    from palus.cluster import on_ray

    class Place:
        training = None

        def lines(self, patience_s: float) -> list[str]:
            raise RayError("no room for its answer")

    monkeypatch.setattr(on_ray, "_Place", lambda *of: Place())
    monkeypatch.setattr(on_ray.ray, "wait", lambda asked, timeout: ([], asked))
    driver = on_ray._Driver(plan_of(write_file(tmp_path)), NOBODY, lambda name, line: None)
    endings = driver.drive(lambda: False)
    assert {name: ending.failure for name, ending in endings.items()} == dict.fromkeys(
        ("ada", "bob"), "its actor failed: no room for its answer"
    )
