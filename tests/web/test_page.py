"""The page: complete in itself, small, and closed to what strangers write into replays."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest

from palus.web.page import page_html, solid_script, write_html

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src" / "palus" / "web" / "assets"
SOURCES = ROOT / "web"


def test_built_assets_are_those_of_the_sources() -> None:
    files = [SOURCES / name for name in ("package.json", "package-lock.json", "tsconfig.json", "vite.config.ts")]
    files += SOURCES.glob("*.html")
    files += [path for path in (SOURCES / "src").rglob("*") if path.is_file() and not path.name.endswith(".d.ts")]
    digest = hashlib.sha256()
    for name, path in sorted((path.relative_to(SOURCES).as_posix(), path) for path in files):
        digest.update(f"{name}\0".encode() + path.read_bytes() + b"\0")
    record = json.loads((ASSETS / "BUILD.json").read_text())
    assert record["sources_sha256"] == digest.hexdigest(), "web/ changed: run `make web`, commit the assets"
    assets = {path.relative_to(ASSETS).as_posix(): path for path in ASSETS.rglob("*") if path.is_file()}
    built = {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in assets.items()}
    del built["BUILD.json"]
    assert record["assets_sha256"] == built, "assets were edited by hand: run `make web`"


@pytest.mark.parametrize(("three_d", "budget"), [(False, 100_000), (True, 1_000_000)])
def test_a_page_is_complete_and_small(three_d: bool, budget: int) -> None:
    page = page_html(bytes(20_000), "Best goals", three_d=three_d)
    assert len(page.encode()) < budget
    assert re.findall(r"""(?:src|href)\s*=\s*["'](?!data:)[^"'>]+\.(?:js|css)\b""", page) == []
    assert ("three.js authors" in page) is three_d


def test_no_inlined_part_can_end_its_element_early() -> None:
    # Scripts and style are the pieces that no escaping protects.
    for script in (ASSETS / "viewer.js", solid_script()):
        text = script.read_text("utf-8")
        assert "</script" not in text.lower()
        assert "<!--" not in text
    assert "</style" not in (ASSETS / "viewer.css").read_text("utf-8").lower()


def test_the_licence_of_what_is_bundled_comes_along() -> None:
    assert "three.js authors" in (ASSETS / "THIRD-PARTY-NOTICES.txt").read_text("utf-8")


def test_the_title_is_text(tmp_path: Path) -> None:
    title = '</title><script>alert("1")</script>'
    page = write_html(tmp_path / "page.html", b"replay", title).read_text()
    assert "<title>&lt;/title&gt;&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;</title>" in page
    assert page.count("<script") == 2
