"""The option reference and the JSON Schema say what the models say."""

from __future__ import annotations

from pathlib import Path

from palus.config import RunFile
from run_file_page import COLUMNS, SECTIONS, render

PAGE = Path(__file__).parents[2] / "docs" / "run-file.md"


def test_the_committed_page_is_up_to_date() -> None:
    hint = "run: make docs"
    assert PAGE.read_text(encoding="utf-8") == render(), hint


def test_every_section_is_on_the_page() -> None:
    listed = {*SECTIONS, "PocaBehavior", "SacBehavior"}.union(*(columns.values() for columns in COLUMNS.values()))
    missing = {name for name in RunFile.model_json_schema()["$defs"] if not name.endswith("Sampler")} - listed
    assert missing == set()


def test_every_key_has_a_type_limits_and_a_description_in_the_schema() -> None:
    definitions = RunFile.model_json_schema()["$defs"]
    bare = [
        f"{model}.{key}"
        for model, schema in definitions.items()
        if not model.endswith("Sampler")
        for key, value in schema["properties"].items()
        if "description" not in value and "$ref" not in value
    ]
    assert bare == []
    assert definitions["SelfPlay"]["properties"]["window"]["exclusiveMinimum"] == 0
    assert definitions["SelfPlay"]["additionalProperties"] is False
    assert definitions["OnPolicyNetworkSettings"]["properties"]["activation"]["enum"] == [
        "swish",
        "elu",
        "relu",
        "tanh",
    ]
