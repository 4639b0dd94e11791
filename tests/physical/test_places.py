"""Errors of kernels inside of generated code have a place in the user's own."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, numbers
from edgewise.graphs import window


def test_an_error_of_a_node_is_at_its_rule():
    rule = R.h(V.I) <= F.lookup(W.e[5, 3], R.t(V.I))
    model = Program([rule]).compile(R.h)
    with pytest.raises(EdgewiseError, match="row 7 of a table of 5") as caught:
        model(t=numbers(torch.tensor([1, 7])))
    assert caught.value.code == "no-such-row"
    assert caught.value.span.file == __file__
    assert "R.h(V.I) <= F.lookup" in str(caught.value)


def test_an_error_of_a_call_is_at_the_call():
    scores = R.x(V.J).T, R.x(V.I), window(1)(V.I, V.J)
    model = Program(
        [
            (R.w(V.I, V.J) <= scores) | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.o(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
        ]
    ).compile(R.o)
    with pytest.raises(EdgewiseError) as caught:
        torch.func.grad(lambda x: model(x=x).sum())(torch.randn(9, 4))
    assert caught.value.code == "no-transform"
    assert "model(x=x)" in str(caught.value)
