"""Errors of kernels inside of generated code have a place in the user's own."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, numbers
from edgewise.physical.passes import gathers


def test_an_error_of_a_node_is_at_its_rule():
    rule = R.h(V.I) <= F.lookup(W.e[5, 3], R.t(V.I))
    model = Program([rule]).compile(R.h)
    with pytest.raises(EdgewiseError, match="row 7 of a table of 5") as caught:
        model(t=numbers(torch.tensor([1, 7])))
    assert caught.value.code == "no-such-row"
    assert caught.value.span.file == __file__
    assert "R.h(V.I) <= F.lookup" in str(caught.value)


def test_an_error_of_a_call_is_at_the_call(monkeypatch):
    monkeypatch.setattr(gathers, "SMALL_ROWS", 0)
    model = Program([R.o(V.X) <= (R.x(V.Y), R._edge(V.Y, V.X))]).compile(R.o)
    data = model.ground(edge=torch.tensor([[0, 1, 0], [1, 2, 2]]))
    x = torch.randn(3, 4)
    with pytest.raises(EdgewiseError) as caught:
        torch.func.jvp(lambda x: model(data, x=x).data, (x,), (x,))
    assert caught.value.code == "no-transform"
    assert "model(data, x=x)" in str(caught.value)
