"""What a locked process reports, as far as it is believed: it may be in a stranger's hands, so this is text and numbers
of bounded size, no more."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from palus.arena.models.forms import Count, Measure, Sha256, Text
from palus.arena.models.policy_graph import MAX_STATE
from palus.arena.models.refusal import Refusal


class Told(BaseModel):
    """One report."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Greeting(Told):
    """The first one, before a model is there."""

    isolation: str


class Examined(Told):
    """Of a model that passed: `PolicyGraph`, `ProbeReport` and `computation_of`."""

    nodes: Count
    parameters: Count
    opset: Count
    producer: Text
    entropy: Measure
    p99_ms: Measure
    computation: Sha256


class Findings(Told):
    """On the models, either a refusal or what was found of each that was examined, and how much each remembers."""

    refusal: Refusal | None = None
    details: tuple[Examined, ...] = ()
    state_sizes: tuple[Annotated[int, Field(ge=0, le=MAX_STATE, strict=True)], ...] = ()
