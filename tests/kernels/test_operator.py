"""Attention in traces: one operator, as exact as without them."""

import subprocess
import sys
import weakref

import pytest
import torch
from cases import SCORES, TERMS, Call
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from edgewise.errors import EdgewiseError
from edgewise.graphs import (
    bigbird,
    causal,
    documents,
    from_blocks,
    from_dense,
    from_edges,
    full,
    global_tokens,
    grid,
    longformer,
    per_head,
    per_sample,
    random_edges,
    strided,
    tree,
    window,
)
from edgewise.kernels.attention import attention
from edgewise.kernels.attention.calls import trace_names
from edgewise.kernels.attention.calls.arguments import grouped
from edgewise.kernels.attention.calls.layout import Layout, Spec
from edgewise.kernels.attention.calls.trace_names import NAMED, name_of, thing_of
from edgewise.kernels.attention.calls.traced import numbered
from edgewise.kernels.attention.contract import Options, TermInputs
from edgewise.scores import H, I, J, S, alibi, relative, softcap, tanh, where

EDGES = from_edges(torch.tensor([[0, 1, 2], [1, 0, 3]]), shape=(12, 12))
GRAPH = window(3)
HEADS = per_head(GRAPH, GRAPH, GRAPH, GRAPH)
LENGTHS = torch.tensor([12, 5])


def inputs(dtype=torch.float32):
    random = torch.Generator().manual_seed(0)
    shapes = [(2, 4, 12, 8)] * 3 + [(4, 7), (4, GRAPH.count(12))]
    return [torch.randn(x, generator=random).to(dtype).requires_grad_() for x in shapes]


CALLS = {
    "a graph from outside": lambda q, k, v, t, e: attention(q, k, v, GRAPH),
    "no graph": lambda q, k, v, t, e: attention(q, k, v),
    "edges": lambda q, k, v, t, e: attention(q, k, v, EDGES),
    "a graph made inside": lambda q, k, v, t, e: attention(
        q, k, v, (window(2) | global_tokens(1)) & causal()
    ),
    "a graph made of both": lambda q, k, v, t, e: attention(q, k, v, EDGES | window(1)),
    "scores": lambda q, k, v, t, e: attention(q, k, v, GRAPH, score=softcap(3.0), bias=relative(t)),
    "heads by number": lambda q, k, v, t, e: attention(q, k, v, GRAPH, score=S * (1 + H)),
    "a bias of edges": lambda q, k, v, t, e: attention(q, k, v, GRAPH, edge_bias=e),
    "lengths": lambda q, k, v, t, e: attention(
        q, k, v, GRAPH, lengths=torch.tensor([12, 5]), bias=alibi(4)
    ),
    "log-sum-exp": lambda q, k, v, t, e: attention(q, k, v, GRAPH, return_lse=True)[1],
    "graphs of heads": lambda q, k, v, t, e: attention(
        q, k, v, per_head(window(1), causal(), full(), window(1)), bias=relative(t)
    ),
    "edges of heads": lambda q, k, v, t, e: attention(
        q, k[:, :2], v[:, :2], HEADS, edge_bias=[*e], edge_key=[x[:, None].expand(-1, 8) for x in e]
    ),
    "graphs of samples": lambda q, k, v, t, e: attention(
        q, k[:, :2], v[:, :2], per_sample(GRAPH, HEADS), bias=relative(t), lengths=LENGTHS
    ),
    "edges of samples": lambda q, k, v, t, e: attention(
        q,
        k,
        v,
        per_sample(GRAPH, HEADS),
        edge_scale=[e, [*e]],
        edge_value=[e[..., None].expand(-1, -1, 8), [*e[..., None].expand(-1, -1, 8)]],
    ),
    "shared keys": lambda q, k, v, t, e: attention(
        q, k[:, :2], v[:, :2], GRAPH, scale=-0.5, offset=2
    ),
    "dropout": lambda q, k, v, t, e: attention(q, k, v, GRAPH, dropout=0.3),
    "the reference": lambda q, k, v, t, e: attention(q, k, v, GRAPH, kernel="reference"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_compiled_is_the_same(call):
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    found = []
    for run in (call, compiled):
        torch.manual_seed(1)
        tensors = inputs()
        out = run(*tensors)
        grads = torch.autograd.grad(out.sum(), tensors, materialize_grads=True)
        found.append((out, *grads))
    for plain, traced in zip(*found, strict=True):
        torch.testing.assert_close(traced, plain)


def test_another_graph_or_score_is_another_trace():
    torch._dynamo.reset()

    def run(q, graph):
        return attention(q, q, q, graph, score=softcap(2.0))

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    q = torch.randn(2, 12, 8)
    for graph in [window(1), window(4), EDGES, window(1)]:
        torch.testing.assert_close(compiled(q, graph), run(q, graph))


def test_lengths_may_change():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q: attention(q, q, q, GRAPH), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for n in (5, 9, 17):
        q = torch.randn(2, n, 4)
        torch.testing.assert_close(compiled(q), attention(q, q, q, GRAPH))


MADE_INSIDE = {
    "a size": lambda n: window(n // 4) | global_tokens((0, n - 1)),
    "sizes of heads": lambda n: per_head(window(n // 2), causal()),
    "what has a default": lambda n: bigbird(2, 1, seed=7, window=1),
    "a seed": lambda n: random_edges(2, seed=3) | window(1),
    "what is given by name": lambda n: longformer(2, dilation=3) - window(0),
    "a list of sizes": lambda n: documents([n // 4, n - n // 4]) & causal() | window(1),
    "a list of parents": lambda n: tree([-1, *range(n - 1)]).T | tree([-1] * n),
    "lists of edges": lambda n: full() - from_edges([[0, 3], [1, 4], [2, n - 1]]),
    "lists of heads": lambda n: per_head(documents([n]), from_blocks([[0, 1], [0, 1]], n // 2)),
    "a grid": lambda n: grid(4, n // 4)(window(1), causal()),
}


@pytest.mark.parametrize("made", MADE_INSIDE.values(), ids=MADE_INSIDE)
def test_a_graph_made_inside_has_all_its_numbers_at_every_length(made):
    torch._dynamo.reset()

    def run(q):
        return attention(q, q, q, made(q.shape[-2]))

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    for n in (20, 24, 32):
        q = torch.randn(2, n, 4)
        torch.testing.assert_close(compiled(q), run(q))


@pytest.mark.parametrize(
    "made",
    [
        lambda x: documents(x),
        lambda x: from_edges(torch.stack([x, x])) | window(1),
        lambda x: from_dense(x[:, None] == x),
        lambda x: per_head(causal(), tree(x)),
    ],
)
def test_a_graph_made_of_a_tensor_inside_is_refused_by_name(made):
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, x: attention(q, q, q, made(x)), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match="made of a tensor in a trace"):
        compiled(torch.randn(2, 4, 4), torch.tensor([1, 3]))


def test_a_list_given_to_a_compiled_function_may_change():
    torch._dynamo.reset()

    def run(q, lengths):
        return attention(q, q, q, documents(lengths))

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    q = torch.randn(2, 12, 4)
    for lengths in [[4, 8], [5, 7], [1, 2, 9], [4, 8]]:
        torch.testing.assert_close(compiled(q, lengths), run(q, lengths))


def test_wrong_numbers_inside_are_still_errors():
    torch._dynamo.reset()
    compiled = torch.compile(lambda q: attention(q, q, q, documents([4, -1])), fullgraph=True)
    with pytest.raises(Exception, match="`lengths` must not be negative"):
        compiled(torch.randn(2, 3, 4))


def test_tables_of_another_length_are_read_in_a_trace_too():
    torch._dynamo.reset()

    def run(q, table):
        return attention(q, q, q, GRAPH, bias=relative(table))

    compiled = torch.compile(run, fullgraph=True, backend="eager")
    for length in (3, 5, 7):
        q, table = torch.randn(2, 12, 4), torch.randn(2, length)
        torch.testing.assert_close(compiled(q, table), run(q, table))


def test_a_module_with_attention_is_exported():
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(torch.randn(2, 7))
            self.graph = window(3) | global_tokens(1)

        def forward(self, x):
            return attention(x, x, x, self.graph, bias=relative(self.table))

    layer, x = Layer(), torch.randn(1, 2, 12, 4)
    program = torch.export.export(layer, (x,))
    torch.testing.assert_close(program.module()(x), layer(x))


class Near(torch.nn.Module):
    def forward(self, x):
        return attention(x, x, x, window(2) & ~strided(3), score=softcap(2.0), bias=alibi(2))


def test_an_exported_program_has_its_graph_in_another_process(tmp_path):
    """Where another graph was the first to be traced."""
    x = torch.randn(1, 2, 12, 4)
    torch.export.save(torch.export.export(Near(), (x,)), tmp_path / "near.pt2")
    torch.save((x, Near()(x)), tmp_path / "right.pt")
    source = """
import sys
import weakref
import torch
from edgewise import attention
from edgewise.graphs import causal

x, right = torch.load(sys.argv[1] + "/right.pt")
torch.compile(lambda x: attention(x, x, x, causal()), backend="eager")(x)
program = torch.export.load(sys.argv[1] + "/near.pt2")
torch.testing.assert_close(program.module()(x), right)
"""
    command = [sys.executable, "-c", source, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr


SAID = [
    *(window(2), ~strided(3), (window(1) | causal()) & documents([3, 5]), bigbird(4, 1)),
    *((S + 1).node, (where(I > J, S, 0.5 * S) + tanh(I - J) * 2).node),
    *(relative(torch.zeros(3)).node, from_edges(torch.tensor([[0, 1], [1, 1]]), shape=(3, 4))),
]


@pytest.mark.parametrize("thing", SAID, ids=repr)
def test_names_say_what_they_name(thing, monkeypatch):
    name = name_of(thing)
    monkeypatch.setattr(trace_names, "NAMED", {})
    found = thing_of(name)
    assert type(found) is type(thing)
    assert found == thing


def test_what_is_too_long_to_be_written_down_is_an_error_elsewhere(monkeypatch):
    name = name_of(documents([1] * 5000))
    assert thing_of(name) == documents([1] * 5000)
    monkeypatch.setattr(trace_names, "NAMED", {})
    for foreign in (name, "", "import os", "('no', 1)", "(" * 5000, "window(2) +"):
        with pytest.raises(EdgewiseError, match="not here") as caught:
            thing_of(foreign)
        assert caught.value.code == "bad-option"


def test_tensors_without_numbers_have_shapes():
    with FakeTensorMode():
        q, k = torch.randn(2, 4, 9, 4), torch.randn(2, 2, 7, 4)
        out, lse = attention(q, k, k[..., :3], GRAPH, return_lse=True)
    assert (out.shape, lse.shape) == ((2, 4, 9, 3), (2, 4, 9))


@pytest.mark.parametrize("graph", [GRAPH, per_head(window(1), causal())], ids=repr)
def test_operations_are_written_down(graph):
    x = torch.randn(1, 2, 9, 4)
    term = [torch.randn(one.count(9)) for one in getattr(graph, "patterns", [])]

    def run(x):
        return attention(x, x, x, graph, edge_bias=term or None)

    attention(x, x, x, graph)  # what is known from before does not matter
    torch.testing.assert_close(make_fx(run)(x)(2 * x), run(2 * x))


@pytest.mark.parametrize("terms", [(), *((term,) for term in TERMS)])
def test_the_operator_is_what_torch_expects(terms):
    call = Call(window(2), (2,), 1, 2, 6, 6, 3, 2, terms=terms)
    given = {name: x.requires_grad_() for name, x in call.tensors().items()}
    q, k, v = (given[name] for name in "qkv")
    score, names = S, {}
    for name in terms:
        if name in ("bias", "key_bias"):
            names["bias"] = given[name]
        elif name in given:
            names[name] = given[name]
        else:
            score = SCORES[name](given["table"], given["one"])
    options, inputs = Options(0.5, score.node), TermInputs(**names, tables=score.tables)
    node, numbers = numbered(options, len(inputs.tables), q, q.device)
    if numbers is not None:
        inputs = inputs._replace(tables=(*inputs.tables, numbers))
    tensors = grouped(q, k, v)
    found = Layout(Spec(q, k, v, call.graph, q.device), options, inputs).terms(inputs, 0)
    flat = [x.detach().clone().requires_grad_() if x is not None else None for x in found.tensors]
    leaves = [x.detach().clone().requires_grad_() for x in tensors]
    numbers = (name_of(call.graph), name_of(node), 0.5, 0, 0.0, None, True)
    torch.library.opcheck(
        torch.ops.edgewise.attend.default, (*leaves, *flat[:5], flat[5:], None, *numbers)
    )


def test_a_graph_that_prints_shortly_is_not_held():
    before, graph = len(NAMED), window(77) | causal()
    name = name_of(graph)
    assert name_of(window(77) | causal()) == name
    assert len(NAMED) == before
    assert thing_of(name) == graph
    alive = weakref.ref(graph)
    del graph
    assert alive() is None


def test_what_is_not_written_down_is_held_once():
    before, graph = len(NAMED), documents([1] * 7001)
    assert name_of(graph) == name_of(documents([1] * 7001))
    assert len(NAMED) == before + 1


def test_weights_are_not_traced():
    compiled = torch.compile(
        lambda q: attention(q, q, q, GRAPH, return_weights=True), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match="`return_weights` does not work in a trace"):
        compiled(torch.randn(2, 6, 4))


def test_edges_of_another_number_are_an_error_in_a_trace_too():
    torch._dynamo.reset()
    compiled = torch.compile(
        lambda q, e: attention(q, q, q, GRAPH, edge_bias=e), fullgraph=True, backend="eager"
    )
    with pytest.raises(EdgewiseError, match="numbers for 5 edges"):
        compiled(torch.randn(2, 12, 4), torch.randn(5))


class Heard(torch.nn.Module):
    """Attention along a graph that it holds, or makes anew in every call."""

    def __init__(self, graph, made):
        super().__init__()
        self.linear = torch.nn.Linear(8, 24)
        self.graph, self.made = graph, made

    def forward(self, x):
        q, k, v = self.linear(x).view(2, -1, 2, 12).transpose(1, 2).chunk(3, -1)
        graph = window(2) | global_tokens(1) if self.made else self.graph
        return attention(q, k, v, graph, bias=self.bias, dropout=0.0)

    bias = None


@pytest.mark.parametrize("made", [False, True], ids=["held", "made"])
@pytest.mark.parametrize("bias", [None, alibi(2)], ids=["plain", "alibi"])
def test_a_trace_under_autocast_has_the_graph_of_its_module(made, bias):
    model, x = Heard(window(1), made), torch.randn(2, 16, 8)
    model.bias = bias
    torch._dynamo.reset()
    traced = torch.compile(model, backend="aot_eager", fullgraph=True)
    for graph in (window(1), causal() & window(3)):
        model.graph = graph  # a trace of another graph is another
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, expected = traced(x), model(x)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)
        found.float().sum().backward()
        assert model.linear.weight.grad.isfinite().all()
