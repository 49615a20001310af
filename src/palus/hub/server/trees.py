"""Folders: the store knows only files with paths; what lies between them is derived here."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from palus.hub.commits import File
from palus.hub.server.shapes import Json, show_file


def show_folders(files: Iterable[File]) -> dict[str, Json]:
    """Every folder that holds a file, directly or not; not the root.

    Its id changes when anything in it does, as git's would.
    """
    hashes: defaultdict[str, Any] = defaultdict(lambda: hashlib.sha1(usedforsecurity=False))
    for file in sorted(files, key=lambda file: file.path):
        segments = file.path.split("/")
        for depth in range(1, len(segments)):
            hashes["/".join(segments[:depth])].update(f"{file.path}\0{file.sha256}\n".encode())
    return {
        path: {"type": "directory", "path": path, "oid": content.hexdigest(), "size": 0}
        for path, content in hashes.items()
    }


def show_tree(files: Iterable[File], folder: str, recursive: bool) -> list[Json]:
    """Files and folders in a folder ("" is the root), or all below it, by path."""
    prefix = f"{folder}/" if folder else ""
    inside = [file for file in files if file.path.startswith(prefix)]
    everything = {file.path: show_file(file) for file in inside} | show_folders(inside)

    def is_listed(path: str) -> bool:
        return path.startswith(prefix) and (recursive or "/" not in path[len(prefix) :])

    return [item for path, item in sorted(everything.items()) if is_listed(path)]
