"""Pictures of a game to an mp4 file, as they come."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from palus.errors import StorageError
from palus.types import AnyArray
from palus.video import VideoEncoder

MIN_SIDE = 240
"""Smaller pictures are enlarged by a whole factor: players and web pages would blur them."""


@contextmanager
def video_file(path: Path, fps: float, max_frames: int | None = None) -> Iterator[Callable[[AnyArray], None]]:
    """Yields what appends a picture, [height, width, 3] uint8, all of the first one's size.

    The file appears under its name when the block ends without an exception, whole or not at all. fps: pictures per
    second. max_frames: later pictures are dropped, so that a long evaluation makes no huge file.
    Raises StorageError when it cannot be written, or av is not installed.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        file = part.open("w+b")
    except OSError as error:
        raise StorageError(f"{path}: cannot be written ({error.strerror}); choose another place") from error
    try:
        with file, VideoEncoder(file, fps) as encoder:

            def write(picture: AnyArray) -> None:
                if max_frames is None or encoder.frames < max_frames:
                    encoder.write(_enlarge(picture))

            yield write
        if encoder.frames:
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _enlarge(picture: AnyArray) -> AnyArray:
    factor = -(-MIN_SIDE // min(picture.shape[:2]))
    return picture.repeat(factor, 0).repeat(factor, 1) if factor > 1 else picture
