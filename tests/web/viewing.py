"""Replays made by hand, and a page from disk that shows one, for tests of the viewer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from browsing import PATIENCE_S, eventually

from palus.envs.recording import RecordedEvent, Recording
from palus.web.page import write_html

# The scene of the game's specification whose rays were worked out by hand: (x, z, yaw) of blue A, purple A, blue B,
# purple B, then the ball.
SCENE = [0, 0, 90, 8, -3, -90, -5, 5, 90, -8, -6, -90, 5, 0]


def recording(
    frame: list[float] = SCENE,
    *,
    ticks: int = 200,
    names: tuple[str, str] = ("Ada", "Grace"),
    events: tuple[RecordedEvent, ...] = (),
    drift_m: float = 0.0,
    env_id: str = "SoccerTwos",
) -> Recording:
    """A match in which only the ball moves, by drift_m along x each tick. frame: (x, z, yaw) of agents, then (x, z)."""
    agents = len(frame) // 3
    frames = np.tile(np.array(frame, np.float32), (ticks + 1, 1))
    frames[:, -2] += np.arange(ticks + 1) * drift_m
    goals = [event.team for event in events if event.kind == "goal"]
    return Recording(
        env_id=env_id,
        seed=2**60 + 1,
        names=names,
        frames=frames,
        actions=np.tile(np.array([1, 2, 0], np.int8), (ticks // 5, agents, 1)),
        probabilities=np.tile(np.array([0, 1, 0, 0.5, 0, 0.5, 0.2, 0.3, 0.5], np.float32), (ticks // 5, agents, 1)),
        events=events,
        score=(goals.count(0), goals.count(1)),
        result="blue" if goals.count(0) > goals.count(1) else "draw",
    )


class OpenPage:
    """A replay open in the browser, and everything that the browser complained about."""

    def __init__(
        self, browser: Any, folder: Path, data: bytes, link: str = "", title: str = "test", *, three_d: bool = False
    ) -> None:
        self.complaints: list[str] = []
        self.page = browser.new_page()
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", lambda message: self._note(message.text))
        self.page.on("request", lambda request: self.complaints.append(request.url) if "://" in request.url else None)
        self.page.goto(write_html(folder / "page.html", data, title, three_d=three_d).as_uri() + link)
        self.complaints = [entry for entry in self.complaints if not entry.startswith("file://")]

    def _note(self, text: str) -> None:
        # Without a graphics card the browser draws 3-D in software and remarks that reading pictures back is slow.
        if "GL Driver Message" not in text:
            self.complaints.append(text)

    def view(self, expression: str) -> Any:
        """An expression over `view`, what the page shows now."""
        return self.page.evaluate(f"(() => {{ const view = window.palus.viewer.view; return {expression}; }})()")

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
        self.settle()

    def settle(self) -> None:
        """Until the page has drawn what it was told: it draws once per frame of the screen."""
        self.page.evaluate("new Promise(drawn => requestAnimationFrame(() => requestAnimationFrame(drawn)))")

    def wait_for(self, expression: str) -> None:
        """Until an expression over `view` holds; polled, because the page's content policy forbids `eval`."""
        self.wait_for_script(f"window.palus && (view => {expression})(window.palus.viewer.view)")

    def wait_for_script(self, expression: str) -> None:
        eventually(self.page, lambda: self.page.evaluate(expression), expression)

    def click_when(self, expression: str, button: str) -> None:
        """Click as soon as an expression over `view` holds, from within the page: what passes is not missed."""
        self.page.evaluate(
            f"""new Promise(done => {{
                const look = () => {{
                    if (!(view => {expression})(window.palus.viewer.view)) return requestAnimationFrame(look);
                    document.querySelector('button[aria-label="{button}"]').click();
                    done();
                }};
                look();
            }})"""
        )
        self.settle()
