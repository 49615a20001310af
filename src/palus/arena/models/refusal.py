"""Why a model file is not played: a stable code, a sentence, a remedy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field

from palus.arena.models.forms import Text
from palus.errors import ModelError


@dataclass(frozen=True)
class Refusal:
    """code: stable, for programs, listed in docs/model-rules.md.   sentence: what was found and what is allowed.
    remedy: what its author can do. Both are whole sentences for people."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    code: Annotated[str, Field(pattern=r"^[a-z0-9-]{1,40}$")]
    sentence: Text
    remedy: Text


class RefusedError(ModelError):
    """A model file breaks a rule. `refusal` says which one; origin: how the message calls the file."""

    def __init__(self, code: str, sentence: str, remedy: str, origin: str = "") -> None:
        self.refusal = Refusal(code, sentence, remedy)
        # After "file: " a sentence goes on in lower case; none of them begins with a name.
        start = f"{origin}: {sentence[:1].lower()}{sentence[1:]}" if origin else sentence
        super().__init__(f"{start} {remedy}")

    def at(self, origin: str) -> RefusedError:
        """The same error, saying which file it is about."""
        return RefusedError(self.refusal.code, self.refusal.sentence, self.refusal.remedy, origin)
