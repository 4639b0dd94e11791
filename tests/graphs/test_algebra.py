"""The algebra, against boolean matrices."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import anywhere, expressions, leaves

from edgewise.graphs import (
    Pattern,
    algebra,
    causal,
    full,
    parse,
    per_head,
    per_sample,
    strided,
    window,
)
from edgewise.graphs.errors import NotAPattern
from edgewise.language.nodes import PatternAtom, Variable
from edgewise.layouts import by_residue, common_step, residue_order


def meaning(p: Pattern, n: int, m: int) -> np.ndarray:
    """The matrix of an expression, from the matrices of its leaves."""
    match p:
        case algebra.union():
            return np.logical_or.reduce([meaning(one, n, m) for one in p.members])
        case algebra.intersection():
            return np.logical_and.reduce([meaning(one, n, m) for one in p.members])
        case algebra.difference():
            return meaning(p.left, n, m) & ~meaning(p.right, n, m)
        case algebra.complement():
            return ~meaning(p.pattern, n, m)
        case algebra.transpose():
            return meaning(p.pattern, m, n).T
        case algebra.composition():
            first, second = meaning(p.first, n, m), meaning(p.second, m, m)
            return first.astype(int) @ second.astype(int) > 0
        case algebra.powered():
            first, second = meaning(p.pattern, n, m), meaning(p.pattern, m, m)
            for _ in range(p.hops - 1):
                first = first.astype(int) @ second.astype(int) > 0
            return first
        case algebra.shifted():
            inner = meaning(p.pattern, max(n - p.by, 0), max(m - p.keys, 0))
            out = np.zeros((n, m), bool)
            for i, j in np.argwhere(inner):
                if i + p.by >= 0 and j + p.keys >= 0:
                    out[i + p.by, j + p.keys] = True
            return out
        case algebra.restricted():
            out = np.zeros((n, m), bool)
            box = slice(*p.queries), slice(*p.keys)
            out[box] = meaning(p.pattern, n, m)[box]
            return out
    i, j = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
    return p.contains(i, j, n, m).numpy()


@given(anywhere(expressions, most=20))
@settings(deadline=None, max_examples=250)
def test_an_expression_means_its_matrix(case: tuple[Pattern, int, int]) -> None:
    p, n, m = case
    wanted = torch.from_numpy(meaning(p, n, m))
    assert torch.equal(p.dense(n, m), wanted)
    assert p.count(n, m) == int(wanted.sum())
    i, j = torch.meshgrid(torch.arange(n), torch.arange(m), indexing="ij")
    assert torch.equal(p.contains(i, j, n, m), wanted)


@given(expressions)
@settings(deadline=None, max_examples=150)
def test_an_expression_reads_back(p: Pattern) -> None:
    assert parse(repr(p)) == p


@given(leaves, leaves, leaves, st.integers(0, 40))
@settings(deadline=None, max_examples=60)
def test_laws(a: Pattern, b: Pattern, c: Pattern, n: int) -> None:
    pairs = [
        (a | b, b | a),
        (a & (b | c), (a & b) | (a & c)),
        (~(a | b), ~a & ~b),
        (a - b, a & ~b),
        ((a | b).T, a.T | b.T),
        (a.compose(b).T, b.T.compose(a.T)),
        (a.compose(b | c), a.compose(b) | a.compose(c)),
        (a.power(3), a.compose(a).compose(a)),
    ]
    for left, right in pairs:
        assert torch.equal(left.dense(n), right.dense(n))
    assert ~~a == a
    assert a == a.T.T


@given(st.integers(1, 9), st.integers(1, 40))
@settings(deadline=None, max_examples=30)
def test_by_residue_a_strided_pattern_is_dense_blocks(step: int, n: int) -> None:
    graph = (strided(step) & causal()).rows(n)
    assert n <= step or common_step(graph) == step
    order, rows = residue_order(n, step), by_residue(graph, step)
    assert torch.equal(rows.dense(), (strided(step) & causal()).dense(n)[order][:, order])
    assert (rows.step == 1).all()


def test_heads_combine_one_by_one() -> None:
    heads = per_head(window(1), causal())
    assert torch.equal((heads & causal()).dense(5)[0], (window(1) & causal()).dense(5))
    assert parse(str(heads)) == heads
    assert (heads | window(2))[1] == causal() | window(2)
    assert torch.equal((~heads.T).dense(5), ~heads.dense(5).mT)


def test_samples_combine_one_by_one_and_have_heads() -> None:
    heads = per_head(window(1), causal())
    samples = per_sample(window(2), heads)
    assert parse(str(samples)) == samples
    assert hash(parse(str(samples))) == hash(samples)
    assert per_sample(window(2)) != per_head(window(2))
    assert (samples & causal())[1] == heads & causal()
    assert (causal() - samples)[0] == causal() - window(2)
    assert (heads | samples) == per_sample(heads | window(2), heads | heads)
    assert (samples | heads)[0] == window(2) | heads
    dense = samples.dense(5)
    assert dense.shape == (2, 2, 5, 5)
    assert torch.equal(dense[0, 1], window(2).dense(5))
    assert torch.equal(dense[1], heads.dense(5))
    assert torch.equal((~samples.T).dense(5), ~dense.mT)
    assert samples.count(5) == window(2).count(5) + heads.count(5)
    assert per_sample(causal(), full()).dense(3).shape == (2, 3, 3)


def test_a_pattern_is_an_atom_of_a_rule() -> None:
    atom = window(3)(Variable("I"), Variable("J"))
    assert atom == PatternAtom(window(3), (Variable("I"), Variable("J")))


def test_cost_of_attention() -> None:
    assert causal().flops(4, d=8, heads=2) == 4 * 8 * 2 * 10
    assert causal().bytes(4, d=8, heads=2) == 4 * 4 * 8 * 2 * 2


def test_only_patterns_combine() -> None:
    with pytest.raises(NotAPattern):
        window(3) | 1
