"""The imports that ARCHITECTURE.md promises: one direction, declared packages only, no torch in the base install."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "palus"
EXTRAS = ("train", "hub", "arena", "doom", "video", "postgres")


@dataclass(frozen=True)
class Picture:
    """The lines of ARCHITECTURE.md's picture."""

    stages: list[str]
    leaves: list[str]
    top: list[str]
    torch: list[str]

    def may_import(self, importer: str, imported: str) -> bool:
        """Whether the picture lets one top-level module of palus import another."""
        if importer == imported or importer in self.top or imported in self.leaves:
            return True
        if importer in self.leaves or imported in self.top:
            return False
        return self.stages.index(imported) < self.stages.index(importer)


def read_picture() -> Picture:
    text = (ROOT / "ARCHITECTURE.md").read_text()

    def words(pattern: str, separator: str) -> list[str]:
        found = re.search(pattern, text, re.MULTILINE)
        assert found, f"ARCHITECTURE.md: no line like {pattern}"
        return [word.strip() for word in found[1].split(separator)]

    return Picture(
        words(r"^    (\w+(?: -> \w+)+)$", "->"),
        words(r"^    leaves, .*: (.+)$", ","),
        words(r"^    on top, .*: (.+)$", ","),
        words(r"^    torch is .*: (.+)$", ","),
    )


def top_level_modules() -> set[str]:
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.name for path in PACKAGE.iterdir() if any(path.glob("**/*.py"))}


def imported_modules(path: Path) -> Iterator[tuple[str, int]]:
    """Absolute dotted names that a file imports anywhere in it, with the line."""
    package = ("palus", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            # `from palus import train` names a module only together with what it imports.
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def all_imports() -> Iterator[tuple[Path, str, int]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, line in imported_modules(path):
            yield path.relative_to(PACKAGE), name, line


def test_the_picture_shows_every_module_once_and_no_other() -> None:
    picture = read_picture()
    assert sorted([*picture.stages, *picture.leaves, *picture.top]) == sorted(top_level_modules())
    assert set(picture.torch) <= top_level_modules()


def test_imports_point_one_way() -> None:
    picture = read_picture()
    wrong = []
    for path, name, line in all_imports():
        importer = path.parts[0].removesuffix(".py")
        parts = name.split(".")
        if parts[0] != "palus" or parts[1] not in top_level_modules() or importer in ("__init__", "__main__"):
            continue
        if not picture.may_import(importer, parts[1]):
            wrong.append(f"{path}:{line} imports palus.{parts[1]}")
    assert wrong == []


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("arena", "envs", True),
        ("envs", "arena", False),
        ("learn", "errors", True),
        ("errors", "learn", False),
        ("ratings", "types", True),
        ("cli", "web", True),
        ("web", "cli", False),
    ],
)
def test_the_picture_means_left_and_leaves(importer: str, imported: str, allowed: bool) -> None:
    assert read_picture().may_import(importer, imported) is allowed


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(r for name in EXTRAS for r in extras[name])]
    declared = {normal(requirement) for requirement in requirements}
    declared.add("pydantic-core")  # pydantic's documentation imports its error types from there, at a version it pins
    distributions = packages_distributions()
    undeclared = []
    for path, name, line in all_imports():
        package = name.split(".")[0]
        if package == "palus" or package in sys.stdlib_module_names:
            continue
        if not declared & {normal(found) for found in distributions.get(package, [package])}:
            undeclared.append(f"{path}:{line} imports {package}")
    assert undeclared == []


def normal(requirement: str) -> str:
    """The name in a requirement, as package indexes compare names."""
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-")


IMPORT_BASE_INSTALL = """
import importlib, pkgutil, sys
sys.modules["torch"] = sys.modules["tensorboardX"] = None  # importing them now fails, as where they are not installed
import palus
for name in sys.argv[1:]:
    module = importlib.import_module(f"palus.{name}")
    for child in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        importlib.import_module(child.name)
"""


def test_the_base_install_needs_no_training_framework() -> None:
    light = sorted(top_level_modules() - set(read_picture().torch))
    done = subprocess.run([sys.executable, "-c", IMPORT_BASE_INSTALL, *light], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
