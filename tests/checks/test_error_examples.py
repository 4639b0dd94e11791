"""Every kind of error shows itself: its example raises it, what it says instead does not."""

import inspect

import pytest
from error_pages import ROOT, errors

from edgewise.errors import EdgewiseError
from edgewise.physical.tracing import own_errors

KINDS = [kind for kind in errors.every() if errors.runs_here(kind)]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_the_example_says_exactly_its_code(kind, assert_golden):
    assert {found.code for found in errors.diagnostics(kind.example)} == {kind.code}
    assert_golden(f"errors/{kind.code}.txt", f"{kind.example}\n\n{errors.message(kind.example)}")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_what_to_write_instead_is_quiet(kind):
    assert errors.diagnostics(kind.instead) == ()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.code)
def test_a_message_has_a_place_and_a_next_step(kind):
    for found in errors.diagnostics(kind.example):
        assert found.help
        assert "^" in str(found)
        assert inspect.getdoc(kind)
        assert issubclass(kind, EdgewiseError | Warning)


def test_codes_are_unique():
    assert len({kind.code for kind in KINDS}) == len(KINDS)


def test_no_golden_file_is_left_behind():
    files = {path.stem for path in (ROOT / "tests" / "golden" / "errors").glob("*.txt")}
    assert files <= {kind.code for kind in errors.every()}


def test_pages_are_written(tmp_path):
    with pytest.raises(AssertionError), own_errors():  # as a trace of an earlier test raises it
        errors.run("Program([R.h(V.X) <= R.a(V.Y)]).compile(R.h)")
    errors.write(tmp_path)
    assert len(list(tmp_path.glob("*.md"))) == len(errors.every()) + 1
    assert "unbound-variable" in (tmp_path / "index.md").read_text()


def test_errors_that_others_define_have_no_page():
    class Elsewhere(EdgewiseError):
        code = "elsewhere"

    assert Elsewhere not in errors.every()
