"""What all JSON of the pages has in common. Each shape stands beside the function that makes it.

Times are milliseconds since 1970 UTC (`*_ms`), durations seconds (`*_s`). Ratings are points around 1200, 400 points =
10:1 odds; `half_width` is half of the 95 % interval. Shares are in [0, 1]. A player is one rated entity: the SHA-256 of
a model file. `repo` is `owner/name`, and `/` + repo is the address of its page.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Base of all shapes: immutable, nothing but the declared fields, and all of them in every answer."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", from_attributes=True, json_schema_serialization_defaults_required=True
    )

    @classmethod
    def like(cls, *sources: object, **more: object) -> Self:
        """With these fields, and under the names of the others what the sources have; the first that has it counts."""
        found = {
            name: getattr(source, name)
            for source in reversed(sources)
            for name in cls.model_fields
            if hasattr(source, name)
        }
        return cls(**found | more)
