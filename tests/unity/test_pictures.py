"""Pictures in messages: joined, averaged, mapped, and no more of them unpacked than is needed."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest
from PIL import Image

from palus.errors import ProtocolError
from palus.unity.pictures import decode


def png(pixels: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.array(pixels, np.uint8)).save(file, "PNG")
    return file.getvalue()


def huge_png(side: int) -> bytes:
    """A picture that says how large it is, and nothing more."""
    made = bytearray(png([[[0, 0, 0]]]))
    made[16:24] = struct.pack(">II", side, side)
    made[29:33] = struct.pack(">I", zlib.crc32(made[12:29]))
    return bytes(made)


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def odd_png(*chunks: tuple[bytes, bytes]) -> bytes:
    """A picture of one pixel in colours, with these chunks."""
    head = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*one) for one in ((b"IHDR", head), *chunks, (b"IEND", b"")))


def test_png_pictures_are_joined_averaged_and_mapped() -> None:
    first, second = png([[[255, 0, 0], [0, 51, 102]]]), png([[[0, 255, 255], [255, 255, 255]]])
    assert decode(first, (3, 1, 2), [], "o").tolist() == [
        [[1.0, 0.0]],
        [[0.0, np.float32(0.2)]],
        [[0.0, np.float32(0.4)]],
    ]
    assert decode(first, (1, 1, 2), [], "o").ravel() == pytest.approx([1 / 3, 0.2])
    assert decode(first + second, (4, 1, 2), [], "o")[:, 0, 0].tolist() == [1.0, 0.0, 0.0, 0.0]
    mapped = decode(first + second, (2, 1, 2), [0, 0, -1, 1, 1, 1], "o")
    assert mapped[:, 0, 0] == pytest.approx([0.5, 2 / 3])
    for data, shape, mapping, found in (
        (b"abc", (3, 1, 2), [], "no PNG"),
        (first[:40], (3, 1, 2), [], "cannot be read"),
        (first, (3, 2, 2), [], r"picture of \(2, 1\); expected \(2, 2\)"),
        (first, (4, 1, 2), [], "pictures of 3 channels; expected 4"),
        (first, (2, 1, 2), [0, 0], "channel mapping"),
        (first, (2, 1, 2), [0, 2, 1], "channel mapping"),
        (huge_png(20_000), (3, 1, 2), [], "cannot be read"),
        (odd_png((b"IDAT", zlib.compress(bytes(4))), (b"iCCP", b"")), (3, 1, 1), [], "cannot be read"),
    ):
        with pytest.raises(ProtocolError, match=found):
            decode(data, shape, mapping, "o")


def test_no_more_pictures_are_unpacked_than_the_observation_needs() -> None:
    one, broken = png([[[255, 0, 0]]]), png([[[0, 0, 0]]])[:40]
    assert decode(one + 1000 * broken, (1, 1, 1), [], "o").ravel() == pytest.approx([1 / 3])
    assert decode(one + one + broken, (4, 1, 1), [], "o").ravel().tolist() == [1.0, 0.0, 0.0, 1.0]
    with pytest.raises(ProtocolError, match="for 6 decoded channels; expected one entry for each, at most 3,"):
        decode(one + broken, (1, 1, 1), [0, -1, -1, -1, -1, -1], "o")
