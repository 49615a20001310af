"""How the commands with pages of their own take their port."""

from __future__ import annotations

import socket

import pytest

from palus.cli.arena_start import listen
from palus.errors import ArenaError


def test_who_comes_before_the_pages_waits_and_a_second_server_does_not_share_the_port() -> None:
    with listen("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        socket.create_connection(address, timeout=10).close()
        with pytest.raises(ArenaError, match=f"127.0.0.1:{address[1]}: cannot listen there .* choose another --port"):
            listen(*address)


@pytest.mark.parametrize("host", ["192.0.2.1", "no such name"])
def test_an_address_that_is_not_this_machine_s_is_not_blamed_on_the_port(host: str) -> None:
    with pytest.raises(ArenaError, match=f"{host}:0: cannot listen there .* give an address of this machine as --host"):
        listen(host, 0)


def test_no_address_is_not_the_whole_network() -> None:
    with pytest.raises(ArenaError, match="--host is empty"):
        listen("", 0).close()
