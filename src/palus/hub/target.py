"""Where models are published: a hub that speaks `huggingface_hub`'s protocol, or a plain folder.

Reads the words people type (`--hub`) and nothing else; no connection is made here.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from urllib.parse import urlsplit

from palus.errors import HubError

HUGGING_FACE = "https://huggingface.co"
_NEAR_ADDRESS = re.compile(r"[^/\\]{2,}:|(ht{1,2}|tt)ps?/|(www\.)?huggingface\.co/", re.IGNORECASE)
"""A word that has a colon before its first slash, or begins like an address: a slip, and no folder."""
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9.-]+:\d{1,5}")


@dataclass(frozen=True)
class HubTarget:
    """A server. url: scheme, host and port, without a slash at the end."""

    url: str

    @property
    def option(self) -> str:
        """What to type to name this target again; empty for huggingface.co, which is the default."""
        return "" if self.url == HUGGING_FACE else f" --hub {self.url}"

    @property
    def option_here(self) -> str:
        """The same, for a terminal of this machine."""
        return self.option


@dataclass(frozen=True)
class FolderTarget:
    """A folder pool: repositories lie in `path/<owner>/<name>/`."""

    path: Path

    @property
    def option(self) -> str:
        """What to type to name this target again. The folder's own name only: a path would tell about its owner."""
        name = Path(os.path.abspath(self.path)).name or "/"  # of "." too, and of a link its own
        return f" --hub {shlex.quote(f'folder:{name}')}"

    @property
    def option_here(self) -> str:
        """The same with the whole path, for a terminal of this machine."""
        return f" --hub {shlex.quote(f'folder:{self.path.absolute()}')}"


Target: TypeAlias = HubTarget | FolderTarget


def parse_target(text: str | None = None) -> Target:
    """The target that a word means.

    text: `huggingface.co`, `http://host:port`, `host:port` (plain HTTP), `folder:PATH`, or a path that has a separator
    or exists. None: the environment's HF_ENDPOINT, which steers `huggingface_hub` too, else huggingface.co.
    Raises HubError when it is none of these.
    """
    word = text or os.environ.get("HF_ENDPOINT") or HUGGING_FACE
    if word.startswith("folder:"):
        if word == "folder:":
            raise HubError(f"{word}: no folder is named; write folder:PATH")
        return FolderTarget(Path(word.removeprefix("folder:")).expanduser())
    if word.startswith(("http://", "https://")):
        return HubTarget(_server(word))
    if word in ("huggingface.co", "hf"):
        return HubTarget(HUGGING_FACE)
    if _HOST_AND_PORT.fullmatch(word):
        return HubTarget(_server(f"http://{word}"))
    if _NEAR_ADDRESS.match(word):
        raise HubError(f"{word}: not the address of a hub; did you mean {_nearest(word)}? A folder: folder:{word}")
    if "/" in word or os.sep in word or word.startswith(("~", ".")) or Path(word).is_dir():
        return FolderTarget(Path(word).expanduser())
    raise HubError(
        f"{word}: not a hub; name huggingface.co, a palus hub as http://host:port, or a folder as folder:PATH"
    )


def _nearest(word: str) -> str:
    """The address that was probably meant."""
    found = re.match(r"h?t*ps?(?=[:/])|[a-z]+(?=:/)", word, re.IGNORECASE)
    scheme = found[0].lower() if found else ""
    host = word[len(scheme) :].lstrip(":/").split("/")[0]
    if host.removeprefix("www.") == "huggingface.co":
        return "huggingface.co"
    return f"{'https' if scheme.endswith('s') else 'http'}://{host or 'host:port'}"


def _server(url: str) -> str:
    """Scheme and address; a password in a URL ends in logs, a path is no part of a hub's address."""
    try:
        parts = urlsplit(url)
        wrong = not parts.hostname or parts.username or parts.path.strip("/") or parts.query or parts.fragment
        port = parts.port
    except ValueError:
        wrong, port = True, None
    if wrong:
        raise HubError(f"{url}: not the address of a hub; expected http://host:port or https://host, nothing after it")
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + ("" if port is None else f":{port}")
