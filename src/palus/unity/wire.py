"""The two ends of a connection: the trainer listens and answers, the game asks. gRPC on this machine, without TLS.

Every exchange is the game's request and the trainer's answer, so the trainer's next command is the answer to a request
that waits. Messages cross as bytes and are parsed here, so that what is wrong with one is said in words on both ends.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from typing import Any

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # read at the import: what goes wrong is said here, in words
import grpc

from palus.errors import ClosedGameError, LostGameError, ProtocolError
from palus.unity.messages import CLOSING, METHOD, message, parse

MAX_MESSAGE_BYTES = 64 << 20
"""The most that either end takes; ML-Agents' trainer takes 4 MB."""
MAX_REASON = 500
POLL_S = 0.25
"""How often a trainer that waits looks whether the game is alive."""
FAREWELL_S = 5.0
"""How long a game that goes waits until a trainer has heard so."""
_OPTIONS = [
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.so_reuseport", 0),  # a port that is taken is an error, not shared
    ("grpc.enable_http_proxy", 0),
]
_SERVICE, _NAME = METHOD.strip("/").split("/")


class _Threads(Executor):
    """Four threads that keep no process from ending: a script may end, or raise, while a game waits for an answer, for
    which `ThreadPoolExecutor` would wait for ever."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        for _ in range(4):
            threading.Thread(target=self._work, name="unity", daemon=True).start()

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        """As `Executor.submit`."""
        future: Future[Any] = Future()

        def call() -> None:
            try:
                future.set_result(fn(*args, **named))
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(call)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """The threads end when they have done what was submitted."""
        for _ in range(4):
            self._calls.put(None)


class Listener:
    """The trainer's end. One game may connect; its request waits until `answer`, or for a game that is gone."""

    def __init__(self, port: int) -> None:
        """Listen on this machine's own addresses, IPv4 and, where there is one, IPv6. port: 0 for any that is free.

        Raises ProtocolError where the port is taken.
        """
        self._requests: queue.Queue[tuple[bytes, Any, queue.Queue[bytes | None]]] = queue.Queue()
        self._pending: tuple[Any, queue.Queue[bytes | None]] | None = None
        self._turn = threading.Lock()
        self._threads = _Threads()
        self._server = grpc.server(self._threads, options=_OPTIONS)
        handler = grpc.unary_unary_rpc_method_handler(self._exchange)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {_NAME: handler}),))
        try:
            self.port: int = self._server.add_insecure_port(f"127.0.0.1:{port}")
            if _has_ipv6():
                self._server.add_insecure_port(f"[::1]:{self.port}")
        except RuntimeError as error:
            self._server.stop(None)
            self._threads.shutdown()
            raise ProtocolError(
                f"port {port} is taken, perhaps by another training; end it, or choose others by --base-port"
            ) from error
        self._server.start()

    def _exchange(self, data: bytes, context: Any) -> bytes:
        """Runs in a thread of gRPC's."""
        if not self._turn.acquire(blocking=False):
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "an earlier request on this port waits for its answer")
        try:
            reply: queue.Queue[bytes | None] = queue.Queue()
            context.add_callback(lambda: reply.put(None))  # the game is gone, or was answered
            self._requests.put((data, context, reply))
            return reply.get() or b""
        finally:
            self._turn.release()

    def receive(self, timeout_s: float, check: Callable[[], None] = lambda: None) -> Any:
        """The game's next request; `answer` it. check: called while waiting, it raises when the game is dead.

        Raises ProtocolError for what is no message, for a game that closes, and after timeout_s of silence.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                data, context, reply = self._requests.get(timeout=POLL_S)
                if context.is_active():  # else its game is gone
                    break
            except queue.Empty:
                check()
                if time.monotonic() > deadline:
                    raise LostGameError(
                        f"no word from the game for {timeout_s:g} s. Does it wait for a person, is each agent's "
                        'Behavior Type "Default", does it need no_graphics here? timeout_wait waits longer'
                    ) from None
        self._pending = context, reply
        try:
            found = parse(data)
        except ProtocolError as error:
            self._pending = None
            reply.put(refusal(str(error)))
            raise
        if found.header.status == CLOSING:
            self.answer(message(CLOSING))
            raise ClosedGameError(f"the game ended the connection{_reason(found)}")
        return found

    def answer(self, made: Any) -> None:
        """Answer the request that waits. Raises ProtocolError when who asked is gone."""
        assert self._pending is not None, "answers follow requests"
        context, reply = self._pending
        self._pending = None
        if not context.is_active():
            raise LostGameError("the game broke off the connection; its log says why")
        reply.put(made.SerializeToString())

    def refuse(self, reason: str = "") -> None:
        """Tell the game that this is the end; a reason makes it an error."""
        if self._pending is not None:
            self._pending[1].put(refusal(reason))
            self._pending = None

    def close(self) -> None:
        """Tell the game that this is the end, and stop listening; calling it twice does no harm."""
        self.refuse()
        while not self._requests.empty():
            self._requests.get_nowait()[2].put(refusal())
        self._server.stop(1.0).wait()
        self._threads.shutdown()


class Dialer:
    """The game's end."""

    def __init__(self, port: int, timeout_s: float) -> None:
        """Raises ProtocolError when nobody listens for so long."""
        self.port = port
        self._channel = grpc.insecure_channel(f"localhost:{port}", options=_OPTIONS)
        self._call = self._channel.unary_unary(METHOD)
        try:
            grpc.channel_ready_future(self._channel).result(timeout=timeout_s)
        except grpc.FutureTimeoutError as error:
            self._channel.close()
            raise ProtocolError(
                f"no trainer listens on port {port} (tried {timeout_s:g} s); start the training first, or let it start "
                "the game with --env"
            ) from error

    def exchange(self, made: Any) -> Any:
        """The trainer's answer; None when it says that this is the end. Waits as long as the trainer learns.

        Raises ProtocolError when the trainer is gone, says what is no message, or ends it for a reason.
        """
        try:
            answer = parse(self._call(made.SerializeToString()))
        except grpc.RpcError as error:
            raise ProtocolError(
                f"the trainer on port {self.port} is gone or refuses: {error.code().name}, {error.details()}"
            ) from error
        if answer.header.message:
            raise ProtocolError(f"the trainer ended the connection{_reason(answer)}")
        return None if answer.header.status == CLOSING else answer

    def farewell(self, reason: str) -> None:
        """Tell a trainer, if there is one, that the game ends, and why."""
        with suppress(grpc.RpcError, ValueError):  # gone, or closed on this side
            self._call(refusal(reason), timeout=FAREWELL_S)

    def close(self) -> None:
        """Break off."""
        self._channel.close()


def refusal(reason: str = "") -> bytes:
    """The message that ends a connection."""
    made = message(CLOSING)
    made.header.message = reason[:MAX_REASON]
    data: bytes = made.SerializeToString()
    return data


def _reason(found: Any) -> str:
    return f": {found.header.message}" if found.header.message else ""


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
