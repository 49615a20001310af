"""The imports that ARCHITECTURE.md promises: one direction, declared packages only, no torch in the base install."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "palus"
EXTRAS = ("train", "hub", "arena", "doom", "unity", "video", "postgres", "sweep", "cluster")


@dataclass(frozen=True)
class Picture:
    """What ARCHITECTURE.md draws. heavy: who may load a package that not everybody needs, by the word for it there.

    wings: of folders that have a picture of their own, from left to right.
    """

    stages: list[str]
    leaves: list[str]
    top: list[str]
    heavy: dict[str, list[str]]
    wings: dict[str, list[str]]

    def may_import(self, importer: str, imported: str) -> bool:
        """Whether the picture lets one top-level module of palus import another."""
        if importer == imported or imported in self.leaves:
            return True
        if importer in self.leaves or (imported in self.top and importer not in self.top):
            return False
        order = [*self.stages, *self.top]
        return order.index(imported) < order.index(importer)


@cache
def read_picture() -> Picture:
    text = (ROOT / "ARCHITECTURE.md").read_text()

    def lines(pattern: str) -> list[tuple[str, list[str]]]:
        """A line's first word, and the words after it."""
        found = re.findall(pattern, text, re.MULTILINE)
        assert found, f"ARCHITECTURE.md: no line like {pattern}"
        return [(word, re.split(r" -> |, ", words)) for word, words in found]

    return Picture(
        lines(r"^()    (\w+(?: -> \w+)+)$")[0][1],
        lines(r"^    (leaves), .*: (.+)$")[0][1],
        lines(r"^    (on top), .*: (.+)$")[0][1],
        dict(lines(r"^    ([\w.]+) is loaded by these only: (.+)$")),
        dict(lines(r"^    (\w+): (\w+(?: -> \w+)+)$")),
    )


def modules_in(folder: Path) -> set[str]:
    """Modules and folders of modules that lie directly in a folder."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.name for path in folder.iterdir() if any(path.glob("**/*.py"))}


@cache
def top_level_modules() -> set[str]:
    return modules_in(PACKAGE)


class WithoutTypes(ast.NodeTransformer):
    """Drops what stands under `if TYPE_CHECKING`."""

    def visit_If(self, node: ast.If) -> ast.If | None:
        return None if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING" else node


@cache
def imported_modules(path: Path, *, types_too: bool = True) -> list[tuple[str, int]]:
    """Absolute dotted names that a file imports anywhere in it, with the line. types_too: those for types alone too."""
    tree = ast.parse(path.read_text(), str(path))
    return list(names_in(tree if types_too else WithoutTypes().visit(tree), path))


def names_in(tree: ast.AST, path: Path) -> Iterator[tuple[str, int]]:
    package = ("palus", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            module = ".".join((*base, *([node.module] if node.module else [])))
            # `from palus import train` names a module only together with what it imports.
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


@cache
def source_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def all_imports(*, types_too: bool = True) -> Iterator[tuple[Path, str, int]]:
    for path in source_files():
        for name, line in imported_modules(path, types_too=types_too):
            yield path.relative_to(PACKAGE), name, line


def test_the_picture_shows_every_module_once_and_no_other() -> None:
    picture = read_picture()
    assert sorted([*picture.stages, *picture.leaves, *picture.top]) == sorted(top_level_modules())
    assert set(picture.heavy["torch"]) <= top_level_modules()


def test_a_folder_s_picture_shows_its_modules_once_and_no_other() -> None:
    wings = read_picture().wings
    assert {folder: sorted(words) for folder, words in wings.items()} == {
        folder: sorted(modules_in(PACKAGE / folder)) for folder in wings
    }
    assert "arena" in wings


def test_imports_within_a_folder_point_one_way() -> None:
    wings = read_picture().wings
    wrong = []
    for path, name, line in all_imports():
        folder, importer = path.parts[0], path.parts[1].removesuffix(".py") if len(path.parts) > 1 else "__init__"
        parts = name.split(".")
        if folder not in wings or importer == "__init__" or parts[:2] != ["palus", folder]:
            continue
        order = wings[folder]
        if order.index(parts[2]) > order.index(importer):
            wrong.append(f"{path}:{line} imports {name}")
    assert wrong == []


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


def test_no_module_imports_itself_over_others() -> None:
    """Not even late, within a function; what is imported for its types alone does not count."""
    paths = {".".join(("palus", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in source_files()}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph = {}
    for importer, path in modules.items():
        named = {name for name, _ in imported_modules(path, types_too=False)}
        graph[importer] = {name if name in modules else name.rpartition(".")[0] for name in named} - {importer}
    TopologicalSorter(graph).prepare()  # raises CycleError, which shows the circle


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
        ("train", "run", True),
        ("run", "train", False),
    ],
)
def test_the_picture_means_left_and_leaves(importer: str, imported: str, allowed: bool) -> None:
    assert read_picture().may_import(importer, imported) is allowed


def test_every_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    requirements = [*project["dependencies"], *(r for name in EXTRAS for r in extras[name])]
    declared = {normal(requirement) for requirement in requirements}
    declared.add("grpc")  # what grpcio brings, where it is not installed
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


IMPORT_ALL_BUT = """
import importlib, pkgutil, sys
blocked, heavy, names = (text.split(",") for text in sys.argv[1:])
for name in blocked:
    sys.modules[name] = None  # importing it now fails, as where it is not installed
import palus
for name in names:
    module = importlib.import_module(name)
    for child in pkgutil.walk_packages(getattr(module, "__path__", []), module.__name__ + "."):
        if not any(f"{child.name}.".startswith(f"palus.{folder}.") for folder in heavy):
            importlib.import_module(child.name)
"""


def import_without(blocked: list[str], heavy: list[str], names: list[str]) -> None:
    """Import modules, and all below them but the heavy ones, in a process that lacks some packages."""
    arguments = [",".join(texts) for texts in (blocked, [word.replace("/", ".") for word in heavy], names)]
    done = subprocess.run([sys.executable, "-c", IMPORT_ALL_BUT, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def light_modules(heavy: list[str]) -> list[str]:
    return [f"palus.{name}" for name in sorted(top_level_modules() - set(heavy))]


def test_the_base_install_needs_no_training_framework() -> None:
    heavy = [word for name in ("torch", "grpc", "optuna") for word in read_picture().heavy[name]]
    import_without(["torch", "tensorboardX", "grpc", "optuna", "matplotlib"], heavy, light_modules(heavy))


def test_only_who_keeps_something_loads_the_database() -> None:
    heavy = read_picture().heavy["sqlalchemy"]
    assert "arena/ladder" in heavy
    heavy = heavy + [word for name in ("grpc", "optuna", "ray") for word in read_picture().heavy[name]]
    import_without(["sqlalchemy", "alembic"], heavy, light_modules(heavy))


def test_a_worker_that_steps_games_starts_without_run_files_torch_and_compiler() -> None:
    import_without(["palus.config", "torch", "numba"], [], ["palus.rollout.worker"])


def test_a_command_is_told_of_without_those_beside_it() -> None:
    """`palus login` and `palus rank` read no run file, so the schema of run files is not loaded for them."""
    names = ["palus.__main__", "palus.cli.login", "palus.cli.worker", "palus.cli.rank", "palus.cli.match"]
    import_without(["palus.config", "numba", "sqlalchemy"], [], names)
    import_without(["palus.config", "numpy", "pydantic"], [], names[:3])


@pytest.mark.parametrize("package", read_picture().heavy)
def test_a_heavy_package_is_loaded_where_the_picture_says_and_nowhere_else(package: str) -> None:
    named = {
        path.with_suffix("").as_posix()
        for path, name, _ in all_imports(types_too=False)
        if name == package or name.startswith(f"{package}.")
    }
    allowed = read_picture().heavy[package]
    assert {name for name in named if not any(f"{name}/".startswith(f"{word}/") for word in allowed)} == set()


@pytest.mark.parametrize("package", ["fsspec", "ray"])
def test_what_reaches_other_machines_is_loaded_where_the_picture_says(package: str) -> None:
    loading = {path.parts[0] for path, name, _ in all_imports() if name.split(".")[0] == package}
    assert sorted(loading) == read_picture().heavy[package]


def test_what_joins_ranks_is_loaded_by_one_module() -> None:
    loading = {path.with_suffix("").as_posix() for path, name, _ in all_imports() if "torch.distributed" in name}
    assert sorted(loading) == read_picture().heavy["torch.distributed"]


@pytest.mark.parametrize("command", ["match", "worker"])
def test_a_remote_worker_and_a_match_load_no_database(command: str) -> None:
    """Commands import late what they need; so do those that help them."""
    path = PACKAGE / "cli" / f"{command}.py"
    named = {name.rpartition(".")[0] for name, _ in imported_modules(path)}
    import_without(["sqlalchemy", "alembic"], [], sorted(name for name in named if name.startswith("palus.")))
