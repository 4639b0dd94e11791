"""The published PyNeuraLogic rules, as printed, against a plain torch computation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from edgewise import F, Program, R, V, W

TOLERANCE = {"atol": 1e-10, "rtol": 1e-10}
pytestmark = pytest.mark.filterwarnings("ignore::edgewise.EdgewiseWarning")

sizes = {"n": st.integers(0, 8), "d": st.sampled_from([1, 2, 3, 5]), "seed": st.integers(0, 99)}


def projections(W_q, W_k, W_v, d):
    return [
        R.q(V.I) <= R.input(V.I)[W_q],
        R.k(V.I) <= R.input(V.I)[W_k],
        R.v(V.I) <= R.input(V.I)[W_v],
        R.d_k[1 / math.sqrt(d)],
    ]


full = [
    (R.weights(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
]
causal = [
    (R.weights(V.I, V.J) <= (R.d_k, R.k(V.J).T, R.q(V.I), R.special.leq(V.J, V.I)))
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
]
local = [
    (
        R.weights(V.I, V.J)
        <= (
            R.special.leq(V.D, 5),
            R.special.sub(V.I, V.J, V.D),
            R.d_k,
            R.k(V.J).T,
            R.q(V.I),
        )
    )
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
]
strided = [
    (
        R.weights(V.I, V.J)
        <= (
            R.special.mod(V.D, 3, 0),
            R.special.sub(V.I, V.J, V.D),
            R.d_k,
            R.k(V.J).T,
            R.q(V.I),
        )
    )
    | [F.product, F.softmax_agg(agg_terms=[V.J])],
]
attention = [(R.attention(V.I) <= (R.weights(V.I, V.J), R.v(V.J))) | [F.product]]

MASKS = {
    "full": (full, lambda i, j: i == i),
    "causal": (causal, lambda i, j: j <= i),
    "local": (local, lambda i, j: (i >= j) & (i - j <= 5)),
    "strided": (strided, lambda i, j: (i >= j) & ((i - j) % 3 == 0)),
}


def drawn(*shape: int, generator: torch.Generator) -> Tensor:
    return torch.randn(*shape, generator=generator, dtype=torch.float64, requires_grad=True)


def allowed(name: str, n: int) -> Tensor:
    i = torch.arange(n)
    return MASKS[name][1](i[:, None], i[None, :]).expand(n, n)


def torch_attention(q: Tensor, k: Tensor, v: Tensor, d_k: Tensor, mask: Tensor) -> Tensor:
    scores = (d_k * (q * k).sum(-1)).masked_fill(~mask, -math.inf)
    return (scores.softmax(1)[..., None] * v).sum(1)


def rows(solution, relation, width: int) -> Tensor:
    """The values of a relation as a matrix, one row per key."""
    found = list(solution[relation(V.I)].values())
    return torch.stack([x.reshape(width) for x in found]) if found else torch.zeros(0, width)


def assert_same_gradients(ours: Tensor, theirs: Tensor, pairs: list[tuple[Tensor, Tensor]]) -> None:
    """The gradients of one random functional of both results, by the paired leaves."""
    torch.testing.assert_close(ours, theirs.to(ours.dtype), **TOLERANCE)
    if not ours.numel():
        return
    direction = torch.randn_like(ours)
    left = torch.autograd.grad((ours * direction).sum(), [a for a, _ in pairs], allow_unused=True)
    right = torch.autograd.grad(
        (theirs * direction).sum(), [b for _, b in pairs], allow_unused=True
    )
    for a, b, (leaf, _) in zip(left, right, pairs, strict=True):
        a = torch.zeros_like(leaf) if a is None else a
        b = torch.zeros_like(leaf) if b is None else b
        torch.testing.assert_close(a, b.reshape(a.shape), **TOLERANCE)


@pytest.mark.parametrize("name", MASKS)
@given(**sizes)
@settings(deadline=None, max_examples=12)
def test_attention_is_what_its_author_says(name, n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x = drawn(n, d, generator=generator)
    matrices = [drawn(d, d, generator=generator) for _ in "qkv"]
    program = Program([*projections(*((d, d),) * 3, d), *MASKS[name][0], *attention])
    names = {key: m.detach().clone() for key, m in zip(("q", "k", "v"), matrices, strict=True)}
    given_weights = {f"{key}.input": m.requires_grad_() for key, m in names.items()}
    solution = program.solve([R.input(i)[x[i]] for i in range(n)], weights=given_weights)

    d_k = torch.tensor(1 / math.sqrt(d), dtype=torch.float64, requires_grad=True)
    q, k, v = (x @ m.T for m in matrices)
    mask = allowed(name, n)
    theirs = torch_attention(q[:, None], k[None], v[None], d_k, mask)
    assert solution.computed.get("weights", 0) == int(mask.sum())
    pairs = [(solution.weights[f"{key}.input"], m) for key, m in zip("qkv", matrices, strict=True)]
    pairs += [(solution.weights["d_k"], d_k), (x, x)]
    assert_same_gradients(rows(solution, R.attention, d), theirs, pairs)


@pytest.mark.parametrize(
    ("bracket", "name"),
    [
        (lambda m: tuple(m.shape), "q.input"),
        (lambda m: W.q[tuple(m.shape)], "q"),
        (lambda m: m.detach(), "q.input"),
        (lambda m: m.detach().numpy(), "q.input"),
        (lambda m: m, "q.input"),
        (lambda m: torch.nn.Parameter(m.detach()), "q.input"),
    ],
    ids=["shape", "weight", "tensor", "array", "leaf", "parameter"],
)
def test_a_bracket_takes_whatever_python_holds(bracket, name):
    n, d = 3, 2
    generator = torch.Generator().manual_seed(0)
    x, m = drawn(n, d, generator=generator), drawn(d, d, generator=generator)
    W_q = bracket(m)
    program = Program([*projections(W_q, (d, d), (d, d), d), *full, *attention])
    solution = program.solve([R.input(i)[x[i]] for i in range(n)], seed=1)
    used = solution.weights[name]
    rows(solution, R.attention, d).sum().backward()
    if isinstance(W_q, Tensor) and W_q.requires_grad:
        assert used is W_q
    torch.testing.assert_close(rows(solution, R.q, d), x @ used.T)
    assert used.grad is not None
    assert used.grad.abs().sum() > 0


def test_the_scale_is_learnable_unless_fixed():
    free = Program([*projections((2, 2), (2, 2), (2, 2), 2), *full, *attention])
    fixed = Program([s for s in free.statements if s not in free.facts] + [R.d_k[0.5].fixed()])
    facts = [R.input(i)[[0.5, i]] for i in range(3)]
    assert set(free.solve(facts).weights) - set(fixed.solve(facts).weights) == {"d_k"}


@given(edges=st.sets(st.tuples(st.integers(0, 4), st.integers(0, 4))), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_relational_attention_reads_queries_keys_and_values_off_edges(edges, seed):
    n, d, d_e = 5, 3, 2
    generator = torch.Generator().manual_seed(seed)
    x, e = drawn(n, d, generator=generator), drawn(n, n, d_e, generator=generator)
    W_qn, W_kn, W_vn = (drawn(d, d, generator=generator) for _ in "qkv")
    W_qe, W_ke, W_ve = (drawn(d, d_e, generator=generator) for _ in "qkv")
    program = Program(
        [
            R.q(V.I, V.J) <= (R.n(V.I)[W_qn], R.e(V.I, V.J)[W_qe]),
            R.k(V.I, V.J) <= (R.n(V.J)[W_kn], R.e(V.I, V.J)[W_ke]),
            R.v(V.I, V.J) <= (R.n(V.J)[W_vn], R.e(V.I, V.J)[W_ve]),
            R.d_k[1 / math.sqrt(d)].fixed(),
            (R.weights(V.I, V.J) <= (R.d_k, R.k(V.I, V.J).T, R.q(V.I, V.J)))
            | [F.product, F.softmax_agg(agg_terms=[V.J])],
            (R.attention(V.I) <= (R.weights(V.I, V.J), R.v(V.I, V.J))) | [F.product],
        ]
    )
    facts = [R.n(i)[x[i]] for i in range(n)] + [R.e(i, j)[e[i, j]] for i, j in edges]
    solution = program.solve(facts)
    assert solution.computed.get("weights", 0) == len(edges)

    q = x[:, None] @ W_qn.T + e @ W_qe.T
    k = x[None] @ W_kn.T + e @ W_ke.T
    v = x[None] @ W_vn.T + e @ W_ve.T
    mask = torch.zeros(n, n, dtype=torch.bool)
    for i, j in edges:
        mask[i, j] = True
    here = mask.any(1)
    scale = torch.tensor(1 / math.sqrt(d), dtype=torch.float64)
    theirs = torch_attention(q[here], k[here], v[here], scale, mask[here])
    leaves = (x, e, W_qn, W_kn, W_vn, W_qe, W_ke, W_ve)
    ours = rows(solution, R.attention, d)
    assert_same_gradients(ours, theirs, [(leaf, leaf) for leaf in leaves])


def encoder(W_q, W_k, W_v, W_1, W_2, d):
    return Program(
        [
            *projections(W_q, W_k, W_v, d),
            *full,
            *attention,
            (R.norm1(V.I) <= (R.attention(V.I), R.q(V.I))) | [F.norm],
            (R.mlp(V.I)[W_2] <= R.norm1(V.I)[W_1]) | [F.relu],
            (R.norm2(V.I) <= (R.mlp(V.I), R.norm1(V.I))) | [F.norm],
        ]
    )


def torch_norm(x: Tensor) -> Tensor:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-10)


@given(n=st.integers(0, 5), d=st.sampled_from([2, 3, 5]), seed=st.integers(0, 99))
@settings(deadline=None, max_examples=20)
def test_the_whole_encoder_block(n, d, seed):
    generator = torch.Generator().manual_seed(seed)
    x = drawn(n, d, generator=generator)
    shapes = {"W_q": (d, d), "W_k": (d, d), "W_v": (d, d), "W_1": (2 * d, d), "W_2": (d, 2 * d)}
    leaves = {name: drawn(*shape, generator=generator) for name, shape in shapes.items()}
    program = encoder(*(W[name][shape] for name, shape in shapes.items()), d)
    ours_leaves = {k: v.detach().clone().requires_grad_() for k, v in leaves.items()}
    solution = program.solve([R.input(i)[x[i]] for i in range(n)], weights=ours_leaves)

    d_k = torch.tensor(1 / math.sqrt(d), dtype=torch.float64, requires_grad=True)
    q, k, v = (x @ leaves[name].T for name in ("W_q", "W_k", "W_v"))
    heard = torch_attention(q[:, None], k[None], v[None], d_k, torch.ones(n, n, dtype=torch.bool))
    norm1 = torch_norm(heard + q)
    theirs = torch_norm(torch.relu(norm1 @ leaves["W_1"].T) @ leaves["W_2"].T + norm1)
    pairs = [(solution.weights[name], leaf) for name, leaf in leaves.items()]
    pairs += [(solution.weights["d_k"], d_k), (x, x)]
    assert_same_gradients(rows(solution, R.norm2, d), theirs, pairs)
