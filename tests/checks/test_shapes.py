"""Shapes before data, and with data."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, repeat
from edgewise.checks.shapes import inferred

X = V.X


def shapes(relation, rules, facts=(), **options):
    program = Program(rules, **options)
    program.check(facts)
    return set(inferred(program, tuple(facts)).relations[relation])


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (R.h <= R.a, {(3,)}),
        (R.h <= R.a.T, {(1, 3)}),
        (R.h <= R.a[5, 3], {(5,)}),
        (R.h <= R.a[1, 3], {()}),
        (R.h[4, 5] <= R.a[5, 3], {(4,)}),
        (R.h <= R.a.T @ R.a, {()}),
        (R.h <= R.a @ R.a.T, {(3, 3)}),
        (R.h <= R.m @ R.a, {(2,)}),
        (R.h <= R.m.T, {(3, 2)}),
        (R.h <= R.s * R.m + 1.0, {(2, 3)}),
        ((R.h <= (R.m, R.a)) | [F.concat], {(9,)}),
        ((R.h <= (R.m, R.m)) | [F.concat(axis=0)], {(4, 3)}),
        ((R.h <= (R.a, R.m)) | [F.crossum], {(18,)}),
        ((R.h <= (R.a, R.a)) | [F.cossim], {()}),
        ((R.h <= (R.s, R.s)) | [F.softmax_comb], {(2,)}),
        ((R.h <= (R.a, R.m)) | [F.count], {()}),
        ((R.h <= R.m) | [F.slice(rows=(0, 1))], {(1, 3)}),
        ((R.h <= R.m) | [F.slice(cols=(1, 2))], {(2,)}),
        ((R.h <= R.m) | [F.reshape((3, 2))], {(3, 2)}),
        ((R.h <= R.m) | [F.reshape(6), F.norm, F.relu], {(6,)}),
        ((R.h <= R.a) | [F.count_agg], {()}),
        ((R.h <= R.a) | [F.concat_agg], {(), (None,)}),
        ((R.h <= R.s) | [F.softmax_agg], {(), (None,)}),
        (R.h <= R._a, {()}),
        (R.h <= R.a + W.b[3,], {(3,)}),
    ],
    ids=lambda item: repr(sorted(item, key=str)) if isinstance(item, set) else repr(item),
)
def test_shapes_of_data_are_exact(rule, expected):
    facts = [R.a[[1.0, 2.0, 3.0]], R.m[torch.ones(2, 3)], R.s[0.5]]
    assert shapes("h", [rule], facts) == expected


def test_a_weight_leaves_two_possibilities_before_data():
    assert shapes("h", [R.h(X) <= R.a(X)[64, 32]]) == {(64,), (64, None)}


def test_recursion_over_time_settles():
    rules = [
        R.h(0) <= R.h0,
        (R.h(V.T) <= (R.x(V.T)[8, 4], R.h(V.S)[8, 8], R.special.next(V.S, V.T))) | [F.tanh],
    ]
    assert shapes("h", rules, [R.h0[[0.0] * 8], R.x(1)[[0.0] * 4]]) == {(8,)}


def test_a_vector_that_grows_around_a_loop_is_of_any_length():
    rules = [
        R.h(0) <= R.a,
        (R.h(V.T) <= (R.h(V.S), R.a, R.special.next(V.S, V.T))) | [F.concat],
    ]
    assert (None,) in shapes("h", rules, [R.a[[1.0, 2.0]]])


def test_facts_of_one_relation_may_differ():
    facts = [R.a(1)[[1.0, 2.0]], R.a(2)[[1.0, 2.0, 3.0]]]
    assert shapes("h", [R.h(X) <= R.a(X)], facts) == {(2,), (3,)}


def test_data_replaces_a_fact_of_another_shape():
    assert shapes("h", [R.a[2.0], R.h <= R.a[4, 3]], [R.a[[1.0, 2.0, 3.0]]]) == {(4,)}


def test_the_line_of_a_relation_counts():
    rules = [R.h(X) <= R.a(X)[3, 2], R.h / 1 | [F.concat, F.transp], R.g(X) <= R.h(X)]
    assert (1, None) in shapes("g", rules)


def test_a_product_of_rules_has_the_shapes_of_any_of_them():
    rules = [R.h <= R.m, R.h <= R.a, R.h / 0 | [F.product]]
    facts = [R.m[torch.ones(2, 3)], R.a[[1.0, 2.0, 3.0]]]
    assert shapes("h", rules, facts) == {(2, 3), (3,), (2,)}


def test_one_mistake_in_a_stack_is_reported_once():
    def block(x):
        return [R.a(V.I) <= x(V.I)[16, 8], R.out(V.I) <= R.a(V.I)[8, 8]]

    with pytest.raises(EdgewiseError, match=r"`layer\.0\.a` has 16 rows") as caught:
        Program([repeat(block, 12)(R.x)]).check()
    assert len(caught.value.errors) == 1
    assert "`[8, 16]`" in caught.value.help


def test_all_errors_come_together():
    rules = [R.h(X) <= R.a(X)[3, 2], R.g(X) <= R.h(X)[3, 2], R.f(X) <= R.h(X)[3, 5]]
    with pytest.raises(EdgewiseError) as caught:
        Program(rules).check()
    assert [error.code for error in caught.value.errors] == ["shape-mismatch"] * 2
    assert str(caught.value).endswith("2 errors")


def test_attention_of_two_widths_is_refused_before_data():
    rules = [
        R.q(V.I) <= R.x(V.I)[64, 32],
        R.k(V.I) <= R.x(V.I)[48, 32],
        (R.w(V.I, V.J) <= (R.k(V.J).T, R.q(V.I))) | [F.product, F.softmax_agg(agg_terms=[V.J])],
    ]
    with pytest.raises(EdgewiseError, match="`k` transposed"):
        Program(rules).check()


def test_called_modules_give_any_shape():
    rules = [(R.h(X) <= R.a(X)[3, 2]) | [F.call(torch.nn.Linear(3, 7))], R.g(X) <= R.h(X)[2, 7]]
    Program(rules).check()
