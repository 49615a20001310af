"""The rated entity: which files, of whose revision, under one name; and how jobs and the log write it down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field

from palus.arena.models.forms import Label, Sha256
from palus.errors import ArenaError

HOUSE_OWNER = "palus"
HOUSE_VERSION = "1"
"""Changes when a house player plays differently: it is another rated entity then."""


@dataclass(frozen=True)
class Entity:
    """What is rated, from discovery to the log.

    sha256: its name, `digest_of` its files; of those checked first where others compute the same. Empty for a player
    of `palus match` without a file, and for a revision that cannot be played.
    repo, revision: of the entry that is credited with it. Others may have pushed the same: that gives them nothing, and
    takes nothing from the one who is credited.
    files: SHA-256 of each by behavior, sorted; none for players of the house.
    p99_ms: processor time of a slow answer when it was validated.
    models: the files' bytes, where it is about to play; parsed in locked processes only.
    """

    sha256: Sha256 | Literal[""]
    repo: Annotated[str, Field(max_length=200)]
    revision: Annotated[str, Field(max_length=40)] = ""
    files: Annotated[tuple[tuple[Label, Sha256], ...], Field(max_length=20)] = ()
    p99_ms: float = field(default=0.0, compare=False)
    models: tuple[bytes, ...] = field(default=(), compare=False, repr=False)

    @cached_property
    def owner(self) -> str:
        """First half of the repository's name."""
        return self.repo.partition("/")[0]

    @cached_property
    def house(self) -> str | None:
        """Name of the built-in player; None for models."""
        return self.repo.partition("/")[2] if self.owner == HOUSE_OWNER and not self.files else None

    @property
    def file(self) -> str:
        """The files' names in the repository, as pages show them; empty for players of the house."""
        return ", ".join(f"{behavior}.onnx" for behavior, _ in self.files)

    def models_for(self, behaviors: Sequence[str]) -> list[bytes]:
        """The bytes of the file of each. Raises ArenaError unless there is one for each, and no other."""
        brought = dict(zip((behavior for behavior, _ in self.files), self.models, strict=False))
        if len(brought) != len(self.models) or set(brought) != set(behaviors):
            wanted = " and ".join(f"{behavior}.onnx" for behavior in behaviors)
            raise ArenaError(f"{self.repo}: brings {len(self.models)} models; whoever plays here brings {wanted}")
        return [brought[behavior] for behavior in behaviors]

    def with_models(self, read: Callable[[str], bytes]) -> Entity:
        """With the bytes of its files, to play. read: from their SHA-256."""
        return replace(self, models=tuple(read(sha256) for _, sha256 in self.files))

    def to_json(self) -> dict[str, Any]:
        """For jobs and records; bytes travel by their SHA-256."""
        return {"sha256": self.sha256, "repo": self.repo, "revision": self.revision, "files": dict(self.files)}

    @staticmethod
    def from_json(told: Mapping[str, Any]) -> Entity:
        """The inverse of `to_json`; reads what was written while an entity was one file, too."""
        files = told.get("files")
        if files is None:
            file = told["file"]
            files = {file.removesuffix(".onnx"): told["sha256"]} if file else {}
        return Entity(told["sha256"], told["repo"], told["revision"], tuple(sorted(files.items())))


def house_player(name: str, env: str) -> Entity:
    """A built-in player of a game; its entity stands for this version of it."""
    sha256 = hashlib.sha256(f"{name} {HOUSE_VERSION} {env}".encode()).hexdigest()
    return Entity(sha256, f"{HOUSE_OWNER}/{name}", sha256[:40])
