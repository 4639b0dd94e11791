"""Random scores of attention: fused or not, the numbers and gradients of the rules one by one."""

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, event, given, settings

from edgewise import F, Program, R, V, W, rows
from edgewise.graphs import causal, strided, window
from edgewise.language import nodes

H, I, J = V.H, V.I, V.J  # noqa: E741
DOT = R.k(H, J).T @ R.q(H, I)
FAR = R.special.sub_eval(I, J)
FACTORS = [R.e(I, J), R.d(H, I, J), R.a(I), R.b(J), W.s[0.7], W.t(H)[0.3], F.exp(-0.2 * F.abs(FAR))]
TABLE, BY = W.table(V.B, H)[1,], R.special.bucket(I, J, 4, 3, V.B)
TERMS = [
    R.a(I),
    R.b(J),
    R.e(I, J),
    R.d(H, I, J),
    W.c(H)[0.4],
    FAR[0.1],
    W.t(H)[0.3] * F.abs(FAR),
    F.tanh(R.a(I) + R.b(J)),
]
BENDS = [lambda s: s, F.tanh, lambda s: 2.0 * F.sigmoid(0.5 * s), F.relu, lambda s: s + 0.5 * s]
WHERE = [(), (causal()(I, J),), (window(1)(I, J),), (strided(2)(I, J),), (R._x(I), R._x(J))]


@st.composite
def scores(draw):
    """The body of a score rule, and how many rows there are."""
    dot = DOT
    for factor in draw(st.lists(st.sampled_from(FACTORS), max_size=2)):
        dot = dot * factor if draw(st.booleans()) else factor * dot
    tables = draw(st.sampled_from(["none", "added", "inside", "times"]))
    dot = TABLE * dot if tables == "times" else dot
    dot = dot + TABLE if tables == "inside" else dot
    bent = draw(st.sampled_from(BENDS))(dot)
    more = draw(st.lists(st.sampled_from(TERMS), max_size=3, unique_by=repr))
    more += [TABLE] if tables == "added" else []
    where = draw(st.sampled_from(WHERE)) + (() if tables == "none" else (BY,))
    return (bent, *more, *where), draw(st.integers(1, 5)), draw(st.booleans())


def computed(program, data, x, **options):
    model = program.compile(R.out, seed=0, dtype=torch.float64, fill=0.0, **options).eval()
    given = {n: t for n, t in data.items() if n in model.inputs}
    values = {n: (t.values if isinstance(t, rows) else t) for n, t in given.items()}
    leaves = {n: v.clone().requires_grad_() for n, v in values.items()}
    held = {n: rows(t.keys, leaves[n]) for n, t in given.items() if isinstance(t, rows)}
    x = x.clone().requires_grad_()
    dense = {n: v for n, v in leaves.items() if n not in held}
    out = model(model.ground(**held), x=x, **dense) if held else model(x=x, **dense)
    weight = torch.linspace(0.5, 1.5, out.numel(), dtype=out.dtype).view(out.shape)
    found = [x, *leaves.values(), *model.parameters()]
    grads = torch.autograd.grad((out * weight).sum(), found, materialize_grads=True)
    return model, [out, *grads]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(scores())
def test_it_is_the_same_with_and_without_fusing(drawn):
    body, n, sparse = drawn
    numbers = torch.Generator().manual_seed(n)
    x, a, b = (torch.randn(*s, generator=numbers).double() for s in ((n, 3), (n,), (n,)))
    e, d = (torch.randn(*s, generator=numbers).double() for s in ((n, n), (2, n, n)))
    data = {"a": a, "b": b, "e": e, "d": d}
    if sparse:  # only some pairs are listed
        keys = window(2).edges(n)[:, ::2]
        data["e"] = rows(keys, e[keys[0], keys[1]])
    program = Program(
        [
            *(R[name](H, I) <= R.x(I)[W[name](H)[2, 3]] for name in "qkv"),
            (R.w(H, I, J) <= body) | [F.softmax_agg(agg_terms=[J])],
            (R.out(H, I) <= (R.w(H, I, J), R.v(H, J))) | [F.product],
        ],
        domains={H: 2, V.B: 4},
    )
    model, ours = computed(program, data, x)
    event("fused" if any(not isinstance(s, nodes.Rule) for s in model.plan.steps) else "listed")
    _, theirs = computed(program, data, x, without=["fuse attention", "inline places"])
    for mine, right in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, right, atol=1e-10, rtol=1e-8)


def test_nothing_is_no_mistake():
    program = Program(
        [
            (R.w(I, J) <= (R.x(J).T @ R.x(I), W.table(V.B)[1,], BY)) | [F.softmax_agg([J])],
            (R.out(I) <= (R.w(I, J), R.x(J))) | [F.product],
        ],
        domains={V.B: 4},
    )
    model = program.compile(R.out)
    assert model(x=torch.zeros(0, 3)).shape[0] == 0
    assert model(x=torch.ones(1, 3)).tolist() == [[1.0, 1.0, 1.0]]


def test_factors_that_are_no_numbers_are_not_fused():
    """A row times a dot product is a row: a score for each feature."""
    program = Program(
        [
            R.r(I) <= R.y(I).T,
            (R.w(I, J) <= R.r(I) * (R.x(J).T @ R.x(I))) | [F.softmax_agg([J])],
            (R.out(I) <= (R.w(I, J), R.x(J))) | [F.product],
        ]
    )
    model = program.compile(R.out, dtype=torch.float64)
    x, y = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    found = model.explain(stage="kernels", json=True, y=y, x=x)["kernels"]["relations"]
    reason = next(s for s in found if s["relation"] == "out")["not attention"]
    assert reason == "`R.r(V.I)` is not a scalar"
    scores = (y[:, None] * (x @ x.T)[..., None]).softmax(1)
    torch.testing.assert_close(model(y=y, x=x), (scores * x).sum((1, 2)))
