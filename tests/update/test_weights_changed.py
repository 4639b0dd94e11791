"""What is kept holds for the weights it was computed with."""

from collections.abc import Callable

import pytest
import torch

from edgewise import F, Program, R, V
from edgewise.module import Model
from edgewise.physical.weights import WeightsChanged

CHANGES = {
    "a step": lambda model: torch.nn.init.constant_(model.w, 3.0),
    "a precision": lambda model: model.double(),
    "a state": lambda model: model.load_state_dict(model.state_dict()),
    "another": lambda model: setattr(model, "w", torch.nn.Parameter(torch.tensor(5.0))),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_updating(change: Callable[[Model], object]) -> None:
    model = Program([R.h(V.I) <= R.x(V.I)["w":1.0]]).compile(R.h)
    updating = model.updating(facts=[R.x(0)[1.0]])
    updating.add([R.x(1)[1.0]])
    change(model)
    with pytest.raises(WeightsChanged, match="the weights changed"):
        updating.add([R.x(2)[1.0]])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_growing(change: Callable[[Model], object]) -> None:
    softmax = F.softmax_agg(agg_terms=[V.J])
    rules = [
        R.k(V.I) <= R.x(V.I)["w":1.0],
        (R.a(V.I, V.J) <= (R.k(V.J).T, R.x(V.I), R.special.leq(V.J, V.I))) | [F.product, softmax],
        (R.h(V.I) <= (R.a(V.I, V.J), R.x(V.J))) | [F.product],
    ]
    model = Program(rules).compile(R.h)
    growing = model.growing(8)
    x = torch.randn(4, 3)
    growing(x=x[:2])
    growing(x=x[2:3])
    change(model)
    with pytest.raises(WeightsChanged, match="the weights changed"):
        growing(x=x[3:])
    growing.crop(0)
    x = x.to(model._one.dtype)
    growing(x=x[:2])
    whole = model(x=x)
    torch.testing.assert_close(growing(x=x[2:]), whole[2:])
