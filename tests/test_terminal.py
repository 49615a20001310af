"""What reaches a terminal: rich's styles, and no control character of any name."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.markup import escape
from rich.table import Table

import palus
from full_disk import at_most
from palus.cli.mlagents_hub import load_from_hf, push_to_hf
from palus.cli.mlagents_learn import learn, run_experiment
from palus.cli.output import standings, stderr, stdout
from palus.terminal import Terminal

NAME = "A\x1b]0;owned\x07\x1b[2J\x9b5m\r\tB\n"
SHOWN = "A]0;owned[2J5m"


CLOSED = """
import signal, sys
from contextlib import suppress
from palus.cli.output import progress_bar, stderr
signal.signal(signal.SIGHUP, signal.SIG_IGN)
stderr.print("ready")
with progress_bar("work", 2) as update:
    with suppress(OSError):
        sys.stdin.read()
    update(advance=1)
    stderr.print("nobody reads this")
stderr.print("nor this")
sys.exit(7)
"""


def test_who_writes_goes_on_when_the_terminal_closes() -> None:
    process, terminal = pty.fork()
    if not process:
        os.execv(sys.executable, [sys.executable, "-c", CLOSED])
    read = b""
    while b"ready" not in read:
        read += os.read(terminal, 1024)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 7


TOLD = """
import sys
from palus.cli.output import stderr, stdout
stderr.print("ready")
sys.stdin.readline()
for _ in range(2000):  # more than a buffer holds
    stderr.print("nobody reads this")
stdout.print("done")
"""


def test_who_writes_goes_on_when_nobody_reads_its_stderr() -> None:
    """As after Ctrl-C in `palus train run.yaml 2>&1 | tee log`, which ends both."""
    process = subprocess.Popen([sys.executable, "-c", TOLD], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    assert process.stderr is not None and process.stderr.readline() == "ready\n"
    process.stderr.close()
    assert process.communicate("\n")[0] == "done\n" and process.returncode == 0


def test_who_writes_goes_on_when_the_disk_of_its_stderr_is_full(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log, at_most(100):
        done = subprocess.run([sys.executable, "-c", TOLD], text=True, input="", stdout=subprocess.PIPE, stderr=log)
    assert done.stdout == "done\n"
    assert (tmp_path / "log").read_text().startswith("ready\nnobody reads this\n")


def test_names_lose_their_control_characters_and_styles_work() -> None:
    file = io.StringIO()
    console = Terminal(file=file, highlight=False, soft_wrap=True, force_terminal=True, color_system="standard")
    console.print(f"[bold red]error:[/] {escape(NAME)}", end="")
    text = file.getvalue()
    assert text.startswith(f"\x1b[1;31merror:\x1b[0m {SHOWN}") and text.count("\x1b") == 2
    assert text.endswith("B\n") and not set("\x07\x9b\r") & set(text)
    table = Table("name")
    table.add_row(NAME)
    file.truncate(file.seek(0))
    console.print(table)
    assert SHOWN in file.getvalue() and "\x1b[2J" not in file.getvalue() and "\x1b[1m" in file.getvalue()
    file.truncate(file.seek(0))
    with console.status(NAME):
        pass
    assert "\x1b[?25l" in file.getvalue() and "\x1b]0" not in file.getvalue()  # the cursor is hidden meanwhile


def test_words_between_colons_stay_words() -> None:
    table = Table("where")
    table.add_row("b:cat:")
    console = Terminal(file=(written := io.StringIO()))
    console.print("127.0.0.1:100: taken", table)
    assert "127.0.0.1:100: taken" in written.getvalue() and "b:cat:" in written.getvalue()


def test_a_table_has_columns_whatever_the_environment_says_of_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    table = Table("team")
    table.add_row("ball-chaser")
    Terminal(file=(written := io.StringIO())).print(table)
    assert "ball-chaser" in written.getvalue()


def test_a_table_loses_no_word_on_a_narrow_terminal() -> None:
    board = standings(("rank", "player", "rating", "points"), [("1", "goalie-striker", "1706", "100.0 %")])
    board.columns[2].no_wrap = True
    board.add_row("2", "random", "10 ± 3", "0.0 %")
    Terminal(file=(written := io.StringIO()), width=20, soft_wrap=True).table(board)
    assert "│    1 │ goalie-striker │   1706 │  100.0 │" in written.getvalue()
    assert "│    2 │ random         │ 10 ± 3 │  0.0 % │" in written.getvalue()
    Terminal(file=(wide := io.StringIO()), width=300, soft_wrap=True).table(board)
    assert "│    1 │ goalie-striker │   1706 │ 100.0 % │" in wide.getvalue()


def test_every_console_is_such_a_one() -> None:
    assert isinstance(stdout, Terminal) and isinstance(stderr, Terminal)
    assert not [path for path in Path(palus.__file__).parent.rglob("*.py") if "Console(" in path.read_text()]


def test_the_other_commands_print_no_controls_either(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.yaml"
    path.write_text('"a\\e]0;owned": 1')
    assert learn([str(path)]) == 2
    found = capsys.readouterr()
    assert "]0;owned" in found.err and "\x1b" not in found.err + found.out


def test_an_ascii_terminal_shows_a_question_mark_for_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text("default: {trainer: ppo}\nJ\u00e4ger: {max_steps: 1000}\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "palus", "migrate", "old.yaml"],
        cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, "J?ger:" in done.stdout) == (0, True), done.stderr


@pytest.mark.parametrize("command", [learn, run_experiment, push_to_hf, load_from_hf])
def test_so_do_the_other_commands(
    command: Callable[[list[str]], int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "ascii"))
    of_hub = command in (push_to_hf, load_from_hf)
    assert command(["--repo-id", "none", "--local-dir", str(tmp_path)] if of_hub else [str(tmp_path / "none")]) == 2
    assert sys.stdout.errors == "replace"
