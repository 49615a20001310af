"""TensorBoard's event files, each event written at once: tensorboardX's own writer has a thread, which ends by a full
disk, and a queue, which then blocks for ever."""

from __future__ import annotations

import itertools
import socket
import struct
import time
from pathlib import Path

from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from palus.files import GrowingFile

VERSION = "brain.Event:2"
"""What the first event of a file says."""


class EventFile(GrowingFile):
    """A new one, which comes to be with its first event."""

    def __init__(self, folder: Path) -> None:
        name = f"events.out.tfevents.{time.time():.0f}.{socket.gethostname()}"
        names = itertools.chain([name], (f"{name}.{n}" for n in itertools.count(1)))
        super().__init__(next(folder / name for name in names if not (folder / name).exists()))

    def add(self, summary: Summary, step: int) -> None:
        """Append an event. Raises StorageError; later ones are written where there is room again."""
        event = _record(Event(wall_time=time.time(), step=step, summary=summary))
        self.grow(event if self.length else _record(Event(wall_time=time.time(), file_version=VERSION)) + event)


def _record(event: Event) -> bytes:
    """Its length, that one's checksum, the event, its checksum."""
    data = event.SerializeToString()
    length = struct.pack("<Q", len(data))
    return b"".join([length, struct.pack("<I", masked_crc32c(length)), data, struct.pack("<I", masked_crc32c(data))])
