"""The page: complete in itself, small, and closed to what strangers write into replays."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from palus.web.page import page_html, write_html

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src" / "palus" / "web" / "assets"
SOURCES = ROOT / "web"


def test_built_assets_are_those_of_the_sources() -> None:
    files = [SOURCES / name for name in ("package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")]
    files += [path for path in (SOURCES / "src").rglob("*") if path.is_file()]
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(SOURCES).as_posix(), path) for path in files):
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    record = json.loads((ASSETS / "BUILD.json").read_text())
    assert record["sources_sha256"] == digest.hexdigest(), "web/ changed: run `make web`, commit the assets"
    built = {name: hashlib.sha256((ASSETS / name).read_bytes()).hexdigest() for name in ("viewer.css", "viewer.js")}
    assert record["assets_sha256"] == built, "assets were edited by hand: run `make web`"


def test_a_page_is_complete_and_small() -> None:
    page = page_html(bytes(20_000), "Best goals")
    assert len(page) < 100_000
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)[^"']+""", page) == []


def test_no_inlined_part_can_end_its_element_early() -> None:
    # The script of the page is the one piece that no escaping protects.
    assert "</script" not in (ASSETS / "viewer.js").read_text().lower()
    assert "<!--" not in (ASSETS / "viewer.js").read_text()
    assert "</style" not in (ASSETS / "viewer.css").read_text().lower()


def test_the_title_is_text(tmp_path: Path) -> None:
    title = '</title><script>alert("1")</script>'
    page = write_html(tmp_path / "page.html", b"replay", title).read_text()
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;</title>" in page
    assert page.count("<script") == 2
