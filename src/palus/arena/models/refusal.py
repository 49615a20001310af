"""Why a model file is not played: a stable code, a sentence, a remedy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import ConfigDict, Field

from palus.arena.models.forms import TEXT_LENGTH, Text
from palus.errors import ModelError


@dataclass(frozen=True)
class Refusal:
    """code: stable, for programs, listed in docs/model-rules.md.   sentence: what was found and what is allowed.
    remedy: what its author can do. Both are whole sentences for people."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    sentence: Text
    remedy: Text

    def about(self, file: str) -> Refusal:
        """The same, saying which file it is about."""
        # After "file: " a sentence goes on in lower case; none of them begins with a name.
        return replace(self, sentence=_cut(f"{file}: {self.sentence[:1].lower()}{self.sentence[1:]}"))


def _cut(text: str) -> str:
    """As much of a text as a report takes: it may name whatever a file holds."""
    return text if len(text) <= TEXT_LENGTH else f"{text[: TEXT_LENGTH - 3]}..."


class RefusedError(ModelError):
    """A model file breaks a rule. `refusal` says which one; origin: how the message calls the file."""

    def __init__(self, code: str, sentence: str, remedy: str, origin: str = "") -> None:
        self.refusal = Refusal(code, _cut(sentence), _cut(remedy))
        told = self.refusal.about(origin) if origin else self.refusal
        super().__init__(f"{told.sentence} {remedy}")

    def at(self, origin: str) -> RefusedError:
        """The same error, saying which file it is about."""
        return RefusedError(self.refusal.code, self.refusal.sentence, self.refusal.remedy, origin)
