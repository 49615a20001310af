"""Errors as a reader of the pages sees them: in the site's frame, with the sentence and a way on. Programs get JSON."""

from __future__ import annotations

import html
from pathlib import Path

from fastapi import Request

_TITLES = {404: "Nothing here", 405: "Not at this address", 429: "Too many requests", 500: "Something failed"}


def wants_page(request: Request) -> bool:
    """Whether a browser asks for something to look at; what is below /api is for programs, whoever asks."""
    return not request.url.path.startswith("/api/") and "text/html" in request.headers.get("accept", "")


def error_page(site: Path, status: int, sentence: str) -> str | None:
    """The page that says what went wrong; None where the pages are not built. site: folder of the built pages."""
    file = site / "error.html"
    if not file.is_file():
        return None
    title = _TITLES.get(status, "This did not work")
    return file.read_text("utf-8").replace("{title}", title).replace("{sentence}", html.escape(sentence))
