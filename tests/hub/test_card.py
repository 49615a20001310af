"""Front matter by strangers: what becomes tags, what a warning, what is hostile."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palus.hub.card import dump_card, read_card


def card(front_matter: str) -> bytes:
    return f"---\n{front_matter}\n---\n# Text\n".encode()


@pytest.mark.parametrize("written", ["[a, b c, a]", "a, b c , a", "\n- a\n- b c"])
def test_tags_may_be_a_list_or_one_string_with_commas(written: str) -> None:
    assert read_card(card(f"tags: {written}\nlibrary_name: ml-agents")).tags == ("a", "b c", "ml-agents")


def test_windows_line_ends_and_a_byte_order_mark_do_no_harm() -> None:
    assert read_card(b"\xef\xbb\xbf---\r\ntags: a\r\n---\r\n").tags == ("a",)


def test_a_number_to_the_base_60_is_text() -> None:
    long = "1" + ":1" * 20_000
    assert read_card(card(f"a: 1:30\nb: 1:30.5\nc: {long}\nd: 90")).data == {
        "a": "1:30",
        "b": "1:30.5",
        "c": long,
        "d": 90,
    }


@pytest.mark.parametrize(
    ("readme", "said"),
    [
        (b"# no front matter", "no front matter"),
        (b"---\ntags: [a]\n", "no closing line"),
        (card("tags: [a"), "not valid YAML (line"),
        (card("just words"), "not a mapping"),
        (card("a: .nan"), "JSON cannot hold"),
        (card("a: " + "9" * 5000), "not valid YAML"),
        (b"---\ntags: \xff\n---\n", "not valid YAML"),
        (card("a: 2001-99-99"), "not valid YAML"),
    ],
)
def test_a_mistake_is_a_warning_and_no_tags(readme: bytes, said: str) -> None:
    found = read_card(readme)
    assert found.warning is not None and said in found.warning
    assert not found.hostile and found.tags == () and found.data == {}


@pytest.mark.parametrize(
    ("readme", "said"),
    [
        (card("a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ntags: [*c, *c]"), "anchor or alias"),
        (card("base: &base {a: 1}\nother:\n  <<: *base"), "anchor or alias"),
        (card("a: !!python/object/apply:os.system [ls]"), "YAML tag"),
        (card("a: !!timestamp x"), "YAML tag"),
        (card("a: " + "[" * 9 + "]" * 9), "nested deeper than 8"),
        (card("a: " + "[" * 20_000), "nested deeper than 8"),
        (card("a: " + "x" * 70_000), "larger than 64 KiB"),
    ],
)
def test_what_is_built_to_harm_is_called_so(readme: bytes, said: str) -> None:
    found = read_card(readme)
    assert found.hostile and found.warning is not None and said in found.warning
    assert found.tags == ()


@given(st.binary(max_size=200) | st.text(max_size=200).map(card))
def test_no_readme_breaks_the_reader(readme: bytes) -> None:
    assert json.loads(dump_card(read_card(readme).data)) == read_card(readme).data
