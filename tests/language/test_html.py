"""The rendering for notebooks: readable, by itself, and safe with any string."""

import re
from html.parser import HTMLParser

import pytest

from edgewise import F, Program, R, V, repeat

HOSTILE = ["<script>alert(1)</script>", "</div>", "&amp;", '" onload="x', "'><img src=x>", "]]>"]


class Reader(HTMLParser):
    """The visible text, every tag and every attribute of a piece of HTML."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.text, self.tags, self.attributes, self.depth = "", set(), set(), 0
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attributes: list) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}
        self.depth += 1

    def handle_endtag(self, tag: str) -> None:
        self.depth -= 1

    def handle_data(self, data: str) -> None:
        self.text += data


def test_rules_are_shown_as_text() -> None:
    program = Program([(R.h(V.X) <= (R.a(V.X)[8, 2], R._e(V.X, V.Y))) | [F.relu]], rounds=2)
    reader = Reader(program._repr_html_())
    assert reader.text == program.text().replace("\n", "")
    assert reader.depth == 0


@pytest.mark.parametrize("text", HOSTILE)
def test_strings_are_escaped(text: str) -> None:
    program = Program(
        [
            R[text](text)[2.0],
            R.h(V[text]) <= R.a(V[text])[text:2, 3],
            R[text] / 1 | [F.relu],
            repeat(lambda x: [R[text](V.X) <= x(V.X)], 2, name=text)(R[text]),
        ],
        domains={text: [text]},
    )
    reader = Reader(program._repr_html_())
    assert reader.tags == {"div", "span"}
    assert reader.attributes == {"style"}
    assert reader.depth == 0


def test_a_stack_is_one_box() -> None:
    stack = repeat(lambda x: [R.h(V.X) <= x(V.X)[4, 4]], 12)(R.a)
    shown = Program([stack])._repr_html_()
    assert "×12" in shown
    assert shown.count("border:") == 1
    assert Reader(shown).text.count("{4,4}") == 1


def test_what_has_no_text_is_shown_by_name() -> None:
    program = Program([(R.h(V.X) <= (R.a(V.X), R.special.fn(divmod)(V.X, V.Y))) | [F.call(abs)]])
    assert "call(⟨abs⟩)" in Reader(program._repr_html_()).text
    assert "@fn(⟨divmod⟩)(X, Y)" in Reader(program._repr_html_()).text


def test_nothing_is_loaded_from_elsewhere() -> None:
    shown = Program([R.h(V.X) <= R.a(V.X)])._repr_html_()
    assert not re.search(r"https?:|<script|<link|url\(", shown)
