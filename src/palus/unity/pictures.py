"""PNG observations: one or several files joined, as Unity's camera and grid sensors send them."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from PIL import Image

from palus.errors import ProtocolError
from palus.types import F32

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = 3
"""Of a picture; a small file can hold any number of those, so none is unpacked that the observation does not need."""


def decode(data: bytes, shape: Sequence[int], mapping: Sequence[int], what: str) -> F32:
    """[channels, height, width] float32, 0 to 1. mapping: where each decoded channel goes, several are averaged, -1
    drops one; without it, one expected channel is the mean of the first picture's, else the first ones are kept.

    Raises ProtocolError for what is no PNG, and for another size than `shape` says.
    """
    starts = [found.start() for found in re.finditer(re.escape(_SIGNATURE), data)]
    if not starts or starts[0] != 0:
        raise ProtocolError(f"{what}: {len(data)} bytes that are no PNG picture")
    channels, height, width = shape
    told, needed = _CHANNELS * len(starts), len(mapping) or channels
    if mapping:
        targets = sorted({target for target in mapping if target >= 0})
        fits = needed == told <= _CHANNELS * channels  # every picture fills one channel at least
        if not fits or targets != list(range(channels)) or min(mapping) < -1:
            raise ProtocolError(
                f"{what}: channel mapping {str(list(mapping))[:100]} for {told} decoded channels; expected one entry "
                f"for each, at most {_CHANNELS * channels}, that fill 0 to {channels - 1}"
            )
    elif told < needed:
        raise ProtocolError(f"{what}: pictures of {told} channels; expected {channels}")
    bounds = [*starts, len(data)][: -(-needed // _CHANNELS) + 1]
    decoded = np.concatenate([_picture(data[a:b], height, width, what) for a, b in pairwise(bounds)])
    if mapping:
        places = np.array(mapping)
        return np.stack([decoded[places == target].mean(0) for target in targets])
    return decoded.mean(0, keepdims=True) if channels == 1 else decoded[:channels]


def _picture(data: bytes, height: int, width: int, what: str) -> F32:
    """One file, [3, height, width], 0 to 1."""
    try:
        with Image.open(io.BytesIO(data), formats=["PNG"]) as picture:
            if picture.size != (width, height):  # before anything is unpacked
                raise ProtocolError(f"{what}: a picture of {picture.size}; expected {(width, height)} (width, height)")
            pixels = np.asarray(picture.convert("RGB"), np.float32)
    except ProtocolError:
        raise
    except Exception as error:  # of pillow's readers of chunks, which take for granted that one is what its name says
        raise ProtocolError(f"{what}: a PNG picture that cannot be read ({error!r})") from error
    found: F32 = pixels.transpose(2, 0, 1) / np.float32(255)
    return found
