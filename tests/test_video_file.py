"""Videos are read back with the library that wrote them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from palus.errors import StorageError
from palus.video import video_file

av = pytest.importorskip("av", reason="the extra `video` is not installed")


def test_pictures_come_back_in_order_enlarged_and_at_their_speed(tmp_path: Path) -> None:
    with video_file(tmp_path / "v.mp4", fps=35, max_frames=20) as write:
        for k in range(30):
            write(np.full((120, 160, 3), 8 * k, np.uint8))
    with av.open(str(tmp_path / "v.mp4")) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, stream.average_rate) == (320, 240, 35)
        assert stream.codec_context.name == "h264"
        grey = [float(frame.to_ndarray(format="rgb24").mean()) for frame in container.decode(stream)]
    assert np.allclose(grey, [8 * k for k in range(20)], atol=3)
    assert [p.name for p in tmp_path.iterdir()] == ["v.mp4"]


def test_odd_sides_get_a_column_more(tmp_path: Path) -> None:
    with video_file(tmp_path / "v.mp4", fps=10) as write:
        write(np.zeros((301, 333, 3), np.uint8))
    with av.open(str(tmp_path / "v.mp4")) as container:
        assert (container.streams.video[0].height, container.streams.video[0].width) == (302, 334)


def test_an_interrupted_video_leaves_the_former_one(tmp_path: Path) -> None:
    (tmp_path / "v.mp4").write_bytes(b"former")
    with pytest.raises(KeyboardInterrupt), video_file(tmp_path / "v.mp4", fps=10) as write:
        write(np.zeros((240, 320, 3), np.uint8))
        raise KeyboardInterrupt
    assert (tmp_path / "v.mp4").read_bytes() == b"former"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="choose another place"), video_file(tmp_path / "no" / "v.mp4", fps=10):
        pass
