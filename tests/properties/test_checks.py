"""Checks refuse only what cannot be evaluated, and never fail in another way."""

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from edgewise import Program, R, V
from edgewise.errors import EdgewiseError, EdgewiseWarning
from tests.properties.evaluable import Case, evaluable
from tests.properties.programs import conditions, programs


def checked(program: Program, facts: object = ()) -> list[EdgewiseWarning] | None:
    """The warnings, or None if there is an error of ours; any other exception is a failure."""
    try:
        return program.check(facts)
    except EdgewiseError as error:
        found = error.errors
    assert all(str(one) and one.help for one in found)
    return None


@settings(max_examples=300)
@given(programs())
def test_any_program_is_checked(program: Program) -> None:
    for warning in checked(program) or ():
        assert isinstance(warning, EdgewiseWarning)
        assert str(warning)
        assert warning.help


@given(programs(), st.lists(conditions(), min_size=1, max_size=3))
def test_conditions_make_no_check_fail(program: Program, extra: list[object]) -> None:
    try:
        rules = [rule.head <= (*rule.body, *extra) for rule in program.rules]
    except EdgewiseError:
        reject()  # its blocks and choices cannot be expanded
    checked(Program([program, *rules], aggregation=program.aggregation))


@given(evaluable())
def test_what_evaluates_passes_before_and_with_data(case: Case) -> None:
    assert checked(case.program) is not None
    assert checked(case.program, case.facts) is not None


@given(evaluable())
def test_a_check_says_the_same_again(case: Case) -> None:
    first, second = (checked(case.program, case.facts) for _ in range(2))
    assert list(map(str, first)) == list(map(str, second))


@given(evaluable())
def test_an_unbound_head_variable_is_always_found(case: Case) -> None:
    wrong = Program([R.fresh(V.Nowhere) <= R.alone(1)], aggregation=case.program.aggregation)
    with pytest.raises(EdgewiseError, match="`Nowhere` is in the rule head `fresh`"):
        (case.program + wrong).check()
