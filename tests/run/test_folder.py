"""The files of a run: what is kept, what is refused, and how a checkpoint comes back."""

import json
import pickle
import sys
import zipfile

import numpy as np
import pytest
import torch

from full_disk import at_most
from palus.errors import CheckpointError, StorageError
from palus.run.folder import RunFolder


@pytest.fixture
def folder(tmp_path):
    made = RunFolder(tmp_path / "results" / "mine", ["Game"])
    made.clear()
    return made


def record(folder, *steps, keep=5, elo=None, reward=0.5):
    for step in steps:
        folder.own(folder.of("Game") / f"Game-{step}.onnx").write_bytes(b"model")
        folder.record_checkpoint("Game", step, reward, keep, elo)


def status(folder):
    return json.loads(folder.status.read_text())


def models(folder):
    return sorted(p.name for p in folder.of("Game").glob("*.onnx"))


def test_a_state_comes_back_as_it_was(folder):
    state = {
        "arrays": {"f": np.float32([[1, 2]]), "flags": np.array([True, False]), "i": np.arange(3, dtype=np.int64)},
        "tensor": torch.tensor([1.5]),
        "generator": np.random.default_rng(5).bit_generator.state,  # holds integers of 128 bits
        "slots": {3: (1, -1)},
        "numbers": [1, 2.5, None, "text", np.float64(0.1), np.int64(7)],
    }
    folder.save(state)
    back = folder.load()
    assert {k: (v.dtype, v.tolist()) for k, v in back["arrays"].items()} == {
        k: (v.dtype, v.tolist()) for k, v in state["arrays"].items()
    }
    assert back["tensor"].tolist() == [1.5]
    assert back["generator"] == state["generator"]
    assert back["slots"] == {3: (1, -1)}
    assert back["numbers"] == [1, 2.5, None, "text", 0.1, 7]


def test_a_checkpoint_that_would_execute_code_is_refused_unexecuted(folder, tmp_path):
    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "executed"), "w"))

    folder.checkpoint.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(CheckpointError, match=r"checkpoint\.pt: not a readable checkpoint"):
        folder.load()
    torch.save({"format": 1, "trap": Trap()}, folder.checkpoint)
    with pytest.raises(CheckpointError, match=r"asks for _?io\.open;.* start anew with --force"):
        folder.load()
    assert not (tmp_path / "executed").exists()


def test_a_checkpoint_of_another_format_names_both(folder):
    torch.save({"format": 99}, folder.checkpoint)
    with pytest.raises(CheckpointError, match=r"format 99; this palus .* reads format 2"):
        folder.load()
    torch.save([1, 2], folder.checkpoint)
    with pytest.raises(CheckpointError, match="checkpoint format list"):
        folder.load()


def test_saving_twice_leaves_one_whole_file(folder):
    folder.save({"step": 1})
    folder.save({"step": 2})
    assert folder.load()["step"] == 2
    assert [p.name for p in folder.of("Game").iterdir()] == ["checkpoint.pt"]
    assert zipfile.is_zipfile(folder.checkpoint)


def test_a_run_id_near_those_of_saved_runs_is_answered_with_them(tmp_path):
    RunFolder(tmp_path / "striker-1", ["Game"]).save({"step": 1})
    with pytest.raises(CheckpointError, match=r"not there; did you mean --run-id striker-1\? Else start without"):
        RunFolder(tmp_path / "stricker-1", ["Game"]).load()
    with pytest.raises(CheckpointError, match="not there; start without --resume"):
        RunFolder(tmp_path / "goalie", ["Game"]).load()


def test_a_run_is_replaced_only_by_force_and_resumed_only_where_one_is(folder):
    with pytest.raises(CheckpointError, match="nothing to resume"):
        folder.load()
    folder.refuse_existing(force=False)
    folder.save({"step": 1})
    record(folder, 10)
    with pytest.raises(CheckpointError, match="continue it with --resume, replace it with --force"):
        folder.refuse_existing(force=False)
    assert folder.load()["step"] == 1
    folder.refuse_existing(force=True)
    folder.clear()
    assert list(folder.of("Game").iterdir()) == []
    assert not folder.status.exists()


def test_the_log_of_a_game_that_did_not_start_stands_in_no_run_s_way(folder):
    for name in ("Player-0.log", "Player-12.log"):
        (folder.root / "run_logs").mkdir(exist_ok=True)
        (folder.root / "run_logs" / name).write_text("no display")
        folder.refuse_existing(force=False)
    (folder.root / "Player-0.log").write_text("mine")
    with pytest.raises(CheckpointError, match="a run of this id exists"):
        folder.refuse_existing(force=False)


@pytest.mark.parametrize("saved", [False, True])
def test_two_runs_of_one_id_do_not_train_at_once(folder, saved):
    record(folder, 10)
    if saved:
        folder.save({})
    second = RunFolder(folder.root, ["Game"])
    with folder.held(), pytest.raises(CheckpointError, match="a run of this id is training just now; wait for its end"):
        second.held().__enter__()
    second.refuse_existing(force=True)
    if saved:
        assert second.load() == {"format": 2}
        return
    with pytest.raises(CheckpointError, match="exists, which has never saved; replace it with --force"):
        second.refuse_existing(force=False)


def test_a_folder_that_was_made_to_be_held_does_not_stay_empty(tmp_path):
    made, there = (RunFolder(tmp_path / name, ["Game"]) for name in ("made", "there"))
    there.root.mkdir()
    for folder in (made, there):
        with folder.held():
            assert folder.root.is_dir()
    assert not made.root.exists() and there.root.is_dir()
    with made.held():
        made.save({})
    assert made.load() == {"format": 2}


def everything(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_force_removes_what_the_run_wrote_and_nothing_else(folder):
    folder.save({})
    record(folder, 10)
    (folder.own_bundle() / "Game.onnx").write_bytes(b"model")
    folder.own((folder.of("Game") / "snapshots") / "snapshot-00000.npz").parent.mkdir()
    ((folder.of("Game") / "snapshots") / "snapshot-00000.npz").write_bytes(b"weights")
    others = {"notes.txt", "Game/Game-499.pt", "Game/snapshots/mine.npz", "run_logs/mine.json", "Other/Other-7.onnx"}
    for name in others:
        (folder.root / name).parent.mkdir(exist_ok=True)
        (folder.root / name).write_text("mine")
    again = RunFolder(folder.root, ["Game"])
    again.refuse_existing(force=True)
    again.clear()
    assert everything(folder.root) == others


def test_a_folder_of_another_tool_is_neither_taken_nor_emptied(tmp_path):
    """As ML-Agents leaves it: the same names, and no checkpoint.pt after a crash."""
    root = tmp_path / "theirs"
    files = {"Game/Game-499.pt", "Game/Game-499.onnx", "Game.onnx", "run_logs/timers.json"}
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("theirs")
    folder = RunFolder(root, ["Game"])
    with pytest.raises(CheckpointError, match="theirs: a run of this id exists"):
        folder.refuse_existing(force=False)
    with pytest.raises(CheckpointError, match=r"Game-499\.onnx and 2 more: not written by palus.*another --run-id"):
        folder.refuse_existing(force=True)
    folder.clear()
    assert everything(root) == files


@pytest.mark.parametrize(
    "name",
    ["Game.onnx", "bundle.json", "run_logs/progress.jsonl", "league/league.json", "league/visitors/bob-00003.npz",
     "Game/checkpoint.pt", "Game/snapshots/snapshot-00003.npz", "Game/policy_1/best.npz"],
)  # fmt: skip
def test_a_file_of_others_under_a_name_that_a_run_gives_its_own_is_not_replaced(folder, name):
    record(folder, 10)
    (folder.root / name).parent.mkdir(parents=True, exist_ok=True)
    (folder.root / name).write_text("mine")
    with pytest.raises(CheckpointError, match=f"{name}: not written by palus, and this run would replace it"):
        folder.refuse_existing(force=True)
    folder.own(folder.root / name)
    folder.refuse_existing(force=True)


def test_the_storage_of_a_league_keeps_what_another_machine_goes_on_from_and_nothing_that_only_grows(folder):
    grows = {"Game/events.out.tfevents.1.x", "run_logs/progress.jsonl", "run_logs/timers.json"}
    needed = {"Game/checkpoint.pt", "Game/snapshots/snapshot-00003.npz", "run_logs/training_status.json"}
    for name in grows | needed:
        folder.own(folder.root / name).parent.mkdir(parents=True, exist_ok=True)
        (folder.root / name).write_text("x")
    (folder.root / "Game" / "notes.txt").write_text("mine")
    assert folder.mirrored() == {name: folder.root / name for name in needed}


def test_a_list_from_elsewhere_points_at_nothing_outside_the_folder(folder, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "thesis.txt").write_text("mine")
    (folder.root / "linked").symlink_to(tmp_path / "work")
    names = ("../../precious", tmp_path / "precious", "linked/thesis.txt", "Game/checkpoint.pt")
    (folder.root / ".palus-files").write_text("".join(f"{name}\n" for name in names))
    folder.checkpoint.write_bytes(b"theirs")
    RunFolder(folder.root, ["Game"]).clear()
    assert everything(tmp_path) == {"precious", "work/thesis.txt"}


@pytest.mark.skipif(sys.platform == "win32", reason="no file size limits on Windows")
def test_a_line_that_a_full_disk_cut_is_no_file_s_name_and_spoils_no_other_line(folder):
    first, listed = folder.own(folder.of("Game") / "snapshots" / "snapshot-00000.npz"), folder.root / ".palus-files"

    def cut():
        full = len(listed.read_bytes()) + len("Game/")
        with at_most(full), pytest.raises(StorageError, match=r"\.palus-files: could not be written .* folder\.$"):
            folder.own(folder.of("Game") / "Game-5000.onnx")
        assert listed.read_text().splitlines()[-1] == "Game/"  # which is a folder

    cut()
    folder.own(folder.checkpoint).write_bytes(b"x")
    assert listed.read_text().splitlines() == [first.relative_to(folder.root).as_posix(), "Game/checkpoint.pt"]
    cut()
    again = RunFolder(folder.root, ["Game"])
    again.refuse_existing(force=True)
    again.clear()
    assert everything(folder.root) == set()


def test_a_behavior_from_elsewhere_is_no_path_out_of_the_folder(folder):
    for name in ("../escaped", "/escaped", "a/b", ".hidden", "..", "", "x\\y", "C:x", "x\x1b[2J", "x" * 300):
        with pytest.raises(CheckpointError, match="expected the name of a folder in it"):
            folder.of(name)


def test_a_status_from_elsewhere_does_not_say_what_is_deleted(folder, tmp_path):
    (tmp_path / "precious").write_text("mine")
    (folder.of("Game") / "Game-1.onnx").write_text("mine")
    entries = [
        {"steps": step, "file_path": str(tmp_path / name)} for step, name in ((0, "precious"), (1, "Game-1.onnx"))
    ]
    folder.status.parent.mkdir()
    folder.status.write_text(json.dumps({"Game": {"checkpoints": entries}}))
    record(folder, 100, 200, keep=1)
    assert everything(tmp_path / "results" / "mine" / "Game") == {"Game-1.onnx", "Game-200.onnx"}
    assert (tmp_path / "precious").exists()


def test_the_oldest_policies_beyond_keep_checkpoints_go(folder):
    record(folder, 100, 200, 300, 400, keep=2)
    assert models(folder) == ["Game-300.onnx", "Game-400.onnx"]
    assert [c["steps"] for c in status(folder)["Game"]["checkpoints"]] == [300, 400]


def test_a_policy_that_a_kill_kept_off_the_list_goes_in_its_turn(folder):
    record(folder, 100, 200, keep=2)
    folder.own(folder.of("Game") / "Game-1150.onnx").write_bytes(b"x")
    record(folder, 1200, keep=2)
    assert models(folder) == ["Game-1150.onnx", "Game-1200.onnx"]
    assert [c["steps"] for c in status(folder)["Game"]["checkpoints"]] == [1200]
    record(folder, 1300, keep=2)
    assert models(folder) == ["Game-1200.onnx", "Game-1300.onnx"]


def test_what_kills_left_half_written_goes_and_nothing_else(folder):
    folder.save({"step": 1})
    whole = folder.own(folder.of("Game") / "policy.npz")
    left = [path.with_name(f".{path.name}.k3_9xq0a.part") for path in (whole, folder.checkpoint)]
    names = (".policy.npz.original", ".mine.npz.k3_9xq0a.part", "policy.npz.k3_9xq0a.part")
    foreign = [whole.with_name(name) for name in names]
    for begun in range(2):
        for path in (*left, *foreign):
            path.write_bytes(b"half")
        RunFolder(folder.root, ["Game"]).clear() if begun else RunFolder(folder.root, ["Game"]).load()
        assert not any(path.exists() for path in left)
        assert all(path.exists() for path in foreign)


@pytest.mark.parametrize("keep", [0, -1])
def test_no_limit_keeps_all(folder, keep):
    record(folder, *range(1, 9), keep=keep)
    assert len(models(folder)) == 8


def test_the_same_step_is_entered_once(folder):
    record(folder, 100, 200, 200, keep=2)
    assert [c["steps"] for c in status(folder)["Game"]["checkpoints"]] == [100, 200]
    assert models(folder) == ["Game-100.onnx", "Game-200.onnx"]


def test_the_status_has_the_reference_form(folder):
    record(folder, 100, elo=1203.5, reward=None)
    written = status(folder)
    (checkpoint,) = written["Game"]["checkpoints"]
    assert checkpoint.pop("creation_time") > 1.6e9
    path = str(folder.of("Game") / "Game-100.onnx")
    assert checkpoint == {"steps": 100, "file_path": path, "reward": None, "auxillary_file_paths": []}
    final = written["Game"]["final_checkpoint"]
    assert (final["steps"], final["file_path"]) == (100, str(folder.root / "Game.onnx"))
    assert written["Game"]["elo"] == 1203.5
    assert written["metadata"]["stats_format_version"] == "0.3.0"
    assert written["metadata"]["torch_version"] == torch.__version__
    assert folder.status.read_text().startswith('{\n    "Game": {\n        "checkpoints"')


def test_without_self_play_there_is_no_rating(folder):
    record(folder, 100)
    assert "elo" not in status(folder)["Game"]


def test_a_damaged_status_is_begun_anew(folder):
    record(folder, 100)
    folder.status.write_text("{")
    record(folder, 200)
    assert [c["steps"] for c in status(folder)["Game"]["checkpoints"]] == [200]


def test_a_file_that_cannot_be_removed_is_told_in_a_sentence(folder):
    """Here a folder is in its place."""
    record(folder, 100)
    (folder.of("Game") / "Game-100.onnx").unlink()
    (folder.of("Game") / "Game-100.onnx").mkdir()
    (folder.of("Game") / ".Game-100.onnx.k3_9xq0a.part").mkdir()
    folder.save({})
    for take in (lambda: record(folder, 200, keep=1), RunFolder(folder.root, ["Game"]).load, folder.clear):
        with pytest.raises(StorageError, match=r"Game-100\.onnx.*: could not be removed .*have its folder writable"):
            take()


def test_lessons_and_ratings_that_are_none_are_not_taken_from_a_status(folder):
    folder.status.parent.mkdir()
    lessons = {"a": {"lesson_num": 2}, "b": {"lesson_num": -1}, "c": {"lesson_num": "high"}, "d": {}, "e": 3}
    folder.status.write_text(json.dumps(lessons | {"Game": {"elo": 1203}}))
    assert folder.recorded_lessons() == {"a": 2}
    assert (folder.recorded_elo("Game"), folder.recorded_elo("a"), folder.recorded_elo("e")) == (1203.0, None, None)
    for elo in ("NaN", "Infinity", '"high"'):
        folder.status.write_text(f'{{"Game": {{"elo": {elo}}}}}')
        assert folder.recorded_elo("Game") is None


def test_a_folder_that_cannot_be_made_says_so(tmp_path):
    (tmp_path / "results").write_text("a file")
    with pytest.raises(StorageError, match="choose another --results-dir"):
        RunFolder(tmp_path / "results" / "mine", ["Game"]).clear()


def test_a_table_of_contents_of_another_shape_is_begun_anew(folder):
    folder.status.parent.mkdir(parents=True)
    for text in ("[]", '{"Game": 3}', '{"Game": {"checkpoints": [7]}}'):
        folder.status.write_text(text)
        record(folder, 10)
        assert [c["steps"] for c in status(folder)["Game"]["checkpoints"]] == [10]


def test_whether_a_run_is_there_can_be_asked_before_its_behaviors_are_known(tmp_path):
    RunFolder(tmp_path / "none", []).refuse_existing(force=False)
    (tmp_path / "note.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="a run of this id exists"):
        RunFolder(tmp_path, []).refuse_existing(force=False)
