"""What protects readers: headers, limits, faults that tell nothing, and hostile text in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from browsing import needs_browser
from fastapi.testclient import TestClient
from sqlalchemy import text
from synthetic_arena import ENV, SyntheticArena
from web_server import serving

from palus.store import Store
from palus.web.app import WebLimits, make_app
from palus.web.security import CONTENT_POLICY, HEADERS

HOSTILE_CARD = """
# <img src=x onerror="window.hacked=1">
<script>window.hacked=1</script><svg onload="window.hacked=1">
[click](javascript:window.hacked=1) [click](java&#x73;cript:window.hacked=1) [data](data:text/html,<script>1</script>)
![track](https://track.example/p.png) ![own](curve.png)
"""


@pytest.fixture
def client(store: Store, tmp_path: Path) -> Iterator[TestClient]:
    arena = SyntheticArena(store)
    for repo in ("ada/one", "bob/two"):
        arena.add_entry(repo)
    arena.play("ada/one", "bob/two", "win1", "win2")
    arena.rate()
    arena.push_card("ada/one", HOSTILE_CARD)
    site = tmp_path / "site"
    (site / "static").mkdir(parents=True)
    for page in ("index", "model", "match"):
        (site / f"{page}.html").write_text(f"<!doctype html><title>{page}</title>")
    (site / "static" / "page-1a2b.js").write_text("1")
    (site / "static" / "engine-3c4d.wasm").write_bytes(b"\0asm")
    (site / "secret.json").write_text("{}")
    with TestClient(make_app(store, site=site, limits=WebLimits(fresh_s=0.0))) as client:
        yield client


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/ada/one",
        "/match?match=1",
        "/static/page-1a2b.js",
        f"/api/arena/leaderboard/{ENV}",
        "/api/arena/models/no/body",
        "/api/arena/matches/not-hex",
        f"/api/arena/downloads/{ENV}/history.csv",
        "/api/whoami-v2",
        "/api/models",
        "/ada/one/resolve/main/missing.txt",
        "/openapi.json",
        "/nowhere/at/all/really",
    ],
)
def test_every_answer_carries_the_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    for name, value in HEADERS.items():
        if name == "Content-Security-Policy" and "/resolve/" in path:
            assert "sandbox" in answer.headers.get(name, "sandbox") or answer.headers[name] == value
        else:
            assert answer.headers[name] == value, name
    assert "server" not in answer.headers or "uvicorn" not in answer.headers["server"]


def test_the_content_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    directives = dict(part.split(" ", 1) for part in CONTENT_POLICY.split("; "))
    assert directives["default-src"] == "'self'" and directives["frame-ancestors"] == "'none'"
    assert "unsafe" not in CONTENT_POLICY and "http" not in CONTENT_POLICY and "script-src" not in directives


def test_files_of_strangers_are_not_pages_of_ours(client: TestClient) -> None:
    answer = client.get("/ada/one/resolve/main/README.md")
    assert answer.status_code == 200 and answer.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in answer.headers["content-security-policy"]


@pytest.mark.parametrize(
    ("path", "media_type", "kept"),
    [
        ("/static/page-1a2b.js", "text/javascript; charset=utf-8", "public, max-age=31536000, immutable"),
        ("/static/engine-3c4d.wasm", "application/wasm", "public, max-age=31536000, immutable"),
        ("/", "text/html; charset=utf-8", "no-cache"),
        ("/ada/one", "text/html; charset=utf-8", "no-cache"),
    ],
)
def test_files_of_the_pages_have_their_type_and_age(client: TestClient, path: str, media_type: str, kept: str) -> None:
    answer = client.get(path)
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == (media_type, kept)
    assert client.head(path).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../secret.json",
        "/static/%2e%2e/secret.json",
        "/static/..%2fsecret.json",
        "/static/..%5csecret.json",
        "/static//etc/passwd",
        "/static/%00.js",
        "/static/",
        "/api/one",
        "/datasets/one",
        "/nobody/nothing",
    ],
)
def test_nothing_else_is_served(client: TestClient, path: str) -> None:
    assert client.get(path).status_code in (404, 405)


def test_which_page_is_sent_is_said_by_its_path_alone(client: TestClient, tmp_path: Path) -> None:
    secret = tmp_path / "secret.html"
    secret.write_text("a token")
    for name in (secret.with_suffix(""), "../secret", "index"):
        assert client.get("/match", params={"name": str(name)}).text == "<!doctype html><title>match</title>"


def test_pages_that_are_not_built_say_so(store: Store, tmp_path: Path) -> None:
    with TestClient(make_app(store, site=tmp_path / "nothing")) as client:
        answer = client.get("/")
    assert answer.status_code == 503 and "make web" in answer.json()["error"]


def test_an_address_that_asks_too_often_is_told_when_to_come_back(store: Store) -> None:
    limits = WebLimits(requests_per_s=0.1, request_burst=3)
    with TestClient(make_app(store, limits=limits)) as client:
        codes = [client.get("/api/arena/envs").status_code for _ in range(4)]
        answer = client.get("/api/arena/envs")
    assert codes == [200, 200, 200, 429]
    assert answer.json()["code"] == "too_many_requests" and 1 <= int(answer.headers["retry-after"]) <= 11


def test_an_inner_fault_is_one_sentence_without_a_trace(store: Store) -> None:
    app = make_app(store, limits=WebLimits(fresh_s=0.0))
    with TestClient(app, raise_server_exceptions=False) as client:
        with store.write() as connection:
            connection.execute(text("DROP TABLE annulments"))
        answer = client.get(f"/api/arena/leaderboard/{ENV}")
    assert answer.status_code == 500 and answer.json()["code"] == "internal"
    assert "annulments" not in answer.text and "Traceback" not in answer.text
    assert answer.headers["content-security-policy"] == CONTENT_POLICY


def test_files_beside_the_built_pages_are_not_served(store: Store, tmp_path: Path) -> None:
    """By a real server, which gets the address as it is written."""
    secret, site = tmp_path / "class.txt", tmp_path / "site"
    secret.write_text("a token")
    (site / "static").mkdir(parents=True)
    (site / "secret.json").write_text("{}")
    (site / "static" / "page-1a2b.js").write_text("1")
    (site / "static" / "link-1a2b.txt").symlink_to(secret)
    tried = [f"/{secret}", f"//{secret}", str(secret), f"%2F{str(secret)[1:]}", "../secret.json", "%2e%2e/secret.json"]
    tried += ["..%2fsecret.json", "x/../../secret.json", "link-1a2b.txt", ".", "page-1a2b.js%00.txt"]
    with serving(make_app(store, site=site)) as address:
        host, port = urlsplit(address).hostname, urlsplit(address).port
        connection = HTTPConnection(str(host), port, timeout=60)
        found = {}
        for path in ["page-1a2b.js", *tried]:
            connection.request("GET", f"/static/{path}")
            answer = connection.getresponse()
            answer.read()
            found[path] = answer.status
        connection.close()
    assert found == {"page-1a2b.js": 200, **dict.fromkeys(tried, 404)}


@needs_browser
def test_a_hostile_card_does_nothing_even_in_a_page_of_ours(store: Store, browser: Any) -> None:
    """Put into the page as it is, without the frame in which the model page shows it: the sanitiser stands alone."""
    arena = SyntheticArena(store)
    arena.add_entry("ada/one")
    arena.push_card("ada/one", HOSTILE_CARD)
    with serving(make_app(store)) as address:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/status")
        html = page.evaluate("async () => (await (await fetch('/api/arena/models/ada/one')).json()).card_html")
        assert "own" in html
        page.evaluate("html => { document.body.innerHTML = html }", html)
        for link in page.query_selector_all("a:not([href])"):
            link.click()
        # Not wait_for_function: it polls by eval, which the page's policy forbids.
        page.evaluate("async () => { await Promise.allSettled([...document.images].map(image => image.decode())) }")
        assert page.evaluate("[window.hacked, document.body.querySelectorAll('script').length]") == [None, 0]
        assert page.evaluate("[...document.links].map(a => [a.host, a.rel])") == [
            ["track.example", "nofollow noopener ugc"]
        ]
        assert all(url.startswith(address) for url in asked)
        page.close()


@needs_browser
def test_the_content_policy_stops_what_a_sanitiser_would_miss(store: Store, browser: Any) -> None:
    with serving(make_app(store)) as address:
        page = browser.new_page()
        page.goto(f"{address}/status")
        stopped = page.evaluate(
            """() => new Promise(finished => {
                const stopped = [];
                setTimeout(() => finished(stopped), 20000);
                document.addEventListener("securitypolicyviolation", event => {
                    if (stopped.push(event.effectiveDirective) === 4) finished(stopped);
                });
                document.body.insertAdjacentHTML("beforeend",
                    "<img src=data:, onerror='window.hacked=1'><a id=js href='javascript:window.hacked=1'>x</a>"
                    + "<img src=https://track.example/p.png>");
                const script = document.createElement("script");
                script.textContent = "window.hacked=1";
                document.body.append(script);
                document.getElementById("js").click();
            })"""
        )
        assert page.evaluate("window.hacked") is None
        assert set(stopped) == {"script-src-attr", "script-src-elem", "img-src"}
        page.close()
