"""What the built pages promise without a browser: small, nothing inline, and the server's shapes."""

from __future__ import annotations

import re
from pathlib import Path

from palus.web import app  # noqa: F401  (loads every shape)
from palus.web.shapes import Shape

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "src" / "palus" / "web" / "assets"
PAGES = {"index", "model", "match", "compare", "matrix", "status", "analytics", "room", "error"}


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
    source = (ROOT / "web" / "src" / "site" / "shapes.ts").read_text()
    interfaces = {
        name: dict(re.findall(r"readonly (\w+): (.+);", body))
        for name, body in re.findall(r"export interface (\w+) \{\n(.*?)\}", source, re.S)
    }
    models = {model.__name__: model for model in Shape.__subclasses__()}
    assert set(interfaces) == set(models)
    for name, model in models.items():
        assert set(interfaces[name]) == set(model.model_fields), name
        for field, info in model.model_fields.items():
            allows_null = type(None) in getattr(info.annotation, "__args__", ())
            assert interfaces[name][field].endswith("| null") == allows_null, f"{name}.{field}"
