"""The pieces that rules are made of: operators, what equals what, and traps."""

from collections.abc import Callable

import pytest

from edgewise import C, EdgewiseError, F, Program, R, V, W, repeat, scope
from edgewise.language import nodes


def test_operators_build_the_same_nodes_as_functions() -> None:
    assert R.a + R.b == F.sum(R.a, R.b) == R.a & R.b
    assert R.a * R.b == F.elproduct(R.a, R.b)
    assert R.a @ R.b == F.product(R.a, R.b)
    assert F.transp(R.a) == R.a.T
    assert -R.a == F.reverse(R.a)
    assert 2 + R.a == F.sum(2.0, R.a)


def test_functions_come_before_the_weight() -> None:
    assert R.a.T[2.0] == R.a[2.0].T
    assert F.exp(R.a[2.0]) == F.exp(R.a)[2.0]
    assert (-R.a[2.0]).weight == R.a[2.0].weight


def test_where_it_was_written_does_not_count() -> None:
    assert R.a(V.X)[2, 3] == R.a(V.X)[2, 3]
    assert hash(R.a(V.X)[2, 3]) == hash(R.a(V.X)[2, 3])
    assert {R.a(V.X): 1}[R.a(V.X)] == 1


def test_hidden_has_two_spellings_and_constants_one() -> None:
    assert R._edge(V.X) == R.hidden.edge(V.X)
    assert R.a(C.b) == R.a("b")
    assert R.a(1) != R.a("1")


def test_arguments_are_put_in_order() -> None:
    assert F.slice(cols=(0, 1), rows=(0, 2)) == F.slice(rows=(0, 2))(cols=(0, 1))
    assert F.leaky_relu(0.01) == F.leaky_relu
    assert F.softmax_agg(agg_terms=[V.J]) == F.softmax_agg(agg_terms=["J"])


def test_weights_without_a_name() -> None:
    assert W[64, 32] == nodes.Weight(shape=(64, 32))
    assert W[0.5] == nodes.Weight(value=0.5)
    assert W["a.w"] == nodes.Weight(name="a.w")
    assert W["w":2, 3] == W.w[2, 3]


def test_negation_twice_is_none() -> None:
    assert ~~R.a(V.X) == R.a(V.X)


def test_a_scope_prefixes_what_is_defined() -> None:
    rule = R.h(V.X) <= (R.x(V.X)["w":2, 2], R.g(V.X))
    fact = R.g(1)
    found = scope("s")([rule, fact])
    assert found[0] == (R["s.h"](V.X) <= (R.x(V.X)["s.w":2, 2], R["s.g"](V.X)))


def test_a_stack_is_written_out() -> None:
    program = Program([repeat(lambda x: [R.h(V.X) <= x(V.X)["w":2, 2]], 2)(R.a)])
    assert program.rules == (
        R["layer.0.h"](V.X) <= R.a(V.X)["layer.0.w":2, 2],
        R["layer.1.h"](V.X) <= R["layer.0.h"](V.X)["layer.1.w":2, 2],
    )


TRAPS: list[tuple[str, Callable[[], object]]] = [
    ("missing-parentheses", lambda: R.h(V.X) <= R.a(V.X) | [F.relu]),
    ("missing-parentheses", lambda: Program([R.h(V.X) <= R.a(V.X), R.b(V.X)])),
    ("chained-rule", lambda: R.h <= R.a <= R.b),
    ("no-truth-value", lambda: R.h(V.X) <= (R.a(V.X) and R.b(V.X))),
    ("bad-operator", lambda: R.a**2),
    ("bad-operator", lambda: R.a / R.b),
    ("bad-operator", lambda: ~(R.a + R.b)),
    ("bad-head", lambda: ~R.h(V.X) <= R.a(V.X)),
    ("bad-body", lambda: R.h(V.X) <= "a(X)"),
    ("condition-in-expression", lambda: R.a(V.X) + R._b(V.X)),
    ("condition-in-expression", lambda: R.h(V.X) <= R._b(V.X)[2.0]),
    ("bad-term", lambda: R.a(0.5)),
    ("bad-term", lambda: R.a(True)),
    ("terms-twice", lambda: R.a(V.X)(V.Y)),
    ("bad-weight", lambda: R.a[1.5, 2.5]),
    ("bad-weight", lambda: R.a[float("nan")]),
    ("bad-weight", lambda: R.a[[[1, 2], [3]]]),
    ("bad-weight", lambda: R.a.fixed()),
    ("bad-weight", lambda: W.w[[1.0, 2.0]].filled(1.0)),
    ("two-weights", lambda: R.a[2.0][3.0]),
    ("unknown-function", lambda: F.rellu),
    ("unknown-special", lambda: R.special.less),
    ("bad-function", lambda: F.leaky_relu(0.1, 0.2)),
    ("bad-function", lambda: (R.h <= R.a) | [F.dropout]),
    ("bad-statement", lambda: Program(["h(X) :- a(X)."])),
    ("bad-block", lambda: repeat(lambda x: [R.h(V.I) <= x(V.I)], 2)(R.x, R.y)),
    ("bad-default", lambda: Program([], aggregation=F.avg)),
]


@pytest.mark.parametrize(("code", "trap"), TRAPS)
def test_traps_have_errors_of_their_own(code: str, trap: Callable[[], object]) -> None:
    with pytest.raises(EdgewiseError) as caught:
        trap()
    assert caught.value.code == code
    assert caught.value.help
    assert caught.value.span.file == __file__


def nested(item: object, kind: type = list) -> object:
    for _ in range(3000):
        item = kind([item])
    return item


@pytest.mark.parametrize(
    ("code", "write"),
    [
        ("bad-body", lambda: R.h(V.I) <= nested(R.x(V.I), tuple)),
        ("bad-weight", lambda: R.x(V.I)[nested(1.0)]),
        ("bad-term", lambda: R.x(nested(1))),
        ("bad-term", lambda: Program([], domains={V.I: nested(1)})),
        ("bad-function", lambda: (R.h(V.I) <= R.x(V.I)) | nested(F.relu)),
        ("bad-function", lambda: F.leaky_relu(nested(0.2))),
        ("bad-block", lambda: repeat(nested(1), 2)),
        ("bad-statement", lambda: Program(nested(R.h(V.I) <= R.x(V.I)))),
        ("bad-body", lambda: R.h(V.I) <= R.x(V.I) + nested(1)),
    ],
)
def test_what_is_nested_too_deep_to_be_written_is_an_error_of_ours(
    code: str, write: Callable[[], object]
) -> None:
    with pytest.raises(EdgewiseError) as caught:
        write()
    assert caught.value.code == code
    assert len(str(caught.value)) < 1000
