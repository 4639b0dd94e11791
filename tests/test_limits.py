"""What the page of limits says: each limit raises the error that it names, or holds as it says."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, rows
from edgewise.graphs import window

COPY = Program([R.h(V.X) <= R.a(V.X)])
TWO = Program([R.h(V.X) <= R.a(V.X), R.g(V.X) <= R.h(V.X)])
CHOSEN = Program([R.h(V.X) <= (R.a(V.X), R.a(V.X) > 0.5)])
BY_VALUES = CHOSEN.compile(R.h)
PAIRS = Program([R.h(V.X, V.Y) <= (R.a(V.X), R.a(V.Y))])
SUM = Program([R.h(V.X) <= (R.a(V.Y), R._edge(V.X, V.Y))])


def attention(*conditions):
    score = R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), *conditions)
    return Program([
        score | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.out(V.I) <= (R.w(V.I, V.J), R.x(V.J))) | [F.product],
    ])  # fmt: skip


MASKED = attention(R._kind(V.I, V.K), R._kind(V.J, V.K), V.J <= V.I)
KINDS = torch.tensor([[0, 1, 2], [0, 0, 1]])
CALL = Program([(R.h(V.X) <= R.a(V.X)) | [F.call(torch.nn.Tanh())]])
MANY = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T

LIMITS = {
    "shapes": (
        "shape-mismatch",
        lambda: COPY.compile(R.h).ground(facts=[R.a(0)[1.0], R.a(1)[[1.0, 2.0]]]),
    ),
    "large keys": (
        "key-out-of-range",
        lambda: COPY.compile(R.h)(a=rows(torch.tensor([[1 << 40]]), torch.ones(1))),
    ),
    "negative keys": (
        "key-out-of-range",
        lambda: COPY.compile(R.h)(a=rows(torch.tensor([[-1]]), torch.ones(1))),
    ),
    "bytes": (
        "plan-too-large",
        lambda: PAIRS.compile(R.h, limit=100).ground(facts=[R.a(i)[1.0] for i in range(4)]),
    ),
    "precision": ("dtype-mismatch", lambda: COPY.compile(R.h)(a=torch.ones(3).double())),
    "total": (
        "not-total",
        lambda: SUM.compile(R.h, dense=True)(a=torch.ones(3), edge=torch.tensor([[1], [0]])),
    ),
    "foreign": (
        "foreign-data",
        lambda: COPY.compile(R.h)(COPY.compile(R.h).ground(a=torch.ones(2))),
    ),
    "saved": ("not-savable", lambda: CALL.compile(R.h).save("never.edgewise")),
    "updating several": (
        "cannot-update",
        lambda: TWO.compile([R.h, R.g]).updating(facts=[R.a(0)[1.0]]),
    ),
    "growing several": ("cannot-grow", lambda: TWO.compile([R.h, R.g]).growing(4)),
    "growing a mask": (
        "cannot-grow",
        lambda: MASKED.compile(R.out).growing(4)(x=torch.ones(3, 2), kind=KINDS),
    ),
    "samples by values": (
        "decided-by-values",
        lambda: BY_VALUES.samples(BY_VALUES.ground(facts=[R.a(0)[1.0]])),
    ),
    "growing by values": ("cannot-grow", lambda: BY_VALUES.growing(4)(a=torch.ones(3))),
    "forward mode": (
        "no-transform",
        lambda: torch.func.jvp(
            lambda a: SUM.compile(R.h, dense=True)(a=a, edge=MANY),
            (torch.ones(40, 4),),
            (torch.ones(40, 4),),
        ),
    ),
}


@pytest.mark.parametrize("name", LIMITS)
def test_limit(name):
    code, attempt = LIMITS[name]
    with pytest.raises(EdgewiseError) as raised:
        attempt()
    assert raised.value.code == code


def test_the_reference_has_none_of_the_first_three():
    solution = COPY.solve([R.a(0)[1.0], R.a(1)[[1.0, 2.0]], R.a(-1)[2.0], R.a(1 << 50)[3.0]])
    assert len(solution[R.h(V.X)]) == 4


def test_strings_are_keys():
    model = COPY.compile(R.h)
    for given in (rows(["a", "b"], torch.ones(2)), {"a": 1.0, "b": 1.0}):
        assert [atom.terms for atom, _ in model(a=given).items()] == [("a",), ("b",)]


def test_several_outputs():
    assert set(TWO.compile([R.h, R.g])(a=torch.ones(2))) == {"h", "g"}


def test_transforms_of_sparse_attention():
    model, x = attention(window(1)(V.I, V.J)).compile(R.out), torch.randn(5, 2)
    assert torch.func.jacrev(lambda x: model(x=x))(x).shape == (5, 2, 5, 2)
    assert torch.func.jvp(lambda x: model(x=x), (x,), (x,))[1].shape == (5, 2)
