"""One self-contained HTML file per replay: viewer, style and replay inlined, no network, opens from disk.

On request the 3-D view goes in as well; it is the same script that the arena's pages load, and it brings three.js.

Nothing of a replay is trusted: it travels as base64, the title is escaped, and the page's content policy allows
exactly the script and style written here, by their hashes. `palus watch` shows it from a server of one page, which
answers to no name that a page elsewhere may have given our address (see `palus.web.names`, which the base install
cannot load).
"""

from __future__ import annotations

import base64
import hashlib
import html
import re
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from urllib.parse import urlsplit

from palus.errors import StorageError
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
{scripts}
</body>
</html>
"""


def page_html(replay_bytes: bytes, title: str, *, three_d: bool = False) -> str:
    """The page that plays `replay_bytes` (the contents of a *.match file). title: any text, shown by the browser.

    three_d: offer the 3-D view too, for half a megabyte more.
    """
    style = _asset("viewer.css").read_text("utf-8")
    scripts = [_asset("viewer.js").read_text("utf-8")]
    if three_d:
        scripts.insert(0, solid_script().read_text("utf-8"))  # the viewer looks for it when it starts
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash_source, scripts))}; "
        f"style-src {_hash_source(style)}; img-src data:"
    )
    return _TEMPLATE.format(
        policy=html.escape(policy),
        title=html.escape(title),
        style=style,
        replay=base64.b64encode(replay_bytes).decode("ascii"),
        scripts="\n".join(f"<script>{script}</script>" for script in scripts),
    )


def write_html(path: str | Path, replay_bytes: bytes, title: str, *, three_d: bool = False) -> Path:
    """Write `page_html` to `path` in one step. Raises StorageError when that is not possible."""
    path = Path(path)
    write_text(path, page_html(replay_bytes, title, three_d=three_d))
    return path


def solid_script() -> Traversable:
    """The built 3-D view. Its name carries a hash of its content, because the arena's pages load it by that name."""
    folder = _asset("site") / "static"
    return next(file for file in folder.iterdir() if re.fullmatch(r"three-view-[\w-]+\.js", file.name))


def _asset(name: str) -> Traversable:
    return resources.files("palus.web") / "assets" / name


def _hash_source(inline: str) -> str:
    """How a content policy names an inline script or style that it allows."""
    digest = hashlib.sha256(inline.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


ADDRESS = "127.0.0.1"
_OWN_NAMES = (ADDRESS, "localhost", "::1")
"""With any port: a tunnel to this machine has another one."""


def make_server(page: str, port: int = 0) -> ThreadingHTTPServer:
    """A server that answers `/` with `page`; the caller runs `serve_forever` and closes it.

    port: 0 takes any free one; `server.server_port` tells which. Raises StorageError when the port is taken.
    """
    body = page.encode()

    class PageHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            named = _is_own(self.headers.get_all("Host", []))
            found = named and self.path.partition("?")[0] == "/"
            self.send_response(200 if found else 404 if named else 421)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body) if found else 0))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            if found:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """The terminal belongs to the reader; requests are of no interest there."""

    try:
        return ThreadingHTTPServer((ADDRESS, port), PageHandler)
    except OSError as error:
        raise StorageError(
            f"port {port} on {ADDRESS} cannot be used ({error.strerror}); leave out --port to take a free one"
        ) from error


def _is_own(hosts: list[str]) -> bool:
    """Whether a request's only Host header names this machine."""
    try:
        return len(hosts) == 1 and urlsplit(f"//{hosts[0]}").hostname in _OWN_NAMES
    except ValueError:
        return False
