"""A headless browser for tests of pages, and a tab that notes everything the browser complains about."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
TIMEOUT_MS = 20_000
"""The machine may be busy; nothing here measures speed."""

needs_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium on PATH; install the system's package chromium"
)
needs_axe = pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed; run `npm ci` in web/")


@contextmanager
def browsing(profile: Path) -> Iterator[Any]:
    """A browser with a fresh profile while the block runs."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser; install palus[dev]")
    with sync_api.sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            profile, executable_path=CHROMIUM, args=FLAGS, viewport={"width": 1280, "height": 820}
        )
        yield context
        context.close()


@contextmanager
def tabs(browser: Any) -> Iterator[Callable[[str], Tab]]:
    """Opens tabs; those still open at the end are closed: each holds a connection, and a browser keeps few."""
    opened: list[Tab] = []

    def open_tab(address: str) -> Tab:
        opened.append(Tab(browser, address))
        return opened[-1]

    yield open_tab
    for tab in opened:
        tab.page.close()


class Tab:
    """One open page. complaints: errors and console messages since it was opened."""

    def __init__(self, browser: Any, address: str) -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self.complaints.append(f"{message.text} {message.location['url']}"))
        try:
            self.open(address)
        except Exception as error:
            self.page.close()
            raise AssertionError(f"{address} did not open: {self.complaints}") from error

    def open(self, address: str) -> None:
        """Go to an address and wait until the page shows its title."""
        self.page.goto(address)
        self.page.wait_for_selector("main h1")
        self.page.wait_for_selector("body:not(:has([aria-busy])) main")

    def texts(self, selector: str) -> list[str]:
        """What is written in every element that the selector finds, white space made single."""
        return [" ".join(text.split()) for text in self.page.locator(selector).all_inner_texts()]

    def violations(self, *rules: str) -> list[str]:
        """What axe finds wrong with the page as it stands; rules: only these."""
        if not self.page.evaluate("'axe' in window"):
            self.page.evaluate(f"{AXE.read_text()};0")
        options = {"iframes": False} | ({"runOnly": list(rules)} if rules else {})
        found = self.page.evaluate("options => axe.run(document, options)", options)
        return [f"{fault['id']}: {json.dumps(fault['nodes'][0]['html'])}" for fault in found["violations"]]
