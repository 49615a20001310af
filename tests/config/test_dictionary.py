"""The dictionary for people who come from Sample Factory has every option of theirs, and no word that palus lacks."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from palus.cli import app
from palus.config.appo import Sampling
from palus.config.run_file import PalusSettings

PAGE = Path(__file__).parents[2] / "docs" / "from-sample-factory.md"
OPTIONS = (Path(__file__).parent / "data" / "sample_factory_2.1.1.txt").read_text().split()
"""What the parsers of sample-factory 2.1.1 take: for training, for evaluation, and Doom's."""


def rows() -> list[list[str]]:
    table = PAGE.read_text().partition("## Options")[2].partition("\n## ")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", table, re.M)][2:]


def test_every_option_is_listed_once_with_a_word_or_a_reason() -> None:
    listed = [name for row in rows() for name in re.findall(r"`(\w+)`", row[0])]
    assert len(OPTIONS) == 138
    assert set(OPTIONS) - set(listed) == set()
    assert {name for name in listed if listed.count(name) > 1} <= {"batch_size"}  # its second row is a product
    assert [row for row in rows() if not row[1] or (row[1] == "none" and not row[2])] == []


def test_the_words_are_palus_own() -> None:
    words = {word for row in rows() for word in re.findall(r"`([^`]+)`", row[1])}
    keys = {word.split(":")[0].removeprefix("palus.") for word in words if word.startswith("palus.")}
    known = {*PalusSettings.model_fields, *(f"sampling.{key}" for key in Sampling.model_fields)}
    assert {key for key in keys if not key.startswith("env_options.")} <= known
    commands = [
        command for command in vars(get_command(app))["commands"].values() if command.name in ("train", "enjoy")
    ]
    flags = {flag for command in commands for parameter in command.params for flag in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= flags
