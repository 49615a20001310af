"""What all JSON of the pages has in common. Each shape stands beside the function that makes it.

Times are milliseconds since 1970 UTC (`*_ms`), durations seconds (`*_s`). Ratings are points around 1200, 400 points =
10:1 odds; `half_width` is half of the 95 % interval. Shares are in [0, 1]. A player is one rated entity: the SHA-256 of
a model file. `repo` is `owner/name`, and `/` + repo is the address of its page.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Shape(BaseModel):
    """Base of all shapes: immutable, nothing but the declared fields, and all of them in every answer."""

    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)
