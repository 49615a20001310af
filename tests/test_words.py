"""Words mean one thing: the glossary of ARCHITECTURE.md and the names of classes agree, and named modules are there."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path
from typing import Any

from palus.config.run_file import PalusSettings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "palus"


def fields_by_class() -> tuple[list[tuple[str, set[str]]], list[tuple[str, set[str]]]]:
    """Public classes and type aliases with the fields that they declare: the ordinary ones, and the web's shapes.

    A shape is what the pages are told of a thing, so it may be called like the thing.
    """
    ordinary, shapes = [], []
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(path.read_text(), str(path)).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                fields = {part.target.id for part in node.body if isinstance(part, ast.AnnAssign) and is_name(part)}
                is_shape = any(isinstance(base, ast.Name) and base.id == "Shape" for base in node.bases)
                (shapes if is_shape else ordinary).append((node.name, fields))
            elif isinstance(node, ast.AnnAssign) and is_name(node) and ast.unparse(node.annotation) == "TypeAlias":
                ordinary.append((node.target.id, set()))
    return ordinary, shapes


def is_name(node: ast.AnnAssign) -> bool:
    return isinstance(node.target, ast.Name)


def glossary() -> dict[str, list[str]]:
    """Word -> the classes, or fields of classes, that carry it."""
    text = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## Words\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\w+) \| .* \| (.*) \|$", text, re.MULTILINE)
    return {word: re.findall(r"`([\w.]+)`", carriers) for word, carriers in rows if word != "word"}


def test_no_two_classes_have_the_same_name() -> None:
    for classes in fields_by_class():
        names = Counter(name for name, _ in classes)
        assert {name for name, count in names.items() if count > 1} == set()


def test_every_word_of_the_glossary_is_carried_by_a_class() -> None:
    declared = dict(fields_by_class()[0])
    for word, carriers in glossary().items():
        assert carriers, f"{word}: no class carries it"
        for name, _, field in (carrier.partition(".") for carrier in carriers):
            assert name in declared, f"{word}: there is no class {name}"
            assert not field or field in declared[name], f"{word}: {name} has no field {field}"


def test_a_class_called_like_a_word_is_the_one_that_carries_it() -> None:
    words = glossary()
    assert {"match", "leg", "pair", "game", "unit", "job", "entity", "player", "entry"} <= set(words)
    called = {name.lower(): name for name, _ in fields_by_class()[0]}
    wrong = {called[word] for word, carriers in words.items() if word in called and called[word] not in carriers}
    assert wrong == set()


def test_what_texts_name_of_palus_is_there() -> None:
    """`palus.x.y` in code and documents: a module, something in one, or a key of the run file."""
    documents = [path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"]
    for path in [*PACKAGE.rglob("*.py"), *(ROOT / "docs").glob("*.md"), *documents]:
        for name in re.findall(r"`(palus(?:\.\w+)+)", path.read_text()):
            first, *more = name.split(".")[1:]
            if is_module(PACKAGE / first):
                assert is_there(PACKAGE / first, more) or is_key([first, *more]), f"{path}: {name}"


def is_module(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def is_there(module: Path, names: list[str]) -> bool:
    """Whether a module has them, one within the other."""
    if names and is_module(module / names[0]):
        return is_there(module / names[0], names[1:])
    text = (module / "__init__.py" if module.is_dir() else module.with_suffix(".py")).read_text()
    return all(re.search(rf"\b{name}\b", text) for name in names)


def is_key(names: list[str]) -> bool:
    section: Any = PalusSettings
    for name in names:
        if name not in getattr(section, "model_fields", {}):
            return False
        section = section.model_fields[name].annotation
    return True
