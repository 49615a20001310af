"""Serves one page to a browser on the same machine, for `palus watch`."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from palus.errors import StorageError

ADDRESS = "127.0.0.1"


def make_server(page: str, port: int = 0) -> ThreadingHTTPServer:
    """A server that answers `/` with `page`; the caller runs `serve_forever` and closes it.

    port: 0 takes any free one; `server.server_port` tells which. Raises StorageError when the port is taken.
    """
    body = page.encode()

    class PageHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = self.path.partition("?")[0] == "/"
            self.send_response(200 if found else 404)
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
