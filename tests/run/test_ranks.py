"""One policy trained by several processes: the same bits as one process with as many threads, whatever happens."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import pytest
import torch
import yaml
from torch.distributed import TCPStore
from toys import Recall, behavior_of
from typer.testing import CliRunner

import palus
from palus.cli import app
from palus.cli.train import _decided
from palus.config import RunFile, load_run
from palus.errors import CheckpointError, StorageError
from palus.launch.link import Link, StepTime
from palus.learn.learner import Learner
from palus.learn.ppo import PPO
from palus.learn.ranks import ALONE, Ranks
from palus.progress import PROGRESS, ProgressReader
from palus.rollout.rollout import Collected, Episode, FinishedMatch, Pace
from palus.run.alike import begin_alike, bring_home, came_apart, not_shared, refuse_another_file
from palus.run.folder import RunFolder
from palus.train import Run
from ports import free_port
from test_bits import of_learner

T = TypeVar("T")
GHOSTS = {"save_steps": 200, "team_change": 300, "swap_steps": 50, "window": 3, "play_against_latest_model_ratio": 0.3}
DUEL = {
    "hyperparameters": {"buffer_size": 256, "batch_size": 64, "learning_rate": 0.01},
    "network_settings": {"hidden_units": 16, "num_layers": 1, "normalize": True},
    "max_steps": 1024,
    "checkpoint_interval": 256,
    "summary_freq": 250,
    "self_play": GHOSTS,
}
GAMES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ppo": ("DuelToy", DUEL | {"trainer_type": "ppo"}, {"num_matches": 16, "league": {"opponents": "pfsp_hard"}}),
    "poca": ("SoccerTwos", DUEL | {"trainer_type": "poca"}, {"num_matches": 8}),
    "appo": (
        "Recall",
        DUEL
        | {
            "trainer_type": "appo",
            "hyperparameters": {"buffer_size": 512, "batch_size": 128, "num_epoch": 2, "shuffle": True},
            "network_settings": {"hidden_units": 16, "num_layers": 1, "core_size": 16},
            "time_horizon": 8,
            "max_steps": 4096,
            "checkpoint_interval": 1024,
        },
        {"env": "sampled:RecallGame", "env_options": {"agents": 2}, "sampling": {"workers": 0, "asynchronous": True}},
    ),
}


def run_file(tmp_path: Path, game: str, **changes: Any) -> list[str]:
    """The words of `palus train` behind which an id is to follow."""
    behavior, settings, palus = GAMES[game]
    palus = {"env": behavior, "matmul": "highest", "baseline_interval": 0, **palus}
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump({"behaviors": {behavior: settings | changes}, "palus": palus}))
    words = ["-m", "palus", "train", str(file), "--results-dir", str(tmp_path), "--seed", "3", "--trust", "sampled"]
    return [sys.executable, *words]


def environment() -> dict[str, str]:
    """With the sources that the test runs with, wherever another palus may be installed."""
    here = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, (Path(palus.__file__).parents[1], here, here / "rollout", here / "learn")))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def start(words: list[str], ranks: int, homes: tuple[Path, ...] = ()) -> list[subprocess.Popen[str]]:
    """The processes that torchrun would start. homes: the current folders of ranks that do not share one."""
    told = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    told |= {"TORCHELASTIC_RUN_ID": "test"}
    return [
        subprocess.Popen(
            [*words, "palus.threads=1"], text=True, stderr=subprocess.PIPE, stdout=subprocess.PIPE,
            cwd=homes[rank] if homes else None,
            env=environment() | {name: str(value) for name, value in (told | {"RANK": rank}).items()},
        )
        for rank in range(ranks)
    ]  # fmt: skip


def ended(processes: list[subprocess.Popen[str]], code: int = 0) -> list[str]:
    """What each told, after all have ended."""
    told = [process.communicate(timeout=600) for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), told
    return [out + err for out, err in told]


def alone(words: list[str], threads: int) -> None:
    done = CliRunner().invoke(app, [*words[3:], f"palus.threads={threads}"])
    assert done.exit_code == 0, done.output


def checkpoint(tmp_path: Path, run_id: str, game: str) -> dict[str, Any]:
    return RunFolder(tmp_path / run_id, [GAMES[game][0]]).load()


def compare(one: dict[str, Any], several: dict[str, Any]) -> None:
    """Checkpoints of one process and of ranks: learners, league, and the running matches."""
    assert of_learner(one) == of_learner(several)
    assert [step for step, *_ in one["learners"]] == [step for step, *_ in several["learners"]]
    shares = several["ranks"]
    for name, expected in one["league"].items():
        if name in ("drawn", "begun"):
            assert sorted(expected) == sorted(row for share in shares for row in share["league"][name])
        else:
            assert several["league"][name] == expected, name
    for name, array in one["collector"].items():
        if isinstance(array, np.ndarray):
            np.testing.assert_array_equal(array, np.concatenate([share["collector"][name] for share in shares]), name)
    for line, told in zip(one["report"]["lines"], several["report"]["lines"], strict=True):
        assert (line["recent"], line["episodes"]) == (told["recent"], told["episodes"])


def same_bits(tmp_path: Path, game: str, ranks: int) -> list[str]:
    words = run_file(tmp_path, game)
    processes = start([*words, "--run-id", "ranks"], ranks)
    alone([*words, "--run-id", "one"], ranks)
    told = ended(processes)
    assert f"each of {ranks} ranks: " in told[0]
    one, several = (checkpoint(tmp_path, run, game) for run in ("one", "ranks"))
    assert one["league"]["snapshot_count"] > 3
    compare(one, several)
    for summary, of_ranks in zip(summaries(tmp_path / "one"), summaries(tmp_path / "ranks"), strict=True):
        assert summary == pytest.approx(of_ranks, rel=1e-5), "they tell something else of the same"
    return told


def summaries(root: Path) -> list[dict[str, float]]:
    """What every summary tells but for the time that things took."""
    _, lines = ProgressReader(root / PROGRESS).news()
    told = [{"step": line["step"], **line["values"]} for line in lines if line["kind"] == "summary"]
    assert told
    return [{tag: x for tag, x in values.items() if not tag.startswith("Performance/")} for values in told]


def test_two_ranks_end_in_the_bits_of_two_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leave nothing but the run's folder."""
    (own := tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(own))
    told = same_bits(tmp_path, "ppo", 2)
    assert "Finished at step" in told[0] and told[1] == ""
    assert [path.name for path in own.glob("palus-*")] == []


def test_ranks_that_were_stopped_tell_of_a_command_that_goes_on_with_them(tmp_path: Path) -> None:
    """`palus train FOLDER/configuration.yaml --resume` is one process, which cannot."""
    told = ended(start([*run_file(tmp_path, "ppo"), "palus.max_minutes=0.001"], 2))
    assert "Stopped at step" in told[0] and "Continue:  the same command with --resume-if-there\n" in told[0]


class Two:
    """Two ranks in threads of this process."""

    def __init__(self, rank: int, said: list[Any], meeting: threading.Barrier) -> None:
        self.rank, self.size, self._said, self._meeting = rank, 2, said, meeting

    def gather(self, value: Any) -> list[Any]:
        self._said[self.rank] = value
        self._meeting.wait(10)
        told = list(self._said)
        self._meeting.wait(10)
        return told

    def first(self, value: Any, rank: int = 0) -> Any:
        return self.gather(value)[rank]


def by_two(work: Callable[[Any, Ranks], T], *given: Any) -> list[Future[T]]:
    """What came of work that two ranks did, each with what it was given."""
    said, meeting = [None, None], threading.Barrier(2)
    with ThreadPoolExecutor(2) as threads:
        ranks = [cast(Ranks, Two(rank, said, meeting)) for rank in range(2)]
        return [threads.submit(work, own, rank) for own, rank in zip(given, ranks, strict=True)]


def brought(*roots: Path) -> list[str | None]:
    """What `bring_home` says to two ranks with these folders."""
    return [one.result() for one in by_two(bring_home, *roots)]


def test_a_folder_is_brought_to_rank_0_from_where_it_is_and_none_that_is_behind_goes_on(tmp_path: Path) -> None:
    a, b = (RunFolder(tmp_path / machine / "run", ["Game"]) for machine in "ab")
    assert brought(a.root, b.root) == [None, None]
    a.save({"learners": [(256, 0.0, {})]})
    (a.root / "notes.txt").write_text("the user's")
    assert brought(a.root, b.root) == [None, None] and not b.root.exists()
    (told, _) = brought(b.root, a.root)
    assert told is not None and re.search(r"rank 1 \(.+\) has .* at step 256, rank 0 \(.+\) had none: copied", told)
    assert b.checkpoint.read_bytes() == a.checkpoint.read_bytes() and not (b.root / "notes.txt").exists()
    assert brought(a.root, b.root) == [None, None]
    RunFolder(b.root, ["Game"]).save({"learners": [(512, 0.0, {})]})
    with pytest.raises(CheckpointError, match=r"at step 512, rank 0 \(.+\) at 256: two runs of one id"):
        brought(a.root, b.root)


@pytest.mark.slow
def test_a_run_goes_on_where_another_machine_has_become_rank_0(tmp_path: Path) -> None:
    """torchrun numbers machines by their names: one that takes another's place may be the first, without the folder."""
    words = [*run_file(tmp_path, "ppo"), "--results-dir", "results", "--resume-if-there"]
    a, b = homes = (tmp_path / "a", tmp_path / "b")
    for home in homes:
        home.mkdir()
    begun = ended(start([*words, "--run-id", "ranks", "palus.max_minutes=0.001"], 2, homes))
    assert "Stopped at step 256" in begun[0] and not (b / "results").exists()
    told = ended(start([*words, "--run-id", "ranks"], 2, (b, a)))
    assert re.search(r"rank 1 \(.+\) has results/ranks at step 256, rank 0 \(.+\) had none: copied", told[0])
    assert [line["step"] for line in summaries(b / "results" / "ranks")] == [250, 500, 750, 1000]
    refused = ended(start([*words, "--run-id", "ranks"], 2, homes), 2)
    assert re.search(r"has results/ranks at step 1,024, rank 0 \(.+\) at 256: two runs of one id", refused[0])


def test_a_folder_in_which_a_run_trains_is_handed_to_nobody_and_replaced_by_none(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run", ["Game"])
    run = load_run("debug", [f"checkpoint_settings={{results_dir: {tmp_path}, run_id: run}}"])
    for rank, steps in ((0, [-1, 5]), (1, [-1, 3])):
        folder.save({"learners": [[3]]})
        told = [("here", step) for step in steps]
        ranks: Any = SimpleNamespace(
            rank=rank, size=2, gather=lambda own, told=told: told, first=lambda own, rank=0: own if rank == 0 else {}
        )
        decided = _decided(run, resume=False, force=False, if_there=True, ranks=ranks)
        with folder.held(), pytest.raises(CheckpointError, match="is training just now"):
            decided.__enter__()
        assert folder.load()["learners"] == [[3]]
        assert "had none: copied" in str(bring_home(folder.root, ranks))


def test_ranks_give_up_a_checkpoint_together_where_rank_0_cannot_write_its_models() -> None:
    """What follows in a checkpoint asks all of them: who went on alone would answer another question from then on."""

    def write_onnx(report: Any, kept: Any) -> None:
        raise StorageError("no space left")

    for rank in (0, 1):
        ranks = SimpleNamespace(rank=rank, first=lambda own: own or "no space left")
        run: Any = SimpleNamespace(ranks=ranks, report=None, saving=SimpleNamespace(write_onnx=write_onnx))
        with pytest.raises(StorageError, match="no space left"):
            Run._write_models(run, [])


@pytest.mark.slow
def test_a_checkpoint_that_rank_0_cannot_write_costs_ranks_this_one_alone(tmp_path: Path) -> None:
    words = [*run_file(tmp_path, "ppo"), "--run-id", "ranks", "--resume-if-there"]
    ended(start([*words, "palus.max_minutes=0.001"], 2))
    (tmp_path / "ranks" / "DuelToy" / "DuelToy-512.onnx").mkdir()  # no file takes its place
    told = ended(start(words, 2))
    assert "DuelToy-512.onnx: could not be written (Is a directory)" in told[0]
    assert "Training goes on; the next checkpoint tries again." in told[0] and "Finished at step 1,024" in told[0]
    assert (tmp_path / "ranks" / "DuelToy" / "DuelToy-768.onnx").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("game", "ranks"), [("ppo", 4), ("poca", 2), ("poca", 4), ("appo", 2), ("appo", 4)])
def test_ranks_end_in_the_bits_of_as_many_threads(game: str, ranks: int, tmp_path: Path) -> None:
    same_bits(tmp_path, game, ranks)


@pytest.mark.slow
def test_a_rank_killed_at_any_time_ends_in_the_same_bits(tmp_path: Path) -> None:
    """By torchrun itself, which starts all ranks again."""
    words = [*run_file(tmp_path, "ppo", max_steps=8192), "--resume-if-there"]
    alone([*words, "--run-id", "one"], 2)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--max-restarts", "9"]
    torchrun += ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}", "--local-addr", "127.0.0.1"]
    command = [*torchrun, *words[1:], "--run-id", "ranks", "palus.threads=1"]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as agent:
        saved = tmp_path / "ranks" / "DuelToy" / "checkpoint.pt"
        for victim in range(2):
            before = saved.stat().st_mtime_ns if saved.exists() else 0
            deadline = time.monotonic() + 300
            while not saved.exists() or saved.stat().st_mtime_ns == before:
                assert agent.poll() is None and time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(children(agent.pid)[victim], signal.SIGKILL)
        told = agent.communicate(timeout=600)[1]
    assert agent.returncode == 0, told
    compare(checkpoint(tmp_path, "one", "ppo"), checkpoint(tmp_path, "ranks", "ppo"))


def children(pid: int) -> list[int]:
    """The ranks that an agent has started, in their order."""
    own = [p for p in Path("/proc").glob("[0-9]*/stat") if p.read_text().rpartition(")")[2].split()[1] == str(pid)]
    found = {int(p.parent.name): (p.parent / "environ").read_bytes().split(b"\0") for p in own}
    ranks = {pid: next((int(e[5:]) for e in told if e.startswith(b"RANK=")), None) for pid, told in found.items()}
    return sorted((pid for pid, rank in ranks.items() if rank is not None), key=lambda pid: ranks[pid])


MEET = """
import os, time, torch
from palus.learn.ranks import Ranks

def meet(rank):
    os.environ["RANK"] = str(rank)
    ranks = Ranks.joined()
    told = torch.full((3,), 1.0 + rank)
    ranks.sum(told)
    os.write(1, f"{told.tolist()}\\n".encode())  # in one piece: two may tell it at once

for first in (0, 1):
    for rank in (first, 1 - first):
        if os.fork() == 0:
            meet(rank)
            os._exit(0)
        time.sleep(1.0)  # the other one comes after this one has looked
    for _ in range(2):
        os.wait()
"""


def of_one_store(program: str, ranks: int) -> str:
    """What a program prints that forks so many ranks, which meet in a store that is not theirs, as torchrun's."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    told = {"WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port}
    told |= {"TORCHELASTIC_RUN_ID": "test", "TORCHELASTIC_USE_AGENT_STORE": True}
    own = environment() | {name: str(value) for name, value in told.items()}
    return subprocess.run(
        [sys.executable, "-c", program], env=own, text=True, stdout=subprocess.PIPE, timeout=60
    ).stdout


def test_ranks_that_start_again_do_not_call_those_of_before() -> None:
    """torchrun keeps one store for all its starts, and a rank that comes late finds the dead one's address in it."""
    assert of_one_store(MEET, 2) == "[3.0, 3.0, 3.0]\n" * 4


FOUR = """
import os, torch
from palus.learn.ranks import Ranks

rank = next((rank for rank in (1, 2, 3) if os.fork() == 0), 0)
os.environ["RANK"] = str(rank)
ranks = Ranks.joined()
joined, big = ranks.waited, 2.0**24  # beside which 1 is rounded away
told = torch.ones(5)
told[rank] = big
told[4] = (big, -big, 1.0, 1.0)[rank]
ranks.sum(told)
said = ranks.gather(10 * rank), ranks.first(10 + rank)
os.write(1, f"{(told - big).tolist()} {said} {ranks.waited > joined}\\n".encode())  # in one piece
for _ in range(3 if rank == 0 else 0):
    os.wait()
"""


def test_four_ranks_add_up_as_a_tree_of_neighbours_and_tell_each_other_in_their_order() -> None:
    """(big + 1) + (1 + 1) and (big - big) + (1 + 1); one after another, or by other neighbours, something else."""
    told = f"{[2.0] * 4 + [2.0 - 2.0**24]} {([0, 10, 20, 30], 10)} True\n"
    assert of_one_store(FOUR, 4) == told * 4


LOST = """
import os
from palus.errors import RankError
from palus.learn.ranks import Ranks

rank = int(os.fork() == 0)
os.environ["RANK"] = str(rank)
ranks = Ranks.joined()
if rank == 0:
    os.wait()
    try:
        ranks.first(0), ranks.gather(0)
    except RankError as error:
        os.write(1, str(error).encode())
os._exit(0)
"""


def test_who_has_lost_the_others_is_told_how_to_go_on() -> None:
    told = of_one_store(LOST, 2)
    assert told.startswith("rank 0 of 2 lost the others (") and "--resume-if-there goes on" in told


def test_a_world_that_torchrun_has_not_started_is_not_joined() -> None:
    """Batch systems set such variables too."""
    told = {"WORLD_SIZE": "4", "RANK": "1", "LOCAL_WORLD_SIZE": "2"}
    assert Ranks.joined(told) is ALONE and Ranks.joined({}) is ALONE


def test_what_ranks_brought_is_one_rollout_by_decisions_and_entropies_weigh_by_them() -> None:
    def brought(rank: int) -> Any:
        taken = np.array([[1, 2], [5, 0]][rank])
        rollout = SimpleNamespace(pace=Pace(taken, np.array([[1, 1], [1, 0]][rank])))
        episodes = [Episode(rank, 0, 0, True, 1, 0.0, 0.0, decision=t) for t in ([0, 1] if rank == 0 else [0])]
        matches = [FinishedMatch(rank, (), (), t) for t in ([1] if rank == 0 else [0])]
        return Collected({0: rollout}, {0: [0.5, 1.5][rank]}, episodes, matches, {"": rank + 3}, outdated=rank == 1)

    def gather(own: Any) -> list[Any]:
        both = [brought(rank) for rank in (0, 1)]
        return [({0: b.rollouts[0].pace}, b.entropies, b.episodes, b.matches, b.ghost_steps, b.outdated) for b in both]

    run: Any = SimpleNamespace(ranks=SimpleNamespace(size=2, gather=gather))
    found = Run._together(run, brought(0))
    assert found.pace_of(0).taken.tolist() == [6, 2] and found.pace_of(0).ended.tolist() == [2, 1]
    assert found.entropies == {0: (3 * 0.5 + 5 * 1.5) / 8}
    assert [(e.decision, e.slot) for e in found.episodes] == [(0, 0), (0, 1), (1, 0)]
    assert [(m.decision, m.slot) for m in found.matches] == [(0, 1), (1, 0)]
    assert found.ghost_steps == {"": 7} and found.outdated


def test_what_a_slot_of_another_rank_keeps_for_its_next_match_is_in_play() -> None:
    collector, league = SimpleNamespace(in_play={3}), SimpleNamespace(staying={4})
    ranks = SimpleNamespace(gather=lambda own: [own, {5}])
    assert Run.in_play.fget(SimpleNamespace(collector=collector, league=league, ranks=ranks)) == {3, 4, 5}


def test_means_of_ranks_weigh_by_their_decisions_and_who_took_none_has_no_say() -> None:
    def pooled(*told: tuple[dict[str, float], int]) -> dict[str, float]:
        learner: Any = SimpleNamespace(ranks=SimpleNamespace(size=len(told), gather=lambda own: [*told]))
        return Learner.pooled(learner, *told[0])

    assert pooled(({"Policy/Lag": 2.0}, 3), ({}, 0), ({"Policy/Lag": 6.0}, 1)) == {"Policy/Lag": 3.0}
    assert pooled(({}, 0), ({"Policy/Lag": 6.0}, 1)) == {"Policy/Lag": 6.0}
    assert pooled(({}, 0), ({}, 0)) == {} and pooled(({"Policy/Lag": 2.0}, 3)) == {"Policy/Lag": 2.0}


def test_what_several_ranks_cannot_train_is_refused(tmp_path: Path) -> None:
    file = run_file(tmp_path, "ppo")[4]
    curious = ["behaviors.DuelToy.reward_signals.curiosity={}"]
    assert "curiosity" in str(not_shared(load_run(file, curious)))
    off_policy = ["behaviors.DuelToy={trainer_type: sac}"]
    assert "replay buffer" in str(not_shared(load_run(file, off_policy)))
    assert not_shared(load_run(file)) is None


def test_weights_that_came_apart_are_found_and_from_a_checkpoint_on_are_those_of_rank_0(tmp_path: Path) -> None:
    """As where processors round differently."""
    learners = [PPO(behavior_of("ppo"), Recall.spec, torch.float32, seed) for seed in (0, 1)]
    both = [[SimpleNamespace(learner=own, step=step)] for own, step in zip(learners, (8, 16), strict=True)]
    assert [one.result() for one in by_two(came_apart, *both)] == [True, True]
    before = learners[0].network.weights.master.clone()
    assert [one.exception() for one in by_two(begin_alike, *both)] == [None, None]
    assert [one.result() for one in by_two(came_apart, *both)] == [False, False]
    assert torch.equal(learners[1].network.weights.master, before)
    assert [own.step for (own,) in both] == [8, 8]
    assert not came_apart(cast(Any, both[0]), ALONE)
    learners[1].network.weights.master[0] += 1.0
    nothing, first, told = (lambda *_: None), (lambda _: [(8, learners[0].state_dict())]), list[str]()
    run: Any = SimpleNamespace(
        ranks=SimpleNamespace(rank=1, size=2, gather=lambda own: [b"", own], first=first),
        trainees=both[1], computing=SimpleNamespace(postponed=SimpleNamespace(do=nothing)), run=None, in_play=None,
        report=SimpleNamespace(warn=told.append), _write_models=nothing, exchange=None, _state=nothing,
        league=SimpleNamespace(needed=nothing), saving=SimpleNamespace(force_snapshots=nothing, prune=nothing),
        folder=SimpleNamespace(root=tmp_path),
    )  # fmt: skip
    assert Run._save(run, []) == tmp_path and torch.equal(learners[1].network.weights.master, before)
    assert told == ["the weights of ranks came apart; all go on with those of rank 0."]


def test_ranks_with_different_run_files_do_not_begin(tmp_path: Path) -> None:
    """Each would do something else with the same sum of gradients. Folders and threads may be a machine's own."""

    file, place = run_file(tmp_path, "ppo")[4], f"checkpoint_settings.results_dir={tmp_path}"

    def told(begin: Callable[[RunFile, Ranks], object], *changes: str) -> list[BaseException | None]:
        return [own.exception() for own in by_two(begin, load_run(file, [place]), load_run(file, [place, *changes]))]

    key = "behaviors.DuelToy.hyperparameters.learning_rate"
    sentence = f"rank 1 has {key} 0.02, where rank 0 has {key} 0.01; give all ranks the same run file"
    assert [str(error) for error in told(lambda run, ranks: Run(run, ranks=ranks), f"{key}=0.02")] == [sentence] * 2
    assert told(refuse_another_file, "palus.threads=3", f"{place}/elsewhere") == [None] * 2


def test_the_check_foretells_what_ranks_bring() -> None:
    """Stock PPO on two machines of two cores: 22.9 ms a step, 3.5 MB of gradient over 1 GbE and over 10 GbE."""
    slow = Link((0.0229, 0.0229), StepTime(0.0115 + 0.0301, 0.0301), 0.0301, 0.0002, 876_000)
    assert slow.speed_up(2) == pytest.approx(0.86, abs=0.01) and slow.speed_up() == pytest.approx(0.55, abs=0.01)
    assert slow.bytes_per_s == pytest.approx(117e6, rel=0.01)
    far = [Link((1.0,) * ranks, StepTime(1.0, 0.0), 0.03, 0.01, 1000) for ranks in (2, 4)]  # a third of it latency
    assert [link.bytes_per_s for link in far] == pytest.approx([200e3, 300e3]), "4 and 6 kB in 20 ms"
    assert "2 ranks make 0.6 times" in slow.sentence() and "and 0.9 times with 2 times" in slow.sentence()
    assert "one is the better choice" in slow.sentence()
    fast = Link((0.0229, 0.0229), StepTime(0.0115 + 0.0032, 0.0032), 0.0032, 0.0002, 876_000)
    assert fast.speed_up(2) == pytest.approx(1.8, abs=0.05) and "better choice" not in fast.sentence()
    wide = Link((1.0, 1.0), StepTime(0.95, 0.3), 0.1, 0.01, 1000)  # worth it with larger batches alone
    assert wide.speed_up() < 1.1 < wide.speed_up(2) and "better choice" not in wide.sentence()
    uneven = Link((2.0, 1.0), StepTime(1.25, 0.25), 0.1, 0.01, 1000)  # beside the quicker one, at the slower one's pace
    assert uneven.speed_up() == pytest.approx(0.8) and uneven.speed_up(2) == pytest.approx(2 / 2.25)
