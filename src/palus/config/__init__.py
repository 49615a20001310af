"""The run file: ML-Agents' trainer YAML, strict, plus palus's own section. Imports nothing of palus but leaves."""

from palus.config.advice import notes, unsupported
from palus.config.load import dump_run, load_run
from palus.config.run_file import RunFile
from palus.config.source import preset_names
from palus.config.trainer import AppoBehavior, Behavior

__all__ = [
    "AppoBehavior",
    "Behavior",
    "RunFile",
    "dump_run",
    "load_run",
    "notes",
    "preset_names",
    "unsupported",
]
