"""Model cards: what strangers write, and what of it reaches a page."""

from __future__ import annotations

import sys
from html.parser import HTMLParser

import pytest
from markdown_it import MarkdownIt

from palus.web import cards
from palus.web.cards import (
    MAX_CARD_BYTES,
    MAX_CELLS,
    MAX_DATA_IMAGE_CHARACTERS,
    MAX_LINES,
    MAX_MARKS,
    card_html,
)

REVISION = "f" * 40
FILES = f"/ada/one/resolve/{REVISION}/"
PIXEL = "data:image/png;base64,iVBORw0KGgo="


def html_of(markdown: str) -> str:
    return card_html(markdown, "ada/one", REVISION).strip()


def test_ordinary_markdown_is_rendered_below_the_headings_of_the_page() -> None:
    assert html_of("---\ntags: [a]\n---\n# Title\n\nSome **bold** `code`.") == (
        "<h2>Title</h2>\n<p>Some <strong>bold</strong> <code>code</code>.</p>"
    )
    assert html_of("| a | b |\n|---|---|\n| 1 | 2 |").startswith("<table>\n<thead>\n<tr>\n<th>a</th>")


def elements(html: str) -> list[tuple[str, dict[str, str]]]:
    """Start tags with their attributes, as a browser would find them."""
    found: list[tuple[str, dict[str, str]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, {name: value or "" for name, value in attrs}))

    Reader().feed(html)
    return found


@pytest.mark.parametrize(
    "hostile",
    [
        "<script>hacked()</script>",
        "<img src=x onerror=hacked()>",
        "<svg/onload=hacked()>",
        "<iframe src=https://evil.example></iframe>",
        "<style>body{display:none}</style>",
        '<a href="javascript:hacked()">x</a>',
        "<details open ontoggle=hacked()>",
        "<math><mi//xlink:href=javascript:hacked()>",
        "`</code><script>hacked()</script>`",
        "```\n</code></pre><script>hacked()</script>\n```",
        '```js" onmouseover="hacked()\nx\n```',
        '![a" onerror="hacked()](https://evil.example/x.png)',
        '[x](https://ok.example "a\\" onmouseover=\\"hacked()")',
    ],
)
def test_html_in_a_card_stays_text(hostile: str) -> None:
    for tag, attributes in elements(html_of(hostile)):
        assert tag in ("p", "pre", "code", "a") and set(attributes) <= {"href", "title", "rel"}
        assert attributes.get("href", "https://").startswith("https://")


@pytest.mark.parametrize(
    "target",
    [
        "javascript:hacked()",
        "JaVaScRiPt:hacked()",
        "java&#115;cript:hacked()",
        "&#x6A;avascript:hacked()",
        "vbscript:hacked()",
        "data:text/html,<script>hacked()</script>",
        "data:text/html;base64,PHNjcmlwdD4=",
        "file:///etc/passwd",
        "//evil.example/x",
        "/\\evil.example",
        "../../../api/whoami-v2",
        "%2e%2e/%2e%2e/x",
    ],
)
def test_links_lead_only_to_web_pages_mail_and_own_files(target: str) -> None:
    html = html_of(f"[x]({target}) <{target}>")
    assert "href" not in html, html


def test_links_say_that_nobody_vouches_for_them() -> None:
    assert html_of("[x](https://ok.example/y)") == (
        '<p><a href="https://ok.example/y" rel="nofollow noopener ugc">x</a></p>'
    )
    assert f'href="{FILES}docs/training.md"' in html_of("[x](docs/training.md)")


def test_remote_images_are_never_loaded() -> None:
    html = html_of("![a cat](https://track.example/pixel.png)")
    assert "<img" not in html
    assert html == '<p><a href="https://track.example/pixel.png" rel="nofollow noopener ugc">[image: a cat]</a></p>'
    linked = html_of("[![badge](https://track.example/b.svg)](https://ok.example)")
    assert "<img" not in linked and "[image: badge]" in linked and "track.example" not in linked


def test_images_of_the_repository_and_small_inline_ones_are_shown() -> None:
    assert html_of("![curve](docs/curve.png)") == f'<p><img src="{FILES}docs/curve.png" alt="curve"></p>'
    assert html_of(f"![dot]({PIXEL})") == f'<p><img src="{PIXEL}" alt="dot"></p>'
    assert "<img" not in html_of(f"![big]({PIXEL[:-1]}{'A' * MAX_DATA_IMAGE_CHARACTERS})")
    assert "<img" not in html_of("![svg](data:image/svg+xml;base64,PHN2Zz4=)")


MARKS, LINES, SIZE = MAX_MARKS, MAX_LINES, MAX_CARD_BYTES
COSTLY = {
    "brackets": "[" * MARKS,
    "images": "![" * (MARKS // 2),
    "closed images": "![" * (MARKS // 4) + "a" + "](b)" * (MARKS // 4),
    "labels": "[a][" * (MARKS // 3),
    "emphasis": "*a " * (MARKS // 2) + "a* " * (MARKS // 2),
    "stars": "*" * MARKS,
    "quotes around lazy lines": ">" * 19 + "a\n" + "a\n" * (LINES - 1),
    "titles": '[a]: /b\n"' + "x\n" * (LINES - 2),
    "lists": ("- " * 14 + "a\n") * LINES,
    "many columns": "|" * 5000 + "\n" + "|-" * 4999,
    "filled rows": f"|{'a|' * 40}\n|{'-|' * 40}\n" + "|\n" * (MAX_CELLS // 41 - 2),
    "definitions": "".join(f"[{k}]: /{k}\n" for k in range(LINES)),
    "one link many times": f"[a]: {'b' * (SIZE // 2)}\n\n" + "[a]" * (SIZE // 6),
    "a link a hundred times": f"[a]: {'b' * 1000}\n\n" + "[a]" * 128,
    "one image many times": f"[a]: {PIXEL[:-1]}{'A' * (SIZE // 2)}\n\n" + "![a]" * 1000,
    "rows beyond the bound": f"|{'a|' * 40}\n|{'-|' * 40}\n" + "|\n" * 1900,
    "brackets beyond the bound": "[" * SIZE,
    "lines beyond the bound": ">" * 19 + "a\n" * (SIZE // 2),
    "characters": "a" * 300_000,
    "controls": "\x00\ufffe",
}


@pytest.mark.parametrize("text", COSTLY.values(), ids=list(COSTLY))
def test_no_card_holds_up_the_pages(text: str) -> None:
    """Counted in calls of functions: a million takes a quarter of a second. Without bounds cards of this size take ten
    times as many, or write pages of 100 MB."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        html = html_of(text)
    finally:
        sys.setprofile(None)
    assert calls < 1_500_000 and len(html) < 1_000_000


def test_a_card_beyond_the_bounds_is_shown_as_it_was_written() -> None:
    assert html_of("*a* <\n\n" * (MAX_LINES // 2)).startswith("<p><em>a</em> &lt;</p>")
    assert html_of("*a* <\n\n" * MAX_LINES).startswith("<pre><code>*a* &lt;\n")


BOTH = (
    "<script>x()</script><img src=x onerror='x()'><svg onload='x()'><iframe src='https://a.example'></iframe>\n\n"
    "[a](javascript:x()) [b](data:text/html,x) ![c](https://track.example/p.png) <a href='vbscript:x'>d</a>"
)
SAFE = {"p", "a", "img", "br"}


def is_harmless(html: str) -> bool:
    """Whether a browser would run nothing of it, and load nothing from elsewhere."""
    return all(
        tag in SAFE
        and not [name for name in attributes if name.startswith("on")]
        and not attributes.get("href", "").startswith(("javascript:", "data:", "vbscript:"))
        and not attributes.get("src", "").startswith(("http", "javascript:", "data:text"))
        for tag, attributes in elements(html)
    )


def test_without_the_allowlist_rendering_alone_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "_sanitise", lambda html, files: html)
    html = card_html.__wrapped__(BOTH, "ada/one", REVISION)
    assert is_harmless(html) and "&lt;script&gt;" in html


def test_without_rendering_s_care_the_allowlist_alone_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(preset: str, _options: dict[str, bool]) -> MarkdownIt:
        renderer = MarkdownIt(preset, {"html": True})
        renderer.validateLink = lambda _address: True  # type: ignore[method-assign]
        return renderer

    monkeypatch.setattr(cards, "MarkdownIt", careless)
    monkeypatch.setattr(cards, "_rework", lambda token, files: None)
    html = card_html.__wrapped__(BOTH, "ada/one", REVISION)
    assert is_harmless(html) and "script" not in html


def test_without_both_it_would_not_be_harmless(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "_sanitise", lambda html, files: html)
    monkeypatch.setattr(cards, "MarkdownIt", lambda preset, _: MarkdownIt(preset, {"html": True}))
    assert not is_harmless(card_html.__wrapped__(BOTH, "ada/one", REVISION))
