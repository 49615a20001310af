"""Pictures of a game to H.264 in mp4, in the pixel format that every browser plays. Needs the package av."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from palus.errors import StorageError
from palus.types import AnyArray

if TYPE_CHECKING:
    from av.video.stream import VideoStream

MIN_SIDE = 240
"""Smaller pictures are enlarged by a whole factor: players and web pages would blur them."""
QUALITY = {"crf": "28", "preset": "veryfast"}


class VideoEncoder:
    """Writes one video into an open file, which its caller closes; complete when the encoder is closed.

    fps: pictures per second. max_bytes_per_s: the video is made coarser rather than larger, whatever it shows.
    Raises StorageError when av is not installed.
    """

    def __init__(self, file: BinaryIO, fps: float, max_bytes_per_s: int | None = None) -> None:
        self.fps = fps
        self.frames = 0
        self._options: Mapping[str, str] = QUALITY
        if max_bytes_per_s is not None:
            bits = 8 * max_bytes_per_s
            self._options = {**QUALITY, "maxrate": str(bits), "bufsize": str(2 * bits)}
        try:
            import av
        except ImportError as error:
            raise StorageError(
                "writing videos takes the package av; install palus[video], or leave the video out"
            ) from error
        self._container = av.open(file, "w", format="mp4")
        self._stream: VideoStream | None = None

    def write(self, picture: AnyArray) -> None:
        """Append a picture, [height, width, 3] uint8, all of the first one's size."""
        import av

        even = _even(picture)
        if self._stream is None:
            rate = Fraction(self.fps).limit_denominator(1000)
            self._stream = self._container.add_stream("libx264", rate=rate, options=dict(self._options))
            self._stream.height, self._stream.width = even.shape[:2]
            self._stream.pix_fmt = "yuv420p"
        self._container.mux(self._stream.encode(av.VideoFrame.from_ndarray(even, format="rgb24")))
        self.frames += 1

    def close(self) -> None:
        """Write the rest of the video."""
        if self._stream is not None:
            self._container.mux(self._stream.encode())
        self._container.close()


def _even(picture: AnyArray) -> AnyArray:
    """With even sides: the pixel format stores colours for blocks of two by two."""
    odd = [(0, side % 2) for side in picture.shape[:2]]
    return np.ascontiguousarray(np.pad(picture, [*odd, (0, 0)], mode="edge"))


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
        with file, closing(VideoEncoder(file, fps)) as encoder:

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
