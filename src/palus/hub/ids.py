"""What repositories, accounts and files may be called. Everything here comes from strangers by raw HTTP."""

from __future__ import annotations

import re

from palus.hub.refusals import InvalidInputError

MAX_ID_CHARACTERS = 96
MAX_SEGMENT_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_DEPTH = 32

_SEGMENT = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_DRIVE = re.compile(r"[A-Za-z]:")
COMMIT = re.compile("[0-9a-f]{40}")
"""What a hub calls a commit. Whatever else one elsewhere says may be a path."""
_DEVICES = {"con", "prn", "aux", "nul"} | {f"{port}{number}" for port in ("com", "lpt") for number in range(10)}
# First segments of the addresses that hub, arena and pages serve; an owner of that name would shadow them.
RESERVED_OWNERS = frozenset(
    ("analytics", "api", "assets", "compare", "data", "datasets", "docs", "match", "matrix", "models", "openapi.json")
) | {"palus", "redoc", "room", "spaces", "static", "status"}  # palus: owner of the house players


def check_name(name: str, what: str = "name") -> str:
    """One segment of an id; returns it. Raises InvalidInputError that says which rule it breaks."""
    if not 1 <= len(name) <= MAX_ID_CHARACTERS:
        raise InvalidInputError(f"{what} has {len(name)} characters; 1 to {MAX_ID_CHARACTERS} are allowed")
    if not _SEGMENT.match(name):
        raise InvalidInputError(
            f"{what} {name!r}: only A-Z a-z 0-9 . _ - are allowed, with no . or - at either end; choose another"
        )
    if "--" in name or ".." in name or name.lower().endswith(".git"):
        raise InvalidInputError(f"{what} {name!r}: '--', '..' and an ending of '.git' are not allowed; choose another")
    if name.lower().split(".")[0] in _DEVICES:
        raise InvalidInputError(f"{what} {name!r} is the name of a device on some systems; choose another")
    return name


def check_owner(name: str) -> str:
    """The name of an account; returns it. Raises InvalidInputError."""
    check_name(name, "account name")
    if name.lower() in RESERVED_OWNERS:
        raise InvalidInputError(f"account name {name!r} is reserved for an address of the server; choose another")
    return name


def check_repo_id(owner: str, name: str) -> str:
    """`owner/name`, at most 96 characters in all; returns it. Raises InvalidInputError."""
    repo = f"{check_owner(owner)}/{check_name(name, 'repository name')}"
    if len(repo) > MAX_ID_CHARACTERS:
        raise InvalidInputError(
            f"{repo}: {len(repo)} characters with the owner; at most {MAX_ID_CHARACTERS} are allowed"
        )
    return repo


def check_path(path: str) -> str:
    """A file's path in its repository; returns it. Raises InvalidInputError that says which rule it breaks.

    Contents are stored by their hash, so a path is only a key here; the rules protect those who download.
    """
    shown = ascii(path if len(path) <= 100 else path[:100] + "...")
    try:
        segments = [segment.encode() for segment in path.split("/")]
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"path {shown} is not valid Unicode; rename the file") from error
    if len(path.encode()) > MAX_PATH_BYTES or any(len(segment) > MAX_SEGMENT_BYTES for segment in segments):
        raise InvalidInputError(
            f"path {shown} is too long: at most {MAX_SEGMENT_BYTES} bytes per name, {MAX_PATH_BYTES} in all"
        )
    if len(segments) > MAX_DEPTH:
        raise InvalidInputError(f"path {shown} has {len(segments)} segments; at most {MAX_DEPTH} are allowed")
    if _CONTROL.search(path) or "\\" in path:
        raise InvalidInputError(f"path {shown} has a control character or a backslash; use / between folders")
    if path.startswith("/") or _DRIVE.match(path):
        raise InvalidInputError(f"path {shown} is absolute; give it relative to the repository")
    if any(segment in (b"", b".", b"..") for segment in segments):
        raise InvalidInputError(f"path {shown} has an empty, '.' or '..' segment; give it relative to the repository")
    if b".git" in (segment.lower() for segment in segments):
        raise InvalidInputError(f"path {shown} lies in a .git folder; leave that folder out")
    return path
