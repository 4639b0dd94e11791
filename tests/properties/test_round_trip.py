"""A program is the same program as text and as Python code."""

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from edgewise import C, EdgewiseError, F, Program, R, V, W, graphs, repeat
from tests.properties.programs import programs

NAMES = {name: value for name, value in vars(graphs).items() if not name.startswith("_")} | {
    "C": C,
    "F": F,
    "Program": Program,
    "R": R,
    "V": V,
    "W": W,
    "repeat": repeat,
}
MANY = settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def mistakes(text: str) -> tuple[EdgewiseError, ...]:
    try:
        Program.parse(text)
    except EdgewiseError as error:
        return error.errors
    return ()


@MANY
@given(programs())
def test_text_is_read_back(program: Program) -> None:
    text = program.text()
    assert Program.parse(text) == program, text
    assert Program.parse(text).text() == text


@MANY
@given(programs())
def test_repr_is_code(program: Program) -> None:
    assert eval(repr(program), dict(NAMES)) == program


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_every_program_has_html(program: Program) -> None:
    shown = program._repr_html_()
    assert shown.count("<div") == shown.count("</div>")
    assert shown.count("<span") == shown.count("</span>")


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), st.randoms(use_true_random=False))
def test_broken_text_gives_an_error_of_ours(program: Program, chance: random.Random) -> None:
    """Delete, double or swap a few pieces: it parses, or says what is wrong and where."""
    letters = list(program.text())
    for _ in range(3):
        at = chance.randrange(len(letters) + 1)
        letters[at : at + chance.randrange(3)] = chance.choice(["", "(", "]", ".", "x", '"', " "])
    assert all(error.code and error.span and error.help for error in mistakes("".join(letters)))


@settings(max_examples=300)
@given(st.text(alphabet="hXa1.,()[]{}<>=$~!@*+&|/:?^-\"'% \n", max_size=40))
@example("[H=8][H=9]")
@example("h :- @(")
def test_any_text_gives_a_program_or_an_error_of_ours(text: str) -> None:
    assert all(error.code and error.span and error.help for error in mistakes(text))


@pytest.mark.parametrize("text", ["(" * 50_000, "h :- " + "(" * 50_000, "h :- " + "-" * 50_000])
def test_deep_nesting_is_refused(text: str) -> None:
    with pytest.raises(EdgewiseError):
        Program.parse(text)
