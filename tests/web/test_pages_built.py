"""What the built pages promise without a browser: small, nothing inline, and the server's shapes."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src" / "palus" / "web" / "assets"
PAGES = {"index", "model", "match", "compare", "matrix", "status", "analytics", "room", "error", "watch"}


def test_all_assets_together_stay_below_one_and_a_half_megabytes() -> None:
    assert sum(path.stat().st_size for path in ASSETS.rglob("*") if path.is_file()) < 1_500_000


def test_every_page_is_built_and_has_nothing_inline() -> None:
    pages = {path.stem: path.read_text() for path in (ASSETS / "site").glob("*.html")}
    assert set(pages) == PAGES
    for text in pages.values():
        assert "<style" not in text
        assert re.findall(r"<script(?![^>]*\ssrc=)", text) == []
        assert re.findall(r"\s(?:on\w+|style)=", text) == []
        links = re.findall(r'(?:src|href)="([^"]+)"', text)
        assert links
        assert all((ASSETS / "site" / link.lstrip("/")).is_file() for link in links), links


def test_the_first_page_needs_little() -> None:
    text = (ASSETS / "site" / "index.html").read_text()
    files = [ASSETS / "site" / link.lstrip("/") for link in re.findall(r'(?:src|href)="([^"]+)"', text)]
    assert sum(path.stat().st_size for path in files) < 80_000


def test_the_front_end_knows_the_shapes_of_the_server() -> None:
    source = (ROOT / "web" / "src" / "api.d.ts").read_text()
    types = {
        name: re.findall(r"^ {12}readonly (\w+)(\??): (.+)$", body, re.M)
        for name, body in re.findall(r"^ {8}readonly (\w+): \{\n(.*?)^ {8}\};", source, re.S | re.M)
    }
    schemas = runpy.run_path(str(ROOT / "web" / "types" / "document.py"))["document"]()["components"]["schemas"]
    for name, schema in schemas.items():
        fields = schema.get("properties", {})
        declared = {
            (field, field not in schema.get("required", ()), {"type": "null"} in shape.get("anyOf", ()))
            for field, shape in fields.items()
        }
        generated = {(field, bool(mark), text.endswith("| null;")) for field, mark, text in types.pop(name, ())}
        assert generated == declared, f"{name} is not in src/api.d.ts as it is on the server: run `make web`"
    assert types == {}


def test_the_viewer_knows_every_pitch_as_its_game_declares_it() -> None:
    declared = runpy.run_path(str(ROOT / "web" / "types" / "pitches.py"))["pitches"]()
    assert json.loads((ROOT / "web" / "src" / "replay" / "pitches.json").read_text()) == declared, "run `make web`"
