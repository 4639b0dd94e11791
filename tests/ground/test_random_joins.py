"""Random bodies of conditions: compiled, they have the rows that the reference evaluator finds."""

from contextlib import ExitStack
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgewise import Program, R, V
from edgewise.language import nodes

pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

A, B, S, T, U, W = V.A, V.B, V.S, V.T, V.U, V.W
ARITIES = {"s": 1, "t": 1, "e": 2, "f": 2, "k": 3}
BODIES = [
    (R._s(S), R._t(T)),
    (R._e(A, S), R._f(B, T)),
    (R._k(A, W, S), R._k(B, W, T)),
    (R._s(S), R._t(T), R._s(U)),
    (R._e(S, T), R._e(T, U)),
    (R._e(S, T), R._e(T, U), R._e(U, S)),
    (R._e(S, T), R._e(T, U), R._e(U, W), R._e(W, S)),
    (R._e(S, T), R._f(T, U), R._e(W, U), R._f(S, W)),
    (R._e(S, T), R._e(T, U), R._e(U, W), R._e(W, A), R._e(A, S)),
    (R._e(S, T), R._e(S, U), R._e(S, W), R._e(T, U), R._e(T, W), R._e(U, W)),
    (R._e(S, T), R._e(T, U), R._e(S, W), R._f(W, U), R._s(A), R._e(A, B), R._f(B, A)),
    (R._s(S), R._e(S, T), R._e(T, U), R._t(U), R._f(S, W), R._f(W, A)),
    (R._s(S), R._t(T), ~R.e(S, T)),
    (R._e(S, S), R._k(T, T, U)),
    (R._e(S, 2), R._k(1, T, U)),
]
LARGE = {  # so that small data takes the paths of large data
    "edgewise.ground.joins.joiner.CHUNK": 3,
    "edgewise.ground.joins.joiner.LONG": 0,
    "edgewise.ground.joins.halves.CHUNK": 3,
    "edgewise.ground.joins.halves.LEAST_HALVED": 0,
    "edgewise.ground.joins.halves.GAIN": 0,
    "edgewise.ground.index.WIDEST": 64,
    "edgewise.ground.joins.join.WIDEST": 64,
    "edgewise.ground.joins.groups.LEAST_FILTERED": 1,
    "edgewise.ground.joins.reduce.WIDEST": 64,
    "edgewise.ground.joins.reduce.LEAST_REDUCED": 1,
    "edgewise.ground.joins.reduce.SMALLER": 1,
    "edgewise.ground.index.MANY": 1,
}


@st.composite
def conditions(draw, names):
    """A comparison of some variables, or an atom with some."""
    x, y, z = (V[draw(st.sampled_from(names))] for _ in range(3))
    k, kind = draw(st.integers(-3, 4)), draw(st.integers(0, 9))
    if kind == 0:
        return ~R.e(x, y)
    if kind == 1:
        return R._f(x, y)
    left = draw(st.sampled_from([x - y, abs(x - y), x + k - y, x - y - z, 2 * x - y, y - 2 * z, x]))
    right = draw(st.sampled_from([k, z, z + k, y - k, abs(y - x)]))
    compared = draw(st.sampled_from([left <= right, left < right, left >= right, left > right]))
    if kind == 2 and not isinstance(left, nodes.Variable):
        return left == right
    return ~compared if kind == 3 else compared


@st.composite
def rules(draw):
    body = draw(st.sampled_from(BODIES))
    names = sorted({t.name for a in body for t in a.terms if isinstance(t, nodes.Variable)})
    body += tuple(draw(st.lists(conditions(names), max_size=3)))
    shown = draw(st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=4))
    body = tuple(draw(st.permutations(body)))
    return R.out(*(V[name] for name in shown)) <= body


@st.composite
def facts(draw):
    key = draw(
        st.sampled_from([st.integers(0, 2), st.integers(-2, 5), st.sampled_from([0, 1, "a"])])
    )
    found = []
    for name, arity in ARITIES.items():
        rows = st.lists(st.tuples(*[key] * arity), max_size=12, unique=True)
        found += [R[name](*row) for row in draw(rows)]
    return found


@settings(max_examples=120, deadline=None, derandomize=True)
@given(rules(), facts(), st.booleans())
def test_rows_are_those_of_the_reference(rule, facts, as_if_large):
    read = {literal.relation for literal in rule.body if isinstance(literal, nodes.Atom)}
    used = [fact for fact in facts if fact.relation in read]
    program = Program([rule])
    expected = {str(atom) for atom in program.solve(used)[rule.head]}
    with ExitStack() as stack:
        for name, value in LARGE.items() if as_if_large else ():
            stack.enter_context(mock.patch(name, value))
        model = program.compile(R.out)
        found = [str(atom) for atom, _ in model.rows(model.ground(facts=used)).items()]
    assert set(found) == expected
    assert len(found) == len(expected)
