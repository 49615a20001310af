"""What the documents, the Makefile and the packaging say about each other is true."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from importlib.metadata import distribution, entry_points
from pathlib import Path

import pytest
import yaml

import palus
from palus.cli.output import BROUGHT_BY
from palus.config import load_run, notes

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "benchmarks" / "README.md"])
LINKING = sorted({*DOCUMENTS, *ROOT.glob("benchmarks/results/**/*.md")})


def commands_of(document: Path) -> list[list[str]]:
    """Words of each command line: indented lines, fenced lines and `inline code`, comments cut off."""
    text = document.read_text()
    fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL))
    lines = re.findall(r"^ {4}(\S.*)$", text, re.MULTILINE) + fenced.splitlines() + re.findall(r"`([^`\n]+)`", text)
    return [line.removeprefix("$ ").split(" #")[0].split() for line in lines if line.strip()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_documents_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    subcommands = palus_subcommands()
    for words in commands_of(document):
        name = Path(words[0]).name
        if name == "make" and len(words) > 1:
            assert words[1] in targets, f"{document.name}: {' '.join(words)}"
        if name == "palus" and len(words) > 1 and words[1].isalpha() and words[1].islower():
            assert words[1] in subcommands, f"{document.name}: {' '.join(words)}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_run_files_in_the_documents_are_valid_and_take_effect(document: Path, tmp_path: Path) -> None:
    for text in re.findall(r"^```yaml\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL):
        if "behaviors" in yaml.safe_load(text):
            (tmp_path / "run.yaml").write_text(text)
            idle = [note for note in notes(load_run(str(tmp_path / "run.yaml"))) if re.search("no effect|never", note)]
            assert idle == [], text


def anchors_of(document: Path) -> set[str]:
    """What GitHub calls the headings of a page: lower case, no punctuation, hyphens for spaces."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", LINKING, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_in_the_documents_lead_somewhere(document: Path) -> None:
    for link in re.findall(r"\]\(([^)\s:]+)\)", document.read_text()):
        path, _, anchor = link.partition("#")
        target = document.parent / path if path else document
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


def palus_subcommands() -> set[str]:
    from typer.main import get_command

    from palus.cli import app

    return set(getattr(get_command(app), "commands", {}))


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder to call make in, whose .venv is this environment; pytest there writes down what it was asked."""
    programs = {"python": f'exec {sys.executable} "$@"', "pytest": 'echo "$@" > asked'}
    (tmp_path / "docs").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name, line in programs.items():
        (tmp_path / ".venv" / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / ".venv" / "bin" / name).chmod(0o755)
    return tmp_path


def make(folder: Path, target: str) -> None:
    words = ["make", "-C", str(folder), "-f", str(ROOT / "Makefile"), "-o", ".venv/dev.stamp", target]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_make_docs_writes_the_generated_page(elsewhere: Path) -> None:
    (elsewhere / "docs" / "run-file.md").write_text("old")
    shutil.copy(ROOT / "docs" / "run_file_page.py", elsewhere / "docs")
    make(elsewhere, "docs")
    assert {path.name for path in (elsewhere / "docs").iterdir()} == {"run-file.md", "run_file_page.py"}
    assert (elsewhere / "docs" / "run-file.md").read_text() == (ROOT / "docs" / "run-file.md").read_text()


def test_the_files_that_tests_begin_with_are_there() -> None:
    first = re.findall(r'^    "(.*\.py)",$', (ROOT / "tests" / "conftest.py").read_text(), re.MULTILINE)
    assert len(first) > 1
    assert [file for file in first if not (ROOT / "tests" / file).is_file()] == []


def test_make_test_slow_runs_the_slow_tests(elsewhere: Path) -> None:
    make(elsewhere, "test-slow")
    assert (elsewhere / "asked").read_text().startswith("-m slow --timeout ")


def test_every_program_of_the_ten_lines_comes_with_the_demo() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *extras["train"], *extras["arena"]]
    installed = {re.split(r"[^\w-]", requirement)[0] for requirement in requirements} | {"palus"}
    block = (ROOT / "README.md").read_text().partition("## Ten lines")[2].partition("\n## ")[0]
    programs = {line.split()[0] for line in re.findall(r"^ {4}(\S.*)$", block, re.MULTILINE)} - {"source", "ls"}
    scripts = {script.name: script.dist.name for script in entry_points(group="console_scripts") if script.dist}
    assert programs == {"palus", "tensorboard"}
    assert {scripts[program] for program in programs} <= installed


@pytest.mark.parametrize("document", ["README.md", "docs/doom.md"])
def test_dooms_install_line_brings_what_its_commands_need(document: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    line = re.search(r'^ {4}pip install "palus\[(.*)\]"$', (ROOT / document).read_text(), re.MULTILINE)
    assert line is not None
    brought = {re.split(r"[^\w-]", need)[0] for extra in line[1].split(",") for need in extras[extra]}
    assert {"torch", "vizdoom", "av", "huggingface_hub"} <= brought  # train, play, film, --push-to-hub


def test_the_changelog_begins_with_this_version() -> None:
    versions = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert versions[0] == palus.__version__


def test_every_entry_point_can_be_called() -> None:
    scripts = distribution("palus").entry_points.select(group="console_scripts")
    assert "palus" in scripts.names
    assert all(callable(script.load()) for script in scripts)


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = sum(project["optional-dependencies"].values(), project["dependencies"])
    wanted = {re.split(r"[^\w-]", requirement)[0].lower() for requirement in requirements} - {"palus"}
    pins = re.findall(r"^([\w-]+)==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert wanted - {pin.lower() for pin in pins} == set()


def test_the_command_knows_what_every_extra_brings() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    modules = {"grpcio": "grpc", "pillow": "PIL", "SQLAlchemy": "sqlalchemy", "markdown-it-py": "markdown_it"}
    for extra in extras.keys() - {"dev"}:
        packages = {re.split(r"[^\w-]", requirement)[0] for requirement in extras[extra]} - {"palus"}
        for package in packages:
            module = modules.get(package, package)
            brought_by = BROUGHT_BY[module]
            assert package in {re.split(r"[^\w-]", requirement)[0] for requirement in extras[brought_by]}
    assert set(BROUGHT_BY.values()) == extras.keys() - {"dev"}


def test_a_source_distribution_holds_no_part_of_the_tests(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", "77", reason="what builds palus is not installed here")
    test = "tests/test_project.py"
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "src/palus/__init__.py", test):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    build = [sys.executable, "-c", "from setuptools import build_meta; build_meta.build_sdist('.')"]
    subprocess.run(build, cwd=tmp_path, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"src/palus/__init__.py", "README.md"} <= held
    assert not [name for name in held if name.startswith("tests")]


def test_no_tracked_file_names_a_folder_of_one_machine() -> None:
    # Put together here so that this file does not name them either.
    folders = re.compile("|".join(rf"(?<![\w.~-])/{folder}/" for folder in ("work", "root", "home/[a-z]+", "tmp/venv")))
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout: which files are tracked is unknown")
    naming = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        content = path.read_bytes() if path.is_file() else b""
        if b"\0" not in content and folders.search(content.decode(errors="replace")):
            naming.append(name)
    assert naming == []
