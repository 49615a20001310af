"""Many read at once, one writes alone."""

import threading
import time

from palus.nn.lock import SharedLock

PATIENCE_S = 60.0


def test_readers_are_together_and_a_writer_is_alone():
    lock, together, order = SharedLock(), threading.Barrier(2), []

    def write():
        with lock:
            order.append("write")

    def read():
        with lock.reading():
            together.wait(PATIENCE_S)

    reader, writer = threading.Thread(target=read), threading.Thread(target=write)
    reader.start()
    with lock.reading():
        together.wait(PATIENCE_S)  # both are inside, or this is never passed
        writer.start()
        while not lock._waiting:
            time.sleep(0.001)
        order.append("read")
    for thread in (reader, writer):
        thread.join(PATIENCE_S)
    assert order == ["read", "write"]


def test_a_writer_is_not_kept_waiting_by_readers_that_come_and_go():
    lock, written = SharedLock(), threading.Event()

    def read_on():
        while not written.is_set():
            with lock.reading():
                time.sleep(0.001)

    readers = [threading.Thread(target=read_on) for _ in range(2)]
    for thread in readers:
        thread.start()
    with lock, lock:  # a writer may enter again
        written.set()
    for thread in readers:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
