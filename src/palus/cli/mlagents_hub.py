"""`mlagents-push-to-hf` and `mlagents-load-from-hf`: ML-Agents' commands and flags on palus's push and pull.

For scripts and course notes that call them. The hub is huggingface.co, or what HF_ENDPOINT says. Unlike ML-Agents' own,
a README.md that a person wrote is kept, and nothing is written into the local folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from palus.cli.output import EXIT_USER_ERROR
from palus.errors import PalusError
from palus.hub.layout import read_run
from palus.hub.publish import check_id, fetch, publish
from palus.hub.target import parse_target
from palus.terminal import bear_any_text, printable


def push_to_hf(arguments: Sequence[str] | None = None) -> int:
    """Run `mlagents-push-to-hf`; returns the exit code."""
    parser = argparse.ArgumentParser("mlagents-push-to-hf", description="Push a trained model to the Hugging Face Hub.")
    parser.add_argument("--run-id", help="Run id, for the log lines.")
    parser.add_argument("--local-dir", default="./", help="Folder of the run (default: %(default)s).")
    parser.add_argument("--repo-id", required=True, help="Repository, as owner/name.")
    parser.add_argument("--commit-message", default="Push to Hub", help="Message (default: %(default)s).")
    parser.add_argument("--configfile-name", default="configuration.yaml", help="Run file (default: %(default)s).")
    options = parser.parse_args(arguments)
    bear_any_text()
    try:
        target = parse_target()
        check_id(target, options.repo_id)
        run = read_run(Path(options.local_dir), options.configfile_name)
        print(printable(f"Pushing repo {options.run_id or run.name} to the Hugging Face Hub"))
        published = publish(run, options.repo_id, target, message=options.commit_message)
    except (PalusError, ModuleNotFoundError) as error:
        return _fail(error)
    print(printable(f"Your model is pushed to the hub. You can view your model here: {published.place}"))
    return 0


def load_from_hf(arguments: Sequence[str] | None = None) -> int:
    """Run `mlagents-load-from-hf`; returns the exit code."""
    parser = argparse.ArgumentParser("mlagents-load-from-hf", description="Download a model of the Hugging Face Hub.")
    parser.add_argument("--repo-id", required=True, help="Repository, as owner/name.")
    parser.add_argument("--local-dir", default="./", help="Where its folder goes (default: %(default)s).")
    options = parser.parse_args(arguments)
    bear_any_text()
    try:
        target = parse_target()
        _, name = check_id(target, options.repo_id)
        folder = Path(options.local_dir) / name
        fetch(options.repo_id, target, folder, force=True)
    except (PalusError, ModuleNotFoundError) as error:
        return _fail(error)
    print(f"The repository {options.repo_id} has been downloaded to {folder}")
    return 0


def _fail(error: PalusError | ModuleNotFoundError) -> int:
    told = str(error)
    if isinstance(error, ModuleNotFoundError):
        told = f"{error.name} is not installed; pip install 'palus[hub]'"
    print(printable(f"error: {told}"), file=sys.stderr)
    return EXIT_USER_ERROR
