"""A headless browser for tests of pages, and a tab that notes everything the browser complains about."""

from __future__ import annotations

import json
import shutil
import time
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
PATIENCE_S = 60.0
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


def eventually(page: Any, fact: Callable[[], Any], what: str) -> Any:
    """What `fact` gives as soon as that is true. The page goes on meanwhile: a plain sleep would hold its events up."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := fact()):
        assert time.monotonic() < deadline, f"never true: {what}"
        page.wait_for_timeout(20)
    return found


def end_and_home_scroll(page: Any) -> None:
    """See that these keys do. One that is pressed while the page still moves is lost, so each is pressed again."""
    ends = "scrollY > 0 && Math.abs(scrollY + innerHeight - document.documentElement.scrollHeight) < 2"
    for key, there in (("End", ends), ("Home", "scrollY === 0")):

        def arrives(key: str = key, there: str = there) -> bool:
            page.keyboard.press(key)
            page.wait_for_timeout(300)
            return bool(page.evaluate(there))

        eventually(page, arrives, f"{key} scrolls")


class Notes:
    """Every text that some elements show from now on, however shortly: a busy test looks too early or too late."""

    def __init__(self, page: Any, *selectors: str) -> None:
        self._page = page
        page.evaluate(
            """selectors => {
                window.notes = Object.fromEntries(selectors.map(selector => [selector, []]));
                const look = () => selectors.forEach(selector => {
                    const shown = [...document.querySelectorAll(selector)].map(part => part.innerText);
                    window.notes[selector].push(...shown.map(text => text.trim().replace(/\\s+/g, " ")));
                });
                const all = { subtree: true, childList: true, characterData: true, attributes: true };
                new MutationObserver(look).observe(document.body, all);
                look();
            }""",
            list(selectors),
        )

    def wait_for(self, selector: str, text: str) -> None:
        """Until an element has shown this, white space made single."""
        seen = "([selector, text]) => window.notes[selector].includes(text)"
        try:
            eventually(self._page, lambda: self._page.evaluate(seen, [selector, text]), text)
        except AssertionError as error:
            shown = dict.fromkeys(self._page.evaluate("selector => window.notes[selector]", selector))
            raise AssertionError(f"{selector} never showed {text!r}; it showed {list(shown)}") from error


class Tab:
    """One open page. complaints: errors and console messages since it was opened."""

    def __init__(self, browser: Any, address: str) -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_S)
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
