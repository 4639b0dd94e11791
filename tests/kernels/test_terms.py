"""What attention takes beyond q, k and v: terms, dropout, precision, derivatives, memory."""

import functools

import pytest
import torch
from cases import SCORES, TERMS, Call
from hypothesis import given, settings
from hypothesis import strategies as st
from test_attention import EACH, assert_gradients
from torch.utils.checkpoint import checkpoint

from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    causal,
    documents,
    from_edges,
    full,
    grid,
    per_head,
    per_sample,
    strided,
    window,
)
from edgewise.kernels.attention import IMPLEMENTATIONS, attention, memory
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.kernels.edges.attention import Dropout
from edgewise.scores import H, I, J, S, alibi, relative, softcap, sqrt, table, where
from edgewise.scores.score import entry
from tests.refusals import assert_taken_or_refused

GRAPHS = {
    "empty": window(3) - full(),
    "dense": full(),
    "sliced": full().restrict(keys=(1, 4)),
    "rectangles": documents([2, 4]) & causal(),
    "slabs": documents([2, 4]),
    "permuted": strided(2) & causal(),
    "tiled": grid(2, 3)(window(1), causal()),
}


@pytest.mark.parametrize("kernel", EACH)
def test_fixed_tables_change_no_other_gradient(kernel):
    graph = GRAPHS.get(kernel, window(1) | strided(3))
    q, k, v = (torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))
    values, weight = torch.randn(2, 5, dtype=torch.float64), torch.randn(2, 6, 3)
    found = []
    for learned in (False, True):
        bias = relative(values.clone().requires_grad_(learned))
        try:
            out = attention(q, k, v, graph, bias=bias, kernel=kernel)
        except KernelRefuses as refusal:
            pytest.skip(refusal.message)
        found.append([out, *torch.autograd.grad(out, (q, k, v), weight.double())])
    for fixed, right in zip(*found, strict=True):
        torch.testing.assert_close(fixed, right)


@pytest.mark.parametrize("term", TERMS)
@pytest.mark.parametrize("kernel", EACH)
def test_gradients_of_terms(kernel, term):
    graph = GRAPHS.get(kernel, window(1) | strided(3))
    extra = () if term in ("bias", "key_bias") or kernel == "permuted" else ("bias",)
    call = Call(graph, (), 1, 2, 6, 6, 3, 2, torch.float64, (term, *extra), {"scale": 0.7})
    try:
        assert_gradients(call, kernel)
    except KernelRefuses as refusal:
        pytest.skip(refusal.message)


def test_what_kernels_take():
    """The table of the documentation: a kernel that stops taking a term is seen here."""
    taken = {}
    for implementation in IMPLEMENTATIONS:
        if implementation.name.startswith(("triton", "flash4")):
            continue
        graph = GRAPHS.get(implementation.name, window(1) | strided(3))
        taken[implementation.name] = set()
        for term in [*TERMS, "dropout"]:
            options = {"dropout": 0.5} if term == "dropout" else {}
            terms = () if term == "dropout" else (term,)
            call = Call(graph, (), 1, 1, 6, 6, 3, 2, terms=terms, options=options)
            try:
                call.run(call.tensors(), implementation.name)
            except KernelRefuses:
                continue
            taken[implementation.name].add(term)
    everything = {*TERMS, "dropout"}
    on_tiles = everything - {"edge_key", "edge_value"}
    assert taken == {
        "empty": everything,
        "dense": {"bias", "key_bias", "edge_bias", "near", "alibi", "relative"},
        "sliced": {"bias", "key_bias", "near", "alibi", "relative"},
        "rectangles": on_tiles,
        "slabs": set(),
        "permuted": {"softcap", "near", "alibi", "relative", "capped"},
        "tiled": {"softcap"},
        "blocks": on_tiles,
        "csr": everything,
        "gather": everything,
        "union": everything,
        "reference": everything,
    }


@pytest.mark.parametrize("kernel", ["rectangles", "blocks", "csr", "gather", "union"])
def test_all_kernels_drop_the_same_weights(kernel):
    if kernel == "csr":
        pytest.importorskip("numba", reason="numba is not installed")
    graph = documents([20, 30]) & causal() if kernel == "rectangles" else window(3) | strided(7)
    call = Call(graph, (2,), 2, 2, 50, 50, options={"dropout": 0.4})
    torch.testing.assert_close(
        call.run(call.tensors(), kernel), call.run(call.tensors(), "reference")
    )


def test_what_is_dropped_is_a_matter_of_chance():
    i, j = torch.arange(300)[:, None], torch.arange(300)[None]
    keep = Dropout(0.25, 7).keep(8, i, j, torch.float64)
    assert set(keep.unique().tolist()) == {0.0, 1 / 0.75}
    assert abs(keep.mean().item() - 1) < 0.005
    for axis in (0, 1, 2):  # neighbours do not know of each other
        a, b = (
            keep.narrow(axis, 0, keep.shape[axis] - 1),
            keep.narrow(axis, 1, keep.shape[axis] - 1),
        )
        together = torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1]
        assert abs(together.item()) < 0.01
    assert (Dropout(0.25, 8).keep(8, i, j, torch.float64) != keep).double().mean() > 0.3


def test_dropout_in_the_backward_pass_is_that_of_the_forward_pass():
    call = Call(window(2), (), 2, 1, 9, 9, dtype=torch.float64, options={"dropout": 0.5})
    tensors = {name: x.requires_grad_() for name, x in call.tensors().items()}
    out = call.run(tensors, None)
    (dv,) = torch.autograd.grad(out.sum(), tensors["v"])
    linear = torch.autograd.functional.jacobian(
        lambda v: call.run({**tensors, "v": v}, "reference").sum(), tensors["v"].detach()
    )
    torch.testing.assert_close(dv, linear)


def test_scores_are_what_they_are_on_paper():
    q, k, v = (torch.randn(2, 4, 12, 8, dtype=torch.float64) for _ in range(3))
    away = torch.arange(12)[:, None] - torch.arange(12)
    slopes, values = torch.rand(4).double(), torch.randn(4, 7).double()
    dot = q @ k.mT / 8**0.5
    cap = 1.5 * torch.tanh(dot / 1.5)
    for options, scores in [
        ({"bias": alibi(slopes)}, dot - slopes[:, None, None] * away.abs()),
        ({"bias": relative(values)}, dot + values[:, away.clamp(-3, 3) + 3]),
        ({"score": softcap(1.5)}, cap),
        ({"score": softcap(1.5), "bias": relative(values)}, cap + values[:, away.clamp(-3, 3) + 3]),
        ({"score": where(I < J, S + 1, S * H)}, None),
    ]:
        if scores is None:
            head = torch.arange(4)[:, None, None]
            scores = torch.where(away < 0, dot + 1, dot * head)
        for graph in (full(), causal(), window(4), strided(3)):
            masked = scores.masked_fill(~graph.dense(12), -torch.inf)
            torch.testing.assert_close(
                attention(q, k, v, graph, **options), torch.softmax(masked, -1) @ v
            )


def test_scores_know_their_heads_where_heads_have_graphs_of_their_own():
    q, k, v = (torch.randn(4, 9, 4) for _ in range(3))
    values = torch.randn(4, 5)
    graph = per_head(window(1), causal(), window(1), full())
    score = S * (1 + H) + table(values, I - J)
    out = attention(q, k, v, graph, score=score, dropout=0.0)
    whole = {p: attention(q, k, v, p, score=score) for p in graph}
    for head, pattern in enumerate(graph):
        torch.testing.assert_close(out[head], whole[pattern][head])


def test_edge_vectors_are_those_of_a_graph_transformer():
    """Keys and values with edge features, as in PyG's TransformerConv, by hand."""
    edges = torch.randint(0, 10, (2, 40)).unique(dim=1)
    graph = from_edges(edges, shape=(10, 10))
    i, j = graph.edges(10)
    q, k, v = (torch.randn(2, 10, 4, dtype=torch.float64) for _ in range(3))
    extra = torch.randn(2, len(i), 4, dtype=torch.float64)
    out = attention(q, k, v, graph, edge_key=extra, edge_value=extra)
    score = (q[:, i] * (k[:, j] + extra)).sum(-1) / 2
    expected = torch.zeros_like(q)
    for row in range(10):
        at = (i == row).nonzero()[:, 0]
        weight = torch.softmax(score[:, at], -1)
        expected[:, row] = (weight[..., None] * (v[:, j[at]] + extra[:, at])).sum(1)
    torch.testing.assert_close(out, expected)


def test_a_second_derivative_is_the_references():
    call = Call(window(1), (), 1, 1, 4, 4, 2, 2, torch.float64, ("softcap", "edge_bias"))
    names, tensors = zip(*call.tensors().items(), strict=True)
    tensors = [x.requires_grad_() for x in tensors]

    def run(*inputs, kernel):
        return call.run(dict(zip(names, inputs, strict=True)), kernel)

    assert torch.autograd.gradgradcheck(
        functools.partial(run, kernel="reference"), tensors, fast_mode=True
    )
    with pytest.raises(EdgewiseError, match="cannot be differentiated") as caught:
        torch.autograd.grad(run(*tensors, kernel="gather").sum(), tensors[0], create_graph=True)
    assert caught.value.code == "no-second-derivative"


@pytest.mark.parametrize("lse", [False, True])
@pytest.mark.parametrize("graph", [full(), causal(), window(3)], ids=repr)
def test_who_has_no_second_derivative_says_so(graph, lse):
    q, k, v = (torch.randn(2, 20, 8, requires_grad=True) for _ in range(3))
    out = attention(q, k, v, graph, return_lse=lse)
    with pytest.raises(EdgewiseError, match="cannot be differentiated") as caught:
        torch.autograd.grad(out[0].sum(), q, create_graph=True)
    assert caught.value.code == "no-second-derivative"


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([full(), causal()]),
    st.sampled_from([(1, 1), (2, 1), (3, 2)]),
    st.sampled_from(["one", "of heads", "of all"]),
    st.sampled_from([None, (1, 1, 1, 9), (3, 1, 9, 9)]),
    st.booleans(),
)
def test_a_table_is_a_bias_of_all_samples(graph, sizes, rows, bias, by_head):
    """A score that adds to dot products is written out once for the heads that differ."""
    shared, heads = sizes[0], sizes[0] * sizes[1]
    lead = {"one": (), "of heads": (heads,), "of all": (3, heads)}[rows]
    shapes = [(3, heads, 9, 4), (3, shared, 9, 4), (3, shared, 9, 4), (*lead, 17)]
    shapes += [] if bias is None else [bias]
    leaves = [torch.randn(*x, dtype=torch.float64, requires_grad=True) for x in shapes]
    q, k, v, table, *added = leaves
    score = S + entry(table, I - J + 8) + (0.1 * H * (I - J) if by_head else 0.0)
    found, expected = (
        attention(q, k, v, graph, score=score, bias=added[0] if added else None, kernel=kernel)
        for kernel in ("dense", "reference")
    )
    torch.testing.assert_close(found, expected)
    weight = torch.randn_like(found)
    ours, theirs = (torch.autograd.grad((y * weight).sum(), leaves) for y in (found, expected))
    torch.testing.assert_close(ours, theirs)


TRANSFORMS = {
    "grad": lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
    "vmap": lambda f, x: torch.func.vmap(f)(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (x,))[1],
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms_are_the_references(transform):
    x, graph = torch.randn(2, 2, 9, 4, dtype=torch.float64), window(2)
    run = TRANSFORMS[transform]
    found = run(lambda y: attention(y, y, y, graph, kernel="reference"), x)
    mask = graph.dense(9)
    right = run(lambda y: masked(y, mask), x)
    torch.testing.assert_close(found, right)
    with pytest.raises(EdgewiseError) as caught:
        run(lambda y: attention(y, y, y, graph), x)
    assert caught.value.code == "no-transform"


def masked(x, mask):
    scores = (x @ x.transpose(-1, -2) / 2).masked_fill(~mask, -torch.inf)
    return scores.softmax(-1) @ x


def test_forward_mode_is_the_references():
    x = torch.randn(1, 20, 8)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        for graph in (full(), window(2)):
            with pytest.raises(EdgewiseError, match="forward mode"):
                attention(dual, x, x, graph)
            assert attention(x, x, x, graph).isfinite().all()


@pytest.mark.parametrize("graph", [full(), window(3)])
def test_autocast_takes_inputs_in_its_precision(graph):
    q, k, v = (torch.randn(2, 9, 4, requires_grad=True) for _ in range(3))
    with torch.autocast("cpu", torch.bfloat16):
        out = attention(q, k, v, graph)
        capped, lse = attention(q, k.bfloat16(), v, graph, score=softcap(2.0), return_lse=True)
    assert out.dtype == capped.dtype == torch.bfloat16
    assert lse.dtype == torch.float32
    halves = (x.bfloat16() for x in (q, k, v))
    torch.testing.assert_close(out, attention(*halves, graph))
    assert torch.autograd.grad(capped.sum(), q)[0].dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        doubles = (x.double() for x in (q, k, v))
        assert attention(*doubles, graph).dtype == torch.float64


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_gives_the_same_gradients(reentrant):
    call = Call(window(2), (), 2, 1, 9, 9, terms=("relative",), options={"dropout": 0.5})
    tensors = {name: x.requires_grad_() for name, x in call.tensors().items()}

    def run(*inputs):
        given = dict(zip(tensors, inputs, strict=True))
        score = SCORES["relative"](given["table"], given["one"])
        return attention(*inputs[:3], window(2), score=score, dropout=0.5)

    used = [x for name, x in tensors.items() if name != "one"]
    inputs = list(tensors.values())
    torch.manual_seed(3)
    expected = torch.autograd.grad(run(*inputs).sum(), used)
    torch.manual_seed(3)
    out = checkpoint(run, *inputs, use_reentrant=reentrant)
    out.sum().backward()
    for x, right in zip(used, expected, strict=True):
        torch.testing.assert_close(x.grad, right)


def test_rows_that_hear_nobody_are_zero_whatever_the_terms():
    graph = from_edges(torch.tensor([[0, 2], [1, 0]]), shape=(4, 4))
    for term in TERMS:
        call = Call(graph, (2,), 2, 1, 4, 4, terms=(term,), options={"dropout": 0.2})
        tensors = {name: x.requires_grad_() for name, x in call.tensors().items()}
        out = call.run(tensors, None)
        assert (out[:, :, [1, 3]] == 0).all()
        grads = torch.autograd.grad(out.sum(), list(tensors.values()), materialize_grads=True)
        assert all(grad.isfinite().all() for grad in grads)


def test_a_bias_of_minus_infinity_everywhere_gives_zeros():
    q, k, v = (torch.randn(1, 5, 4, requires_grad=True) for _ in range(3))
    bias = torch.zeros(5, 5)
    bias[2] = -torch.inf
    for graph in (full(), causal(), window(2), strided(2)):
        out, lse = attention(q, k, v, graph, bias=bias, return_lse=True)
        assert (out[0, 2] == 0).all()
        assert lse[0, 2] == -torch.inf
        grads = torch.autograd.grad(out.sum(), (q, k, v))
        assert all(grad.isfinite().all() for grad in grads)


def test_memory_that_is_not_there_is_an_error_before_it_is_asked_for(monkeypatch):
    monkeypatch.setattr(memory, "left", lambda device: 1 << 20)
    x = torch.zeros(1, 1, 8192, 4)
    with pytest.raises(EdgewiseError, match=r"67,108,864 pairs needs about 2\.0 GiB") as caught:
        attention(x, x, x, window(10000), return_weights=True, kernel="csr")
    assert caught.value.code == "too-large"
    assert "return_lse" in caught.value.help
    with pytest.raises(EdgewiseError, match="writes out all 8,192×8,192 scores"):
        attention(x, x, x, window(3), kernel="reference")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
        MemoryError("Unable to allocate 3.88 GiB for an array with shape (520155136,)"),
    ],
    ids=["a GPU", "a CPU", "NumPy"],
)
def test_running_out_of_memory_says_how_much_was_asked_for(error, monkeypatch):
    def full_memory(*arguments):
        raise error

    from edgewise.kernels.attention import blocks

    monkeypatch.setattr(blocks, "forward", full_memory)
    x = torch.zeros(1, 2, 64, 4)
    with pytest.raises(EdgewiseError, match="`blocks` ran out of memory") as caught:
        attention(x, x, x, window(3), kernel="blocks")
    assert caught.value.code == "too-large"


q = torch.zeros(1, 2, 8, 4)
THINGS = [None, 1, 1.5, 10**400, True, "x", b"x", [1], (), {}, object(), S, window(1), float("nan"),
          torch.zeros(3), torch.zeros(1, 2, 8, 4).to_sparse(), torch.tensor(1), lambda s: s,
          torch.zeros(1, 2, 8, 4, dtype=torch.complex64), torch.zeros(0)]  # fmt: skip
OPTIONS = ["graph", "scale", "bias", "score", "edge_bias", "edge_scale", "edge_key", "edge_value",
           "dropout", "lengths", "offset", "return_lse", "return_weights", "kernel"]  # fmt: skip


@pytest.mark.parametrize("option", OPTIONS)
def test_wrong_things_are_errors_of_ours(option):
    for thing in THINGS:
        assert_taken_or_refused(functools.partial(attention, q, q, q, **{option: thing}))


def test_a_bias_has_any_strides():
    transposed = torch.randn(8, 8).mT.requires_grad_()
    attention(q, q, q, window(2), bias=transposed).square().sum().backward()
    contiguous = transposed.detach().contiguous().requires_grad_()
    attention(q, q, q, window(2), bias=contiguous).square().sum().backward()
    torch.testing.assert_close(transposed.grad, contiguous.grad)


def test_an_index_that_is_no_number_reads_an_end_of_the_table():
    values = torch.randn(2, 3)
    found = attention(q, q, q, score=S + table(values, I / (I - I)))  # 0/0, then ∞
    places = torch.tensor([0] + 7 * [2])
    wanted = attention(q, q, q, bias=values[:, places, None])
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("place", range(3))
def test_wrong_tensors_are_errors_of_ours(place):
    for thing in THINGS:
        tensors = [q, q, q]
        tensors[place] = thing
        with pytest.raises(EdgewiseError):
            attention(*tensors)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_nested_tensor_is_an_error_of_ours():
    nested = torch.nested.as_nested_tensor([torch.zeros(2, 8, 4)])
    with pytest.raises(EdgewiseError):
        attention(nested, nested, nested, window(2))


def test_scores_that_do_not_fit_are_errors():
    wrong = [
        (lambda: attention(q, q, q, score=torch.zeros(8, 8)), "bad-score", "got a Tensor"),
        (lambda: attention(q, q, q, bias=alibi(3)), "attention-shape", "`q` has 2 heads"),
        (lambda: attention(q, q, q, bias=relative(torch.zeros(3, 3))), "attention-shape", "(3, 3)"),
        (
            lambda: attention(q, q, q, edge_key=torch.zeros(64, 5)),
            "attention-shape",
            "`edge_key` has shape (64, 5), which does not broadcast to (1, 2, 64, 4)",
        ),
        (lambda: attention(q, q, q, edge_value=torch.zeros(63, 4)), "attention-shape", "(63, 4)"),
        (
            lambda: attention(q, q, q, edge_bias=torch.zeros(3, 2, 64)),
            "attention-shape",
            "`edge_bias` has shape (3, 2, 64), which does not broadcast to (1, 2, 64)",
        ),
        (
            lambda: attention(q, q, q, window(1), score=S + I, kernel="permuted"),
            "kernel-refuses",
            "",
        ),
        (
            lambda: attention(q, q, q, per_head(full(), causal()), edge_scale=torch.zeros(64)),
            "bad-option",
            "`edge_scale` is one tensor, but each head has a graph with pairs of its own",
        ),
        (
            lambda: attention(q, q, q, per_head(full(), causal()), edge_key=[torch.zeros(64, 4)]),
            "bad-option",
            "`edge_key` is 1 terms, the graph is of 2 heads",
        ),
        (
            lambda: attention(q, q, q, per_head(full(), causal()), edge_bias=3),
            "bad-option",
            "`edge_bias` is int, the graph is of 2 heads",
        ),
        (
            lambda: attention(q, q, q, per_sample(per_head(full(), causal())), edge_bias=[[3, 4]]),
            "unsupported-dtype",
            "`edge_bias[0][0]` is an int",
        ),
        (
            lambda: attention(
                q, q, q, per_head(full(), causal()), edge_bias=[torch.zeros(64), torch.zeros(64)]
            ),
            "attention-shape",
            "`edge_bias[1]` has shape (64,), which does not broadcast to (1, 36)",
        ),
        (
            lambda: attention(q, q, q, per_sample(causal()), edge_value=[torch.zeros(3, 36, 4)]),
            "attention-shape",
            "does not broadcast to (2, 36, 4)",
        ),
        (
            lambda: attention(q, q, q, full(), edge_bias=[torch.zeros(64)]),
            "unsupported-dtype",
            "`edge_bias` is a list",
        ),
        (
            lambda: attention(q, q, q, strided(2), score=S + J, kernel="permuted"),
            "kernel-refuses",
            "more than i - j",
        ),
    ]
    for call, code, text in wrong:
        with pytest.raises(EdgewiseError) as caught:
            call()
        assert caught.value.code == code
        assert text in caught.value.message


@pytest.mark.parametrize("kernel", ["rectangles", "csr", "gather", "reference", None])
def test_scores_count_from_the_offset(kernel):
    """What a query hears after a cache is what it hears among all."""
    q, k, v = (torch.randn(1, 2, 8, 4, dtype=torch.float64) for _ in range(3))
    near = relative(torch.randn(2, 7, dtype=torch.float64))
    for score in (alibi(2), near, sqrt(I + J + 1)):
        whole = attention(q, k, v, causal(), bias=score)[:, :, 5:]
        last = attention(q[:, :, 5:], k, v, causal(), bias=score, offset=5, kernel=kernel)
        torch.testing.assert_close(last, whole)
