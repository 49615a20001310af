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
"""


def migrate(
    file: Annotated[Path, typer.Argument(help="Run file of an older ML-Agents.")],
    curriculum: Annotated[Path | None, typer.Option(help="The curriculum's file, where it has one.")] = None,
    sampler: Annotated[Path | None, typer.Option(help="The samplers' file, where it has one.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write it to this file, which must not be there yet.")] = None,
) -> None:
    """Translate a run file of an older ML-Agents, and tell line by line what became of its keys.

    The file goes to stdout, or to `--output`; what became of the keys goes to stderr.
    """
    tree = _tree(file)
    extra = [{} if path is None else _tree(path) for path in (sampler, curriculum)]
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


def _tree(path: Path) -> Tree:
    if not path.exists():
        raise ConfigError([f"{path}: no such file"])
    source = read_source(path)
    tree, faults = parse_tree(source.text)
    if faults:
        raise ConfigError([fault.sentence(source.label) for fault in faults])
    return tree
