"""docs/model-rules.md says what the code does: lists and limits that strangers' models are held to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from palus.arena.locked.lockdown import SYSTEM_CALLS, WITHOUT_EXECUTION
from palus.arena.models.rules import ARENA_RULES, PICTURE_RULES, Limits
from palus.arena.referee.games import GAMES

TEXT = re.sub(r"\s+", " ", (Path(__file__).parents[3] / "docs" / "model-rules.md").read_text())
HEADERS = ("/usr/include/x86_64-linux-gnu/asm/unistd_64.h", "/usr/include/asm-generic/unistd.h")


def listed(pattern: str) -> set[str]:
    """The names of a list, which the pattern encloses."""
    found = re.search(pattern, TEXT)
    assert found, pattern
    return set(re.findall(r"\w+", found[1]))


def test_the_system_calls_are_those_of_the_filter() -> None:
    assert listed("System calls that are left: (.*?);") == set(SYSTEM_CALLS)
    assert listed("; and (.*?) without execution") - {"and"} == set(WITHOUT_EXECUTION)
    opening = {
        "open",
        "openat",
        "socket",
        "clone",
        "clone3",
        "fork",
        "execve",
        "kill",
        "tgkill",
        "ptrace",
        "ioctl",
        "prctl",
    }
    assert not opening & set(SYSTEM_CALLS)


@pytest.mark.parametrize("column", [0, 1], ids=["x86_64", "aarch64"])
def test_the_numbers_of_system_calls_are_the_kernels(column: int) -> None:
    header = Path(HEADERS[column])
    if not header.is_file():
        pytest.skip(f"{header} is not there; install the kernel's headers")
    numbers = dict(re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", header.read_text()))
    calls = SYSTEM_CALLS | WITHOUT_EXECUTION
    assert {name: int(numbers[name]) for name in calls} == {name: both[column] for name, both in calls.items()}


def test_the_operators_are_those_of_the_rules() -> None:
    assert ARENA_RULES.operators and PICTURE_RULES.operators
    assert listed(r"of the ONNX standard: (.*?) \|") == ARENA_RULES.operators
    assert listed(r"\| operators \| also (.*?) \|") == PICTURE_RULES.operators - ARENA_RULES.operators


def test_the_limits_are_those_of_the_code() -> None:
    soccer, duel, process = ARENA_RULES, PICTURE_RULES, Limits()
    million = soccer.max_parameters // 1_000_000
    for sentence in (
        f"One `.onnx` file of at most {soccer.max_bytes >> 20} MiB",
        f"versions {soccer.opsets[0]} to {soccer.opsets[1]} of the ONNX standard",
        f"at most {soccer.max_nodes} nodes and {million} million parameters;",
        f"at most {GAMES['SoccerTwos'].max_p99_ms:g} ms of processor time for 4 observations",
        f"one `doom_duel.onnx` of at most {duel.max_bytes >> 20} MiB",
        f"at most {GAMES['doom_duel'].max_p99_ms:g} ms of processor time for 4 observations",
        f"| processor time | {GAMES['doom_duel'].cpu_s} s per pair |",
        f"has more than {soccer.max_bytes >> 20} MiB, in Doom {duel.max_bytes >> 20} |",
        f"nests messages more than {soccer.max_depth} levels deep",
        f"consists of more than {soccer.max_messages:,} messages".replace(",", " "),
        f"has more than {soccer.max_nodes} nodes",
        f"has more than {million} million parameters",
        f"{process.memory_bytes >> 20} MiB of address space, {process.cpu_s} s of processor time, "
        f"{process.wall_s:g} s per answer",
    ):
        assert sentence in TEXT
    assert (duel.max_nodes, duel.max_parameters) == (soccer.max_nodes, soccer.max_parameters), "the same in Doom"
