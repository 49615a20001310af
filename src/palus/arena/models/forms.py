"""Kinds of texts and numbers that come from strangers: annotations of fields, which `palus.arena.jobs.reports` checks
before it looks at them any further."""

from __future__ import annotations

import base64
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, PlainSerializer

MAX_BLOB_BYTES = 4 << 20
"""Largest replay or action log that is accepted; a full SoccerTwos match has about 80 kB."""


def _bytes(text: object) -> bytes:
    if not isinstance(text, str) or len(text) > 1.5 * MAX_BLOB_BYTES:
        raise ValueError(f"not a text of at most {1.5 * MAX_BLOB_BYTES:.0f} characters")
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise ValueError(f"a replay or action log is not base64 ({error})") from error
    if len(data) > MAX_BLOB_BYTES:
        raise ValueError(f"a replay or action log of {len(data)} bytes; at most {MAX_BLOB_BYTES} are accepted")
    return data


Blob = Annotated[bytes, BeforeValidator(_bytes), PlainSerializer(lambda data: base64.b64encode(data).decode())]
"""In JSON base64."""

Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9 .,:;()~#+_/-]{0,100}$")]
"""Names of versions, systems and the like, which pages show."""
TEXT_LENGTH = 1000
Text = Annotated[str, Field(max_length=TEXT_LENGTH), AfterValidator(lambda text: text.replace("\0", ""))]
"""PostgreSQL takes no NUL."""
Isolation = Annotated[str, Field(pattern=r"^[a-z+-]{1,40}$")]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
ShortId = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Instant = Annotated[str, Field(pattern=r"^[0-9]{4}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-5][0-9]\+00:00$")]
Count = Annotated[int, Field(ge=0, le=10**9, strict=True)]
Score = Annotated[int, Field(ge=-(10**4), le=10**4, strict=True)]
Measure = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]
