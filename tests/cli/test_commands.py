"""Each command that plays runs, prints what programs need, and explains the user's mistakes."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from small_run import policy_model
from typer.main import get_command
from typer.testing import CliRunner

import palus
from palus import __version__
from palus.__main__ import freeze, main
from palus.arena.referee.replay import read_replay
from palus.arena.referee.result import MatchResult
from palus.cli import app, literal
from palus.cli.mlagents_learn import learn
from palus.cli.output import told_lack
from palus.store import backup

MODELS = Path(__file__).parents[3] / "shared" / "models" / "soccertwos"


def run(*words: str | Path, code: int = 0) -> str:
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with one playable policy and one that is not ONNX."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "mine.onnx").write_bytes(policy_model())
    (folder / "broken.onnx").write_bytes(b"broken")
    return folder


def test_version_and_help():
    assert run("--version") == f"palus {__version__}\n"
    assert "palus train soccertwos" in run("--help")
    for command in ("match", "rank", "fidelity"):
        assert f"palus {command} " in run(command, "--help")


def test_ctrl_c_while_the_command_is_loaded_ends_it_without_a_traceback(tmp_path: Path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join((str(tmp_path), str(Path(palus.__file__).parents[1])))
    environment = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run([sys.executable, "-m", "palus"], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (130, "")


def commands(command, path: tuple[str, ...] = ()):
    """Every command below one, with the words that call it."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


def test_help_shows_every_word_that_was_written():
    """Asterisks, <NAMES> and ampersands too, which Markdown takes for itself."""
    texts = []
    for path, command in commands(get_command(app)):
        result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "600", "TERMINAL_WIDTH": "600"})
        shown = " ".join(result.stdout.replace("│", " ").split())
        written = [command.help, command.epilog, *(getattr(option, "help", None) for option in command.params)]
        for text in filter(None, written):
            plain = " ".join(re.sub(r"\\([*<&#\\])", r"\1", text).replace("`", "").split())
            assert plain in shown, path
            texts.append(plain)
    assert "Also rank OWNER/NAME/<env>.onnx below this folder." in texts
    assert literal("2 * `a<b>` & <ENV> \\d") == "2 \\* `a<b>` \\& \\<ENV> \\\\d"


def test_examples_can_be_copied_from_a_narrow_terminal():
    examples = 0
    for path, _ in commands(get_command(app)):
        help_ = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).stdout
        module = sys.modules.get(f"palus.cli.{path[0].replace('-', '_')}" if path else "palus.cli")
        shown = {line.strip() for line in help_.splitlines()}
        assert any(line.startswith(" ".join(["palus", *path[:1]])) for line in shown), path
        assert "[0.01<=x" not in help_ or "[0.01<=x<=1000000]" in help_, path  # on one line
        for line in getattr(module, "EPILOG", "").splitlines():
            if line.startswith("  "):
                assert line.strip() in shown and len(line.strip()) <= 76, path
                examples += 1
    assert examples > 100


def test_match_prints_json_writes_a_log_and_a_replay(models: Path, tmp_path: Path):
    log, replay = tmp_path / "matches.jsonl", tmp_path / "best.match"
    words = ("match", models / "mine.onnx", "random", "--pairs", 3, "--seed", 1, "--json")
    report = json.loads(run(*words, "--log", log, "--replay", replay, "--replay-matches", 2))
    assert {"score", "interval", "wins", "draws", "losses"} <= report.keys()
    assert report["wins"] + report["draws"] + report["losses"] == 6
    assert report["interval"][0] <= report["score"] <= report["interval"][1]
    assert json.loads(run(*words)) == report
    records = [MatchResult.from_json(line) for line in log.read_text().splitlines()]
    assert [r.leg for r in records] == [1, 2] * 3
    recordings = read_replay(replay)[1].recordings
    assert [r.names for r in recordings] == [("mine", "random"), ("random", "mine")]


def test_commands_that_are_told_can_be_copied(tmp_path: Path):
    replay = tmp_path / "the [best] of.match"
    told = " ".join(run("match", "ball-chaser", "random", "--pairs", 1, "--replay", replay).split())
    assert told.endswith(f"Replay: palus watch '{replay}'")


def test_match_tells_people_who_is_better():
    text = run("match", "goalie-striker", "random", "--pairs", 4)
    assert "goalie-striker - random" in text
    assert "in 4 mirrored pairs" in text


def test_mistakes_are_explained_with_exit_code_2(models: Path):
    assert "did you mean random?" in run("match", "randon", "random", code=2)
    assert "corrupt or not an ONNX model" in run("match", models / "broken.onnx", "random", code=2)
    assert "no such folder" in run("rank", models / "nowhere", code=2)
    assert "mine.onnx: a file; give the folder that it is in" in run("rank", models / "mine.onnx", code=2)
    assert "no policy unity-official-soccertwos" in run("fidelity", models, "--conventions", code=2)
    (models / "crawler").mkdir()
    (models / "crawler/configuration.yaml").write_text("behaviors: {Crawler: {}}\nenv_settings: {env_path: Crawler}\n")
    assert "was trained in a Unity game; to play there, say which: --env GAME" in run(
        "match", models / "crawler", "random", code=2
    )
    film = ("match", "random", "random", "--replay", models / "x.mp4")
    assert f"of SoccerTwos a replay is written; use {models / 'x.match'}" in run(*film, code=2)
    assert "a replay is written; use first.match" in run("match", "random", "random", "--replay", "", code=2)
    assert f"{models}: cannot be written (Is a directory); choose another place for --write-executable" in run(
        "unity-serve", "SoccerTwos", "--write-executable", models, code=2
    )
    log = models / "no" / "such" / "folder.jsonl"
    assert "cannot be written" in run("match", "random", "random", "--pairs", 1, "--log", log, code=2)


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_played(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def play(*_args: object, **_options: object) -> None:
        raise AssertionError("played")

    monkeypatch.setattr("palus.arena.referee.match.play_pairs", play)
    monkeypatch.setattr("palus.arena.study.tournament.rank_players", play)
    lost, below_a_file = tmp_path / "no" / "folder" / "x.jsonl", models / "mine.onnx" / "x.match"
    said = f"{lost}: cannot be written (No such file or directory); choose another place for"
    assert f"{said} --log" in run("match", "random", "random", "--log", lost, code=2)
    assert f"{said} --log" in run("rank", models, "--log", lost, code=2)
    assert f"{said} --output" in run("rank", models, "--output", lost, code=2)
    assert "(Is a directory)" in run("rank", models, "--output", tmp_path, code=2)
    assert "(Not a directory)" in run("match", "random", "random", "--replay", below_a_file, code=2)
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "(Permission denied)" in run("match", "random", "random", "--replay", tmp_path / "a" / "x.match", code=2)


def test_what_the_memory_does_not_hold_is_said_with_exit_code_2():
    said = " ".join(run("compare", "random", "random", "--max-pairs", 10**15, code=2).split())
    assert "error: out of memory: Unable to allocate 7.11 PiB" in said and "lower hyperparameters.buffer_size" in said


def test_the_base_install_names_the_extra_that_a_command_takes(tmp_path: Path):
    commands = ["train debug", "demo", "record ball-chaser x.demo", "match random random --env Game"]
    commands += ["arena", "account list", "recompute", "audit", "verify x.match", "backup arena copy", "site export x"]
    program = (
        "import sys; from typer.testing import CliRunner; from palus.cli import app\n"
        "sys.modules.update(torch=None, sqlalchemy=None)\n"
        "for words in sys.argv[1:]:\n"
        "    result = CliRunner().invoke(app, words.split())\n"
        "    print(result.exit_code, result.exception, result.stderr.strip(), sep='|')"
    )
    run = [sys.executable, "-c", program, *commands]
    ended = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    said = "2|2|error: this needs {}, which is not installed; pip install 'palus[{}]'".format
    assert ended.stdout.splitlines() == [said("torch", "train")] * 4 + [said("sqlalchemy", "arena")] * 7


def test_ctrl_c_ends_quietly_with_exit_code_130(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("palus.arena.referee.match.play_pairs", interrupted)
    assert run("match", "random", "random", code=130) == "Interrupted.\n"


@pytest.mark.parametrize("program", ["palus", "mlagents_learn"])
def test_ctrl_c_while_a_compiled_module_is_loaded_leaves_no_traceback(program: str, monkeypatch: pytest.MonkeyPatch):
    """As onnxruntime's says it."""

    def interrupted(*_args: object, **_options: object) -> None:
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("palus.arena.referee.match.play_pairs", interrupted)
    monkeypatch.setattr("palus.cli.mlagents_learn._run_file", interrupted)
    if program == "palus":
        assert run("match", "random", "random", code=130) == "Interrupted.\n"
    else:
        assert learn(["run.yaml"]) == 130


def interrupted_process(*words: str | Path) -> tuple[int, str, str]:
    """Exit code, output and errors of a real process that gets Ctrl-C in a terminal once a pair may be over."""
    master, slave = pty.openpty()
    shown = ""
    with subprocess.Popen(
        [sys.executable, "-m", "palus", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=slave,
        text=True,
        env={**os.environ, "COLUMNS": "200", "TERM": "xterm"},
    ) as process:
        os.close(slave)
        with contextlib.suppress(OSError):  # the end of a pseudo terminal is an error
            while piece := os.read(master, 65536).decode(errors="replace"):
                before, shown = shown, shown + piece
                bar = re.compile(r"\b[1-9]\d{2,}/\d+")  # a hundred matches are over, so some of them are pairs
                if bar.search(shown) and not bar.search(before):
                    process.send_signal(signal.SIGINT)
        os.close(master)
        said = process.communicate()[0]
    return process.returncode, said, shown


def test_ctrl_c_in_a_match_tells_what_was_played(tmp_path: Path):
    replay, log = tmp_path / "part.match", tmp_path / "log.jsonl"
    words = ("match", "ball-chaser", "random", "--pairs", 5000, "--json", "--replay", replay, "--replay-matches", 9999)
    code, said, shown = interrupted_process(*words, "--log", log)
    report = json.loads(said)
    assert (code, report["interrupted"]) == (130, True)
    assert 1 <= report["pairs"] < 5000
    assert f"Interrupted: {report['pairs']} of 5000 pairs were over" in shown
    assert len(log.read_text().splitlines()) == 2 * report["pairs"]
    assert len(read_replay(replay)[1].recordings) >= 2 * report["pairs"]


def test_ctrl_c_in_a_ranking_leaves_a_leaderboard(models: Path):
    code, said, shown = interrupted_process("rank", models, "--pairs", 5000)
    assert code == 130
    assert "rating" in said and "ball-chaser" in said
    assert re.search(r"Interrupted: [1-9]\d* of 60000 matches were over", shown)


def test_rank_makes_a_leaderboard_and_names_what_it_skipped(models: Path, tmp_path: Path):
    table = tmp_path / "board.md"
    words = ("rank", models, "--pairs", 2, "--without", "goalie-striker")
    board = json.loads(run(*words, "--json", "--output", table))
    assert {s["name"] for s in board["standings"]} == {"mine", "random", "ball-chaser"}
    assert board["standings"][0]["rating"] >= board["standings"][-1]["rating"]
    assert board["standings"][0]["rank_range"][0] == 1
    assert "broken.onnx" in board["skipped"][0]
    assert table.read_text().count("\n") == 5
    assert "ball-chaser" in run(*words)


def test_a_folder_without_a_model_is_no_leaderboard(models: Path, tmp_path: Path):
    (tmp_path / "empty").mkdir()
    assert "empty: no model in it that plays SoccerTwos; give" in run("rank", tmp_path / "empty", code=2)
    words = ("rank", tmp_path / "empty", "--with", models / "mine.onnx", "--pairs", 1)
    assert "empty: no policy in it that plays SoccerTwos" in run("fidelity", tmp_path / "empty", code=2)
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0 and "warning: " in result.stderr and "mine" in result.stdout, result.output


@pytest.mark.skipif(not MODELS.is_dir(), reason="the Unity-trained policies of ../shared are not here")
def test_fidelity_reports_every_unity_policy_beside_its_log(tmp_path: Path):
    for name in ("lmn8r-5.0M", "unity-official-soccertwos"):
        (tmp_path / f"{name}.onnx").write_bytes((MODELS / f"{name}.onnx").read_bytes())
    report = json.loads(run("fidelity", tmp_path, "--pairs", 4, "--episodes", 8, "--cross", "--json"))
    lmn8r, official = report["policies"]
    assert lmn8r["unity"]["entropy"] == 1.763
    assert official["unity"] is None
    assert [(row["a"], row["b"]) for row in report["cross"]] == [("lmn8r-5.0M", "unity-official-soccertwos")]


def test_what_is_imported_is_not_searched_for_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it is, and not when the process ends."""
    before, at_exit = gc.get_threshold(), list[object]()
    monkeypatch.setattr(sys, "argv", ["palus", "--version"])
    monkeypatch.setattr(atexit, "register", at_exit.append)
    try:
        with pytest.raises(SystemExit):
            main()
        assert gc.get_threshold() == (5_000, *before[1:]) and freeze in at_exit
    finally:
        gc.set_threshold(*before)


def test_a_command_that_used_duckdb_ends_without_a_list_of_what_it_leaked() -> None:
    code = "import atexit, gc; from palus.__main__ import freeze; {}; atexit.register(freeze); {}"
    used = code.format("import duckdb", "duckdb.connect().close()")
    other = code.format("freeze()", "print(gc.get_freeze_count() > 0)")
    told = [subprocess.run([sys.executable, "-c", words], capture_output=True, text=True) for words in (used, other)]
    assert [(done.returncode, done.stderr, done.stdout) for done in told] == [(0, "", ""), (0, "", "True\n")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_the_page_of_a_replay_ends_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.chdir(tmp_path)
    run("match", "random", "random", "--pairs", 1, "--replay", "seen.match")
    command = [sys.executable, "-m", "palus", "watch", "seen.match", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        assert page.stdout is not None
        address = next(line for line in page.stdout if line.startswith("Watch at ")).split()[2]
        with urllib.request.urlopen(address) as answer:
            assert b"<title>random" in answer.read()
        page.send_signal(number)
        assert (page.stdout.read(), page.wait(60)) == ("Ended.\n", 0)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--replay-matches", "3"], "--replay-matches 3: of which replay? Name its file: --replay FILE.match"),
        (["--env", "game.x86_64", "--game", "SoccerTwos"], "--game SoccerTwos: with --env its game is played;"),
        (["--env", "game.x86_64", "--log", "matches.jsonl"], "matches.jsonl: replays and match logs are of palus's"),
    ],
)
def test_options_of_a_match_that_would_do_nothing_are_refused(options: list[str], told: str) -> None:
    assert told in " ".join(run("match", "random", "random", *options, code=2).split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full, Linux's disk that is always full")
@pytest.mark.parametrize(
    "words", [["match", "random", "random", "--pairs", "1", "--json"], ["--version"], ["--help"]], ids=" ".join
)
def test_output_that_a_full_disk_does_not_take_is_told_in_a_sentence(words: list[str]) -> None:
    command = [sys.executable, "-m", "palus", *words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        2, "error: the output: No space left on device; free space there"
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files; let a process open more of them (ulimit"),
        (OSError(errno.EDQUOT, "Disk quota exceeded", "mine.csv"), "mine.csv: Disk quota exceeded; free space there"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']"), "TMPDIR=FOLDER"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "lost"), None),
    ],
    ids=["files", "quota", "temporary", "other"],
)
def test_what_the_system_lacks_is_told_in_a_sentence(fault: OSError, told: str | None) -> None:
    found = told_lack(fault)
    assert found == told if told is None or found is None else told in found


def test_a_command_that_may_open_no_more_files_ends_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(backup, "back_up", fail)
    assert run("backup", "arena", "copy", code=2).startswith("error: Too many open files; ")
