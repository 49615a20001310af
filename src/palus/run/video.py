"""Pictures of a game to an mp4 file, as they come."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from palus.errors import StorageError
from palus.types import AnyArray
from palus.video import VideoEncoder

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
        self._encoder: VideoEncoder | None = None
        self._part = path.with_name(f".{path.name}.part")

    def __enter__(self) -> VideoWriter:
        try:
            self._file = self._part.open("w+b")
        except OSError as error:
            raise StorageError(f"{self.path}: cannot be written ({error.strerror}); choose another place") from error
        try:
            self._encoder = VideoEncoder(self._file, self.fps).__enter__()
        except StorageError as error:
            self._file.close()
            self._part.unlink()
            raise StorageError(f"{self.path}: {error}") from error
        return self

    @property
    def is_full(self) -> bool:
        """Whether more pictures would be dropped."""
        return self._max_frames is not None and self.frames >= self._max_frames

    def write(self, picture: AnyArray) -> None:
        """Append a picture, [height, width, 3] uint8, all of the first one's size."""
        assert self._encoder is not None, "enter the writer first"
        if not self.is_full:
            self._encoder.write(_enlarge(picture))
            self.frames += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._encoder is not None and self._file is not None
        self._encoder.__exit__(kind, error, trace)
        self._file.close()
        if error is None and self.frames:
            self._part.replace(self.path)
        else:
            self._part.unlink(missing_ok=True)


def _enlarge(picture: AnyArray) -> AnyArray:
    factor = -(-MIN_SIDE // min(picture.shape[:2]))
    return picture.repeat(factor, 0).repeat(factor, 1) if factor > 1 else picture
