"""Which names an arena answers to, whose pages may change something, and whose word counts for a reader's address."""

from __future__ import annotations

from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner
from web_server import serving

from palus.cli import app as command_line
from palus.hub.limits import HubLimits
from palus.store import Store
from palus.web.app import make_app
from palus.web.names import Names

PUBLIC = "https://arena.school.example"
SOCKET = "/api/arena/room/live"
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec_WebSocket_Version": "13",
    "Sec_WebSocket_Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


def ask(address: str, method: str, path: str, **headers: str) -> tuple[int, str]:
    """Status and body of a request with exactly these headers; names are given with _ for -."""
    place = urlsplit(address)
    connection = HTTPConnection(str(place.hostname), place.port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {"Host": place.netloc, "Content_Length": "0", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    said = answer.status, "" if answer.status == 101 else answer.read().decode()
    connection.close()
    return said


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost:8000", True),
        ("LOCALHOST.", True),
        ("127.0.0.1", True),
        ("192.168.1.20:8000", True),
        ("[::1]:8000", True),
        ("arena.school.example", True),
        ("arena.school.example:444", True),
        ("teacher:8000", True),
        ("", False),
        ("evil.example", False),
        ("evil.example:8000", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example", False),
        ("evil.example@localhost", False),
        ("localhost@evil.example", False),
        ("2130706433", False),
        ("[::1", False),
    ],
)
def test_an_arena_answers_to_its_own_names_and_to_addresses_in_numbers(host: str, answered: bool) -> None:
    assert Names.of("teacher", [PUBLIC]).answer_to(host) is answered


@pytest.mark.parametrize(
    ("origin", "host", "welcome"),
    [
        ("http://localhost:8000", "localhost:8000", True),
        ("http://LOCALHOST", "localhost:80", True),
        (PUBLIC, "127.0.0.1:8000", True),  # behind a proxy that asks by another name
        ("http://localhost:3000", "localhost:8000", False),
        ("http://evil.example", "localhost:8000", False),
        ("https://arena.school.example.evil.example", "127.0.0.1:8000", False),
        ("null", "localhost:8000", False),
        ("", "localhost:8000", False),
        ("localhost:8000", "localhost:8000", False),
    ],
)
def test_pages_of_the_arena_are_those_under_the_name_that_was_asked_for(origin: str, host: str, welcome: bool) -> None:
    assert Names.of("127.0.0.1", [PUBLIC]).welcome(origin, host) is welcome


def test_a_name_that_was_bent_to_our_address_reaches_nothing(store: Store) -> None:
    with serving(make_app(store)) as address:
        port = urlsplit(address).port
        foreign = f"evil.example:{port}"
        for path in ("/", "/api/arena/status", "/api/models", "/api/arena/room/players/SoccerTwos"):
            status, said = ask(address, "GET", path, Host=foreign)
            assert status == 421 and "does not go by the name 'evil.example'" in said and "--public-url" in said
            assert ask(address, "GET", path, Host=f"localhost:{port}")[0] == 200
        assert ask(address, "POST", "/api/repos/create", Host=foreign, Origin=f"http://{foreign}")[0] == 421
        assert ask(address, "GET", SOCKET, **UPGRADE, Host=foreign, Origin=f"http://{foreign}")[0] == 403
        assert ask(address, "GET", SOCKET, **UPGRADE)[0] == 101


def test_pages_elsewhere_neither_change_anything_nor_open_sockets(store: Store) -> None:
    with serving(make_app(store, names=Names.of("127.0.0.1", [PUBLIC]))) as address:
        own, elsewhere = {"Origin": address}, {"Origin": "https://evil.example"}
        for method, path in (
            ("POST", "/api/repos/create"),
            ("DELETE", "/api/repos/delete"),
            ("PUT", "/api/models/a/b/settings"),
            ("POST", "/api/validate-yaml"),
            ("POST", "/api/worker/hello"),
        ):
            assert ask(address, method, path, **elsewhere) == (
                403,
                '{"error":"Only pages of this arena may do this.","code":"foreign_page"}',
            )
            assert ask(address, method, path, Origin="null")[0] == 403
            for friend in (own, {}, {"Origin": PUBLIC}):  # a page of ours, a program, a page of ours behind a proxy
                assert "foreign_page" not in ask(address, method, path, **friend)[1]
        assert ask(address, "GET", SOCKET, **UPGRADE, **elsewhere)[0] == 403
        assert ask(address, "GET", SOCKET, **UPGRADE, **own)[0] == 101
        assert ask(address, "GET", "/api/arena/status", **elsewhere)[0] == 200  # reading is guarded by the browser


def test_the_meter_of_wrong_tokens_is_not_turned_by_a_header(store: Store) -> None:
    limits = HubLimits(bad_tokens_per_minute=3)

    def statuses(proxies: tuple[str, ...]) -> list[int]:
        with serving(make_app(store, hub_limits=limits), proxies) as address:
            return [
                ask(address, "GET", "/api/whoami-v2", Authorization=f"Bearer hf_{n}", X_Forwarded_For=f"10.0.0.{n}")[0]
                for n in range(5)
            ]

    assert statuses(()) == [401, 401, 401, 429, 429]
    assert statuses(("10.9.9.9",)) == [401, 401, 401, 429, 429]  # another machine is the proxy
    assert statuses(("127.0.0.0/8",)) == [401] * 5


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--proxy", "*"), "--proxy *: "),
        (("--proxy", "proxy.example"), "--proxy proxy.example: "),
        (("--public-url", "arena.example"), "--public-url arena.example: not an address"),
        (("--public-url", "http://arena.example/path"), "not an address"),
        (("--public-url", "http://arena.example:port"), "not an address"),
    ],
)
def test_names_and_proxies_that_are_none_are_refused_before_the_start(
    tmp_path: Path, words: tuple[str, ...], fault: str
) -> None:
    result = CliRunner().invoke(command_line, ["arena", "--data", str(tmp_path / "arena"), *words])
    assert result.exit_code == 2 and fault in " ".join(result.output.split()), result.output
