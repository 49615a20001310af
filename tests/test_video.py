"""Videos in memory: bounded in size whatever they show, and whole when they are closed."""

from __future__ import annotations

import io
from contextlib import closing

import numpy as np
import pytest

from palus.video import VideoEncoder

av = pytest.importorskip("av", reason="the extra `video` is not installed")


def test_a_video_of_noise_stays_within_its_bytes_and_comes_back() -> None:
    file, rng = io.BytesIO(), np.random.default_rng(0)
    with closing(VideoEncoder(file, 17.5, max_bytes_per_s=20_000)) as video:
        for _ in range(140):  # eight seconds
            video.write(rng.integers(0, 256, (120, 320, 3), np.uint8))
    assert len(file.getvalue()) < 8 * 20_000 * 1.25
    file.seek(0)
    with av.open(file) as container:
        stream = container.streams.video[0]
        assert (stream.width, stream.height, float(stream.average_rate)) == (320, 120, 17.5)
        assert sum(1 for _ in container.decode(stream)) == video.frames == 140
