"""From a YAML file, a preset's name and dotted overrides to one plain tree, not yet judged against the schema."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from palus.config.faults import Fault, found
from palus.errors import ConfigError

Tree = dict[str, Any]
_TEXT = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_OBJECT = "tag:yaml.org,2002:python/object/apply:mlagents.trainers.settings.DefaultTrainerDict"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


@dataclass(frozen=True)
class Source:
    """label: how faults name it, `SoccerTwos.yaml` or `preset debug`. text: its YAML."""

    label: str
    text: str


def preset_names() -> list[str]:
    """Names that `load_run` accepts instead of a file, sorted."""
    folder = resources.files("palus") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def read_source(source: str | Path) -> Source:
    """Read a YAML file, or the preset of that name. Raises ConfigError when it cannot be read."""
    path = Path(source)
    try:
        if path.is_file():
            return Source(path.name, path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}); save it as UTF-8 text") from error
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    if str(source) in preset_names():
        preset = resources.files("palus") / "presets" / f"{source}.yaml"
        return Source(f"preset {source}", preset.read_text(encoding="utf-8"))
    raise ConfigError(_missing(path))


def _missing(path: Path) -> str:
    """The message for a source that is neither a file nor a preset, with near names of both. What is written as a file
    was meant as one."""
    if (path / "configuration.yaml").is_file():
        return f"{path}: found a run folder, expected a YAML file; use {path / 'configuration.yaml'}"
    if path.is_dir():
        return f"{path}: found a folder, expected a YAML file or a preset"
    as_file = path.suffix in (".yaml", ".yml") or path.parent != Path()
    files = {p.stem: str(p) for p in path.parent.glob("*.y*ml")} if path.parent.is_dir() else {}
    presets = {name: name for name in preset_names()}
    known = (files, presets) if as_file else (files | presets,)
    nears = ([own[name] for name in difflib.get_close_matches(path.stem, own, n=3)] for own in known)  # no `.yaml`
    near = next(filter(None, nears), [])
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    if as_file:
        return f"{path}: no such file{hint}"
    return f"{path}: no such file or preset{hint or ';'} presets: {', '.join(presets)}"


class _Loader(yaml.SafeLoader):
    """SafeLoader that leaves dates and YAML 1.1's numbers to the base 60 as text: a run may be called 2024-05-01, or
    1:30, and PyYAML takes minutes for long ones."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]
        return _TEXT if tag == _TIMESTAMP or (tag in _NUMBERS and ":" in value) else tag

    def construct_scalar(self, node: Any) -> Any:
        """A character beyond 16 bits is two escapes in JSON, which PyYAML leaves two."""
        value = super().construct_scalar(node)
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") if value else value


def _behaviors(loader: _Loader, node: yaml.Node) -> Any:
    """`behaviors` as ML-Agents wrote them about 0.20: a Python object, which is read as the map that it holds."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
        if key.value == "dictitems":
            return loader.construct_mapping(value, deep=True)
    return {}


_Loader.add_constructor(_OBJECT, _behaviors)

MAX_VALUES = 100_000
"""In a run file, or an override."""
MAX_SHOWN = 60
"""Characters of a file that is no run file, in the message that says so."""
MAX_DIGITS = 100
"""Of a number."""


def parse_yaml(text: str, repeated: list[str] | None = None) -> tuple[Any, list[Fault]]:
    """The value of a YAML text, and its faults; with faults the value is None.

    repeated: takes a sentence for each key that is given again, whose last value counts; without it that is a fault.
    """
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root and _size(root, {}) > MAX_VALUES:
            return None, [Fault((), f"more than {MAX_VALUES} values with its aliases written out; shorten it")]
        faults = [Fault((), text) for text in _key_faults(root, (), repeated)] if root else []
        return (None, faults) if faults or root is None else (loader.construct_document(root), [])
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        return None, [Fault((), f"{where}not valid YAML: {error.problem or error.context}")]
    except (yaml.YAMLError, ValueError) as error:
        return None, [Fault((), f"not valid YAML: {' '.join(str(error).split())}")]
    except RecursionError:
        return None, [Fault((), "nested too deep; a run file has about six levels")]
    except Exception as error:  # of what PyYAML calls, which takes for granted that a value is what its tag says
        return None, [Fault((), f"not valid YAML: a value is not what its tag says ({error!r}); leave the tag out")]


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Values below a node, aliases written out: a few lines can stand for billions."""
    if id(node) not in known:
        known[id(node)] = 0  # inside itself it counts for nothing, and is a fault of its own
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        children = (part for item in parts for part in (item if isinstance(item, tuple) else (item,)))
        known[id(node)] = 1 + sum(_size(child, known) for child in children)
    return known[id(node)]


def _key_faults(node: yaml.Node, above: tuple[yaml.Node, ...], repeated: list[str] | None) -> Iterator[str]:
    """Repeated keys, keys that are not text, aliases inside themselves, endless numbers and those to the base 60: YAML
    allows all of them, a run file none."""
    if any(node is other for other in above):
        yield f"line {node.start_mark.line + 1}: the alias of this value is used inside it; write the value out"
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _key_faults(item, (*above, node), repeated)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                yield f"line {line}: a key must be text, not a list or a map"
            elif key.tag not in (_TEXT, _MERGE):
                yield f"line {line}: the key {key.value} is not text; put it in quotes"
            elif key.value in lines:
                twice = f"line {line}: {key.value} is given twice, first in line {lines[key.value]}"
                if repeated is None:
                    yield f"{twice}; keep one"
                else:
                    repeated.append(f"{twice}; the last counts")
            else:
                lines[key.value] = line
            yield from _key_faults(value, (*above, node), repeated)
    elif node.tag in _NUMBERS and (":" in node.value or len(node.value) > MAX_DIGITS):
        line, text = node.start_mark.line + 1, node.value[:20]
        yield f"line {line}: {text} is no number of a run file; write it with at most {MAX_DIGITS} digits"


def parse_tree(text: str, repeated: list[str] | None = None, *, least: str = "behaviors") -> tuple[Tree, list[Fault]]:
    """Like `parse_yaml`, for a whole file, which has to be a map. least: what an empty one lacks."""
    value, faults = parse_yaml(text, repeated)
    if faults:
        return {}, faults
    if value is None:
        return {}, [Fault((), f"the file is empty; expected at least {least}")]
    if not isinstance(value, dict):
        shown = found(value)
        shown = shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}..."
        return {}, [Fault((), f"expected a map of sections, found {shown}")]
    return value, []


def apply_overrides(tree: Tree, overrides: Sequence[str]) -> tuple[Tree, list[tuple[str, ...]], list[Fault]]:
    """`tree` with each `dotted.path=value` set, the paths that were set, and the faults. `tree` is not changed."""
    paths: list[tuple[str, ...]] = []
    faults: list[Fault] = []
    for override in overrides:
        dotted, equals, text = override.partition("=")
        path = tuple(dotted.strip().split("."))
        if not equals or not all(path):
            paths.append((override,))
            faults.append(Fault((override,), "expected dotted.path=value"))
            continue
        value, bad = parse_yaml(text)
        paths.append(path)
        problem = bad[0].text if bad else _blocked(tree, path)
        if problem:
            faults.append(Fault(path, problem))
        else:
            tree = _with_value(tree, path, value)
    return tree, paths, faults


def _blocked(tree: Tree, path: tuple[str, ...]) -> str | None:
    """Why the path cannot be set, or None. A new behavior beside others is far more often a slip than a wish."""
    behaviors = tree.get("behaviors")
    known = list(behaviors) if isinstance(behaviors, dict) else []
    if known and path[0] == "behaviors" and path[1:] and path[1] not in known:
        return f"no behavior {path[1]}; the file has {', '.join(known)}"
    node: Any = tree
    for depth, part in enumerate(path[:-1], start=1):
        node = node.get(part)
        if node is None:
            return None
        if not isinstance(node, dict):
            return f"{'.'.join(path[:depth])} is {found(node)}, not a section; set it as a whole"
    return None


def _with_value(tree: Tree, path: tuple[str, ...], value: Any) -> Tree:
    head, rest = path[0], path[1:]
    return tree | {head: _with_value(tree.get(head) or {}, rest, value) if rest else value}
