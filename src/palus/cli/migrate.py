"""`palus migrate`: a run file of an older ML-Agents in today's words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
import yaml
from rich.markup import escape

from palus.cli.output import stderr, typed
from palus.config import load_run
from palus.config.migrate import Migration, has_old_ratio, old_format
from palus.config.source import Source, Tree, parse_tree, read_source
from palus.errors import ConfigError, StorageError
from palus.files import write_text

EPILOG = """
Examples:

  # print it in today's words
  palus migrate old.yaml

  palus migrate old.yaml --curriculum c.yaml --sampler s.yaml --output a.yaml

  # a folder with BigWallJump.json and SmallWallJump.json, as up to 0.13
  palus migrate old.yaml --curriculum curricula/wall-jump --output a.yaml
"""


def migrate(
    file: Annotated[Path, typer.Argument(help="Run file of an older ML-Agents.")],
    curriculum: Annotated[
        Path | None, typer.Option(help="The curriculum's file, where it has one, or the folder with one per behavior.")
    ] = None,
    sampler: Annotated[Path | None, typer.Option(help="The samplers' file, where it has one.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write it to this file, which must not be there yet.")] = None,
) -> None:
    """Translate a run file of an older ML-Agents, and tell line by line what became of its keys.

    The file goes to stdout, or to `--output`; what became of the keys goes to stderr.
    """
    tree = _tree(file)
    extra = [{} if sampler is None else _tree(sampler), {} if curriculum is None else _curricula(curriculum)]
    if old_format(tree) is None and not has_old_ratio(tree) and not any(extra):
        raise ConfigError([f"{file}: is in today's format already; nothing to translate"])
    migration = Migration()
    found = json.loads(json.dumps(migration.run(tree, *extra)))  # what behaviors share is written out for each
    text = yaml.safe_dump(found, sort_keys=False, allow_unicode=True, width=120)
    for line in migration.lines:
        stderr.print(f"[dim]{escape(line)}[/]")
    load_run(Source(f"{file.name}, translated", text))  # says what is still wrong with it
    if output is None:
        print(text, end="")
        return
    if output.exists():
        raise StorageError(f"{output}: exists; choose another --output")
    write_text(output, text)
    stderr.print(f"Written to {escape(str(output))}. Check it: palus train {typed(output)} --check")


def _curricula(path: Path) -> Tree:
    """Curricula by behavior. Up to 0.13 each had a JSON file called as the behavior; a folder held those of a run."""
    files = sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise ConfigError([f"{path}: a folder without .json files, expected a curriculum"])
    found: Tree = {}
    for file in files:
        tree = _tree(file)
        found |= {file.stem: tree} if "thresholds" in tree and "parameters" in tree else tree
    return found


def _tree(path: Path) -> Tree:
    if not path.exists():
        raise ConfigError([f"{path}: no such file"])
    source = read_source(path)
    repeated: list[str] = []  # ML-Agents' own files have some
    # JSON may be indented by tabs, YAML not; inside its texts there are none.
    tree, faults = parse_tree(source.text.replace("\t", " ") if path.suffix == ".json" else source.text, repeated)
    if faults:
        raise ConfigError([fault.sentence(source.label) for fault in faults])
    for sentence in repeated:
        stderr.print(f"[dim]{escape(f'{source.label}, {sentence}')}[/]")
    return tree
