"""One self-contained HTML file per replay: viewer, style and replay inlined, no network, opens from disk.

Nothing of a replay is trusted: it travels as base64, the title is escaped, and the page's content policy allows
exactly the script and style written here, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
import html
from importlib import resources
from pathlib import Path

from palus.files import write_text

_TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<link rel="icon" href="data:,">
<style>{style}</style>
</head>
<body>
<noscript>This page draws a recorded match and needs JavaScript.</noscript>
<script type="application/octet-stream" id="replay">{replay}</script>
<script>{script}</script>
</body>
</html>
"""


def page_html(replay_bytes: bytes, title: str) -> str:
    """The page that plays `replay_bytes` (the contents of a *.match file). title: any text, shown by the browser."""
    style, script = _asset("viewer.css"), _asset("viewer.js")
    policy = f"default-src 'none'; script-src {_hash_source(script)}; style-src {_hash_source(style)}; img-src data:"
    return _TEMPLATE.format(
        policy=html.escape(policy),
        title=html.escape(title),
        style=style,
        replay=base64.b64encode(replay_bytes).decode("ascii"),
        script=script,
    )


def write_html(path: str | Path, replay_bytes: bytes, title: str) -> Path:
    """Write `page_html` to `path` in one step. Raises StorageError when that is not possible."""
    path = Path(path)
    write_text(path, page_html(replay_bytes, title))
    return path


def _asset(name: str) -> str:
    return (resources.files("palus.web") / "assets" / name).read_text("utf-8")


def _hash_source(inline: str) -> str:
    """How a content policy names an inline script or style that it allows."""
    digest = hashlib.sha256(inline.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"
