"""Model cards: strangers' Markdown as HTML that may stand inside our pages.

Two fences, each enough alone for the usual attacks: Markdown is rendered with raw HTML off, then an allowlist lets
through only known elements, attributes and addresses. Nothing is loaded from elsewhere: remote images become links.

Rendering holds up everybody else's pages, so what it may cost is bounded before it begins: a card beyond the bounds,
which no reader would call one, is shown as it was written.
"""

from __future__ import annotations

import re
from functools import lru_cache
from html import escape
from posixpath import normpath
from urllib.parse import quote, unquote, urlsplit

import nh3
from markdown_it import MarkdownIt
from markdown_it.token import Token

MAX_CARD_BYTES = 64 << 10
MAX_DATA_IMAGE_CHARACTERS = 64 << 10
MAX_LINES, MAX_MARKS, MAX_CELLS = 2000, 5000, 10_000
"""Of a card that is rendered. Marks may open or close something within a line; cells are those of a table of all lines,
as wide as the widest of them, since short rows are filled up."""
MAX_ADDRESS_CHARACTERS = 2 * MAX_DATA_IMAGE_CHARACTERS
"""Of all links and images: a reference of one line can be used by thousands."""

TOO_LARGE = f"<p>README.md is larger than {MAX_CARD_BYTES >> 10} KiB and is not shown.</p>\n"

_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\r?\n.*?^---[ \t]*\r?$\n?", re.DOTALL | re.MULTILINE)
_DATA_IMAGE = re.compile(r"data:image/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+\Z")
_MARKS = "[]!*_`<&~\\"
_TAGS = {"a", "blockquote", "br", "code", "em", "h2", "h3", "h4", "h5", "h6", "hr", "img", "li", "ol", "p", "pre"}
_TAGS |= {"s", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul"}
_ATTRIBUTES = {"a": {"href", "title"}, "img": {"src", "alt", "title"}, "ol": {"start"}}


@lru_cache(maxsize=256)
def card_html(markdown: str, repo: str, revision: str) -> str:
    """A README as sanitised HTML. Links and images without a host are files of the repository at this revision."""
    text = _FRONT_MATTER.sub("", markdown[:MAX_CARD_BYTES], count=1)
    if _is_too_much(text):
        return _as_written(text)
    renderer = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    tokens = renderer.parse(text)
    if _address_characters(tokens) > MAX_ADDRESS_CHARACTERS:
        return _as_written(text)
    files = f"/{repo}/resolve/{revision}/"
    for token in tokens:
        _rework(token, files)
    return _sanitise(renderer.renderer.render(tokens, renderer.options, {}), files)


def _is_too_much(text: str) -> bool:
    """Whether rendering might cost more than a page may wait for. The renderer is linear in lines, marks and cells."""
    lines = text.splitlines()
    cells = len(lines) * max((line.count("|") for line in lines), default=0)
    return len(lines) > MAX_LINES or sum(map(text.count, _MARKS)) > MAX_MARKS or cells > MAX_CELLS


def _address_characters(tokens: list[Token]) -> int:
    inline = [child for token in tokens for child in token.children or []]
    return sum(len(str(value)) for child in inline for value in child.attrs.values())


def _as_written(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>\n"


def _rework(token: Token, files: str) -> None:
    """Headings one level down, below the page's own; addresses made absolute; remote images to links."""
    if token.type in ("heading_open", "heading_close"):
        token.tag = f"h{min(int(token.tag[1]) + 1, 6)}"
    children = []
    inside_link = 0
    for child in token.children or []:
        inside_link += child.nesting if child.type in ("link_open", "link_close") else 0
        if child.type == "link_open":
            child.attrSet("href", _address(str(child.attrGet("href") or ""), files) or "")
        if child.type == "image":
            children += _image(child, files, inside_link > 0)
        else:
            children.append(child)
    if token.children is not None:
        token.children = children


def _image(image: Token, files: str, inside_link: bool) -> list[Token]:
    source = str(image.attrGet("src") or "")
    address = _address(source, files)
    if _is_small_data_image(source) or (address and address.startswith(files)):
        image.attrSet("src", source if source.startswith("data:") else str(address))
        return [image]
    caption = Token("text", "", 0, content=f"[image: {image.content or 'without a description'}]")
    if inside_link or not address:
        return [caption]
    return [Token("link_open", "a", 1, attrs={"href": address}), caption, Token("link_close", "a", -1)]


def _address(target: str, files: str) -> str | None:
    """Where a link of the card leads; None where it must not lead anywhere."""
    try:
        parts = urlsplit(target)
    except ValueError:
        return None
    if parts.scheme in ("http", "https", "mailto"):
        return target
    if parts.scheme or parts.netloc or not parts.path:
        return None
    path = normpath(unquote(parts.path)).lstrip("/")
    if path.startswith("..") or path == "." or "\\" in path:
        return None
    return files + quote(path)


def _is_small_data_image(source: str) -> bool:
    return len(source) <= MAX_DATA_IMAGE_CHARACTERS and _DATA_IMAGE.match(source) is not None


def _sanitise(html: str, files: str) -> str:
    def keep(tag: str, attribute: str, value: str) -> str | None:
        if (tag, attribute) == ("img", "src"):
            return value if _is_small_data_image(value) or value.startswith(files) else None
        if (tag, attribute) == ("a", "href"):
            allowed = value.startswith(("https://", "http://", "mailto:", files))
            return value if allowed else None
        return value

    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        attribute_filter=keep,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="nofollow noopener ugc",
    )
