"""The front matter of a model card: YAML written by strangers, read under limits, turned into tags."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import dataclass, field
from typing import Any

import yaml

MAX_BYTES = 64 * 1024
MAX_DEPTH = 8
MAX_PARTS = 4000
MAX_TAGS = 100
MAX_TAG_CHARACTERS = 96
_MAX_INT = 2**53  # what a JavaScript reader of the JSON still holds exactly
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # in C: ten times faster
    """Leaves YAML 1.1's numbers to the base 60 as text: PyYAML takes half a second for one that fills a card."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        tag: str = super().resolve(kind, value, implicit)
        return "tag:yaml.org,2002:str" if tag in _NUMBERS and ":" in value else tag


class _CardError(Exception):
    """Front matter that cannot be used; the message is for its author. hostile: no honest card looks so."""

    def __init__(self, message: str, hostile: bool = False) -> None:
        super().__init__(message)
        self.hostile = hostile


@dataclass(frozen=True)
class Card:
    """What a README.md says about its repository.

    data: the front matter, JSON-safe; {} where there is none or it cannot be used. warning: why it cannot be used or
    should be changed. hostile: it was built to harm a reader (aliases, tags, depth, size), not merely mistyped.
    """

    data: dict[str, Any] = field(default_factory=dict)
    warning: str | None = None
    hostile: bool = False

    @property
    def library_name(self) -> str | None:
        """The library that made the model, such as `ml-agents`."""
        name = self.data.get("library_name")
        return name.strip()[:MAX_TAG_CHARACTERS] or None if isinstance(name, str) else None

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags and library name, each once; the tags may be written as a list or as one string with commas."""
        written = self.data.get("tags")
        words = written.split(",") if isinstance(written, str) else written if isinstance(written, list) else []
        tags = [word.strip()[:MAX_TAG_CHARACTERS] for word in words if isinstance(word, str) and word.strip()]
        return tuple(dict.fromkeys([*tags[:MAX_TAGS], *filter(None, [self.library_name])]))


def read_card(readme: bytes) -> Card:
    """The card of a README.md; only its first 64 KiB are looked at. Never raises."""
    try:
        block = _front_matter(readme[: MAX_BYTES + 1])
        if block is None:
            return Card(warning="no front matter: put tags between two lines of --- at the top, or no arena finds this")
        _check_events(block)
        data = _plain(yaml.load(block, Loader=_Loader))
    except _CardError as error:
        return Card(warning=str(error), hostile=error.hostile)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        return Card(warning=f"the front matter is not valid YAML ({_place(error)}); its tags are not used")
    if not isinstance(data, dict):
        return Card(warning="the front matter is not a mapping such as 'tags: [a, b]'; its tags are not used")
    return Card(data)


def _front_matter(readme: bytes) -> str | None:
    """The text between the two lines of ---, None when the file does not begin with one."""
    start = readme.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")
    if not start.startswith(b"---\n"):
        return None
    end = start.find(b"\n---", 3)
    if end < 0:
        if len(readme) > MAX_BYTES:
            raise _CardError(f"the front matter is larger than {MAX_BYTES // 1024} KiB; shorten it", hostile=True)
        raise _CardError("the front matter has no closing line of ---; its tags are not used")
    return start[4 : end + 1].decode("utf-8", errors="strict")


def _check_events(block: str) -> None:
    """Refuse aliases, depth and number on the stream of events, where nothing is expanded yet."""
    depth = 0
    for number, event in enumerate(yaml.parse(block, Loader=_Loader)):
        if number > MAX_PARTS:
            raise _CardError(f"the front matter has more than {MAX_PARTS} keys and values; shorten it", hostile=True)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise _CardError("the front matter has a YAML anchor or alias (& or *); write the value out", hostile=True)
        if getattr(event, "tag", None):
            raise _CardError("the front matter has a YAML tag (!); write the value without it", hostile=True)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _CardError(f"the front matter is nested deeper than {MAX_DEPTH} levels; flatten it", hostile=True)
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _plain(value: Any) -> Any:
    """The value as JSON has it. Raises _CardError for what JSON lacks (binary, sets, NaN, huge integers)."""
    if isinstance(value, dict):
        return {plain_text(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return plain_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (datetime.date, datetime.datetime)):
        return value.isoformat()
    if isinstance(value, (int, float)) and math.isfinite(value) and abs(value) <= _MAX_INT:
        return value
    raise _CardError(f"the front matter has a value that JSON cannot hold ({type(value).__name__}); write it as text")


def plain_text(value: object) -> str:
    """Text that every database takes: no NUL, no half of a surrogate pair."""
    return str(value).replace("\0", "").encode("utf-8", "replace").decode()


def _place(error: Exception) -> str:
    """Where YAML stumbled; line 1 is the opening ---."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or type(error).__name__
    return f"line {mark.line + 2}: {problem}" if mark else str(problem)


def dump_card(data: dict[str, Any]) -> str:
    """Canonical JSON of a card's data, as the store keeps it."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
