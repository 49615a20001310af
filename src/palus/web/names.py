"""Under which names an arena answers, and to whose pages: a browser reaches more than its owner thinks of.

A page elsewhere can give its own name our address (DNS rebinding), and can send us requests and open WebSockets in its
reader's name. So the name that was asked for has to be one of ours, and whatever may change something, or is a
WebSocket, has to come from a page of ours when a browser says where it comes from. Programs say nothing, and need
tokens.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from palus.web.security import ErrorAnswer

_READS = ("GET", "HEAD", "OPTIONS")
_DEFAULT_PORTS = (":80", ":443")
_POLICY_VIOLATION = 1008


@dataclass(frozen=True)
class Names:
    """hosts: names of this machine, lower case.   places: `host` or `host:port` of public addresses, whose pages are
    ours even where a proxy asks under another name."""

    hosts: frozenset[str] = frozenset({"localhost"})
    places: frozenset[str] = frozenset()

    @staticmethod
    def of(host: str, public_urls: Iterable[str] = ()) -> Names:
        """Those of an arena that listens at `host`, this machine's own among them. public_urls: as others reach it."""
        here = socket.gethostname().lower()
        short = here.partition(".")[0]
        places = frozenset(_place(urlsplit(url).netloc) for url in public_urls)
        public = (_host_of(place) for place in places)
        return Names(frozenset({"localhost", host.lower(), here, short, f"{short}.local", *public}), places)

    def answer_to(self, host: str) -> bool:
        """Whether a Host header names us. Addresses in numbers do: no foreign page has one of ours for its origin."""
        name = _host_of(host)
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.hosts
        return True

    def welcome(self, origin: str, host: str) -> bool:
        """Whether an Origin header is that of a page of ours."""
        place = _place(urlsplit(origin).netloc) if "://" in origin else ""
        return bool(place) and (place == _place(host) or place in self.places)


class KnownNames:
    """Refuses requests under a foreign name, and from foreign pages what is not plain reading (ASGI)."""

    def __init__(self, app: ASGIApp, names: Names) -> None:
        self.app, self.names = app, names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        fault = self._fault(scope) if scope["type"] in ("http", "websocket") else None
        if fault is None:
            await self.app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": fault[1].code})
        else:
            status, body = fault
            # huggingface_hub shows people this header.
            headers = {"X-Error-Message": body.error, "X-Error-Code": body.code}
            await JSONResponse(body.model_dump(), status, headers)(scope, receive, send)

    def _fault(self, scope: Scope) -> tuple[int, ErrorAnswer] | None:
        headers = Headers(scope=scope)
        hosts, origin = headers.getlist("host"), headers.get("origin")
        host = hosts[0] if len(hosts) == 1 else ""
        if not self.names.answer_to(host):
            name = _host_of(host).encode("ascii", "replace").decode()[:100]
            sentence = (
                f"This arena does not go by the name '{name}'. If it is its own, start it with "
                "`palus arena --public-url http://THAT-NAME`; else ask for it by its address in numbers."
            )
            return 421, ErrorAnswer(error=sentence, code="foreign_name")
        only_reads = scope["type"] == "http" and scope["method"] in _READS
        if origin is not None and not only_reads and not self.names.welcome(origin, host):
            return 403, ErrorAnswer(error="Only pages of this arena may do this.", code="foreign_page")
        return None


def _place(netloc: str) -> str:
    """`host` or `host:port`, lower case, without a port that goes without saying."""
    place = netloc.lower()
    for port in _DEFAULT_PORTS:
        place = place.removesuffix(port)
    return place


def _host_of(netloc: str) -> str:
    """The host of `host:port`, without brackets and the root's dot; "" when it is not one."""
    try:
        return "" if "@" in netloc else (urlsplit(f"//{netloc}").hostname or "").removesuffix(".")
    except ValueError:
        return ""
