"""Pictures of a game to an mp4 file, as they come: H.264 in the pixel format that every browser plays."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from palus.errors import StorageError
from palus.types import AnyArray

if TYPE_CHECKING:
    from av.container import OutputContainer
    from av.video.stream import VideoStream

MIN_SIDE = 240
"""Smaller pictures are enlarged by a whole factor: players and web pages would blur them."""


class VideoWriter:
    """Writes one file; it appears under its name when the writer is left without an exception, whole or not at all.

    fps: pictures per second. max_frames: later pictures are dropped, so that a long evaluation makes no huge file.
    """

    def __init__(self, path: Path, fps: float, max_frames: int | None = None) -> None:
        self.path, self.fps = path, fps
        self.frames = 0
        self._max_frames = max_frames
        self._file: BinaryIO | None = None
        self._part = path.with_name(f".{path.name}.part")
        self._container: OutputContainer | None = None
        self._stream: VideoStream | None = None

    def __enter__(self) -> VideoWriter:
        try:
            import av
        except ImportError as error:
            raise StorageError(
                f"{self.path}: writing videos takes the package av; install palus[video], or leave the video out"
            ) from error
        try:
            self._file = self._part.open("w+b")
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written ({error.strerror}); choose another place") from error
        self._container = av.open(self._file, "w", format="mp4")
        return self

    @property
    def is_full(self) -> bool:
        """Whether more pictures would be dropped."""
        return self._max_frames is not None and self.frames >= self._max_frames

    def write(self, picture: AnyArray) -> None:
        """Append a picture, [height, width, 3] uint8, all of the first one's size."""
        assert self._container is not None, "enter the writer first"
        if self.is_full:
            return
        import av

        large = _enlarge(picture)
        if self._stream is None:
            self._stream = self._container.add_stream(
                "libx264", rate=Fraction(self.fps).limit_denominator(1000), options={"crf": "28", "preset": "veryfast"}
            )
            self._stream.height, self._stream.width = large.shape[:2]
            self._stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(large, format="rgb24")
        self._container.mux(self._stream.encode(frame))
        self.frames += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._container is not None and self._file is not None
        if self._stream is not None:
            self._container.mux(self._stream.encode())
        self._container.close()
        self._file.close()
        if error is None and self.frames:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)


def _enlarge(picture: AnyArray) -> AnyArray:
    """By a whole factor, and to even sides: the pixel format stores colours for blocks of two by two."""
    factor = -(-MIN_SIDE // min(picture.shape[:2]))
    large = picture.repeat(factor, 0).repeat(factor, 1) if factor > 1 else picture
    odd = [(0, side % 2) for side in large.shape[:2]]
    return np.ascontiguousarray(np.pad(large, [*odd, (0, 0)], mode="edge"))
