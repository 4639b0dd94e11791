"""FlashAttention 4: what it is given for each graph, layout and option, by a stand-in for it."""

from dataclasses import replace
from importlib.metadata import PackageNotFoundError

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from kernels.cases import assert_no_worse_than_reference, calls
from kernels.flash4_stand_in import stand_in

from edgewise.graphs import causal, documents, full, global_tokens, strided, window
from edgewise.kernels import kernel_choices
from edgewise.kernels.attention import Case, attention, flash4, prepare
from edgewise.kernels.attention.errors import KernelRefuses
from edgewise.scores import alibi, softcap

__all__ = ["stand_in"]
BANDS = [full(), causal(), window(2), window(3) & causal(), causal().shift(0, -2), window(1).T]


@given(data=st.data())
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.function_scoped_fixture],
)
def test_is_as_exact_as_the_reference(stand_in, data):
    """Outputs, log-sum-exp and all gradients, with offsets, shared keys and scales."""
    call = data.draw(calls(st.sampled_from(BANDS), ("softcap",)))
    dtype = data.draw(st.sampled_from([torch.float16, torch.bfloat16]))
    options = {name: x for name, x in call.options.items() if name in ("offset", "scale")}
    try:
        assert_no_worse_than_reference(
            replace(call, d=8, dv=call.dv * 8, dtype=dtype, options=options), "flash4"
        )
    except KernelRefuses:
        assume(False)
    assert "launched" in stand_in


@pytest.mark.parametrize(
    ("graph", "n", "m", "expected"),
    [
        (full(), 7, 9, (None, None)),
        (causal(), 9, 9, (None, 0)),
        (causal().shift(-2, 0), 7, 9, (None, 0)),  # after two cached tokens
        (causal().shift(-1, 0), 7, 9, None),
        (causal(), 9, 7, (None, 2)),
        (window(3), 9, 9, (3, 3)),
        (window(3), 7, 9, (5, 1)),
        (window(3) & causal(), 9, 9, (3, 0)),
        (window(3) & causal(), 1, 1, (None, None)),
        (window(20), 9, 9, (None, None)),
        (window(1), 9, 4, None),  # queries without keys
        (window(1) - causal(), 9, 9, None),
        (window(2) | global_tokens(1), 9, 9, None),
        (strided(2), 9, 9, None),
        (documents([4, 5]), 9, 9, None),
    ],
)
def test_a_window_is_counted_from_the_last_query_and_key(stand_in, graph, n, m, expected):
    case = Case(1, 1, n, m, 8, 8, torch.bfloat16, "cpu", graph, 1.0)
    assert (flash4.refuses(case) is None) == (expected is not None)
    if expected is not None:
        assert flash4._window(case) == expected


def laid_out(shape, how):
    x = torch.randn(shape).bfloat16()
    if how == "tokens first":
        return x.transpose(-2, -3).contiguous().transpose(-2, -3)
    if how == "a part of a product":
        return torch.stack([x, x], -2)[..., 0, :]
    if how == "one for all heads":
        return x[..., :1, :, :].expand(shape)
    if how == "at an odd place":
        return torch.cat([x.flatten()[:1], x.flatten()])[1:].view(shape)
    return x


@pytest.mark.parametrize("lead", [(2,), ()])
@pytest.mark.parametrize(
    "how",
    ["as usual", "tokens first", "a part of a product", "one for all heads", "at an odd place"],
)
def test_layouts_are_read_as_they_are(stand_in, how, lead):
    """Twice: the second call launches what the first one found. Gradients may be one number."""
    shapes = ((*lead, 4, 9, 16), (*lead, 2, 9, 16), (*lead, 2, 9, 8))
    for repeat in range(2):
        torch.manual_seed(repeat)
        tensors = [laid_out(shape, how).requires_grad_() for shape in shapes]
        before = len(stand_in)
        found = []
        for kernel, dtype in (("flash4", torch.bfloat16), ("reference", torch.float64)):
            tensors = [x.detach().to(dtype).requires_grad_() for x in tensors]
            out = attention(*tensors, window(2) & causal(), kernel=kernel)
            found.append([out, *torch.autograd.grad(out.sum(), tensors)])
        for mine, right in zip(*found, strict=True):
            assert (mine.double() - right).abs().max() < 0.05
        launched = stand_in[before:]
        bound = repeat and how != "at an odd place"
        assert launched == ["launched", ("backward", False, False)] or not bound
        assert "looked up" in launched or bound


def test_layouts_come_back(stand_in):
    """Tokens before heads stay so: what a projection reads next is no copy."""
    q, k, v = (laid_out((2, 4, 9, 8), "tokens first").requires_grad_() for _ in range(3))
    out = attention(q, k, v, causal(), kernel="flash4")
    grads = torch.autograd.grad(out, (q, k, v), out)
    assert all(x.transpose(1, 2).is_contiguous() for x in (out, *grads))


def test_inside_a_compiled_function(stand_in):
    """It is reached through the operator, and its gradients as well."""
    q, k, v = (torch.randn(2, 4, 9, 8).half().requires_grad_() for _ in range(3))

    def layer(q, k, v):
        return attention(q, k, v, causal(), kernel="flash4").sin()

    plain, traced = layer(q, k, v), torch.compile(layer, backend="aot_eager")(q, k, v)
    assert torch.equal(plain, traced)
    grads = [torch.autograd.grad(x.sum(), (q, k, v)) for x in (plain, traced)]
    assert all(map(torch.equal, *grads))
    assert "launched" in stand_in


def test_deterministic_where_that_is_requested(stand_in):
    q, k, v = (torch.randn(1, 9, 8).half().requires_grad_() for _ in range(3))
    torch.use_deterministic_algorithms(True)
    try:
        attention(q, k, v, causal(), kernel="flash4").sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert stand_in[-1] == ("backward", True, False)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"dtype": torch.float32}, "it computes in float16 and bfloat16 only"),
        ({"d": 264, "dv": 264}, "heads of 264 features, with values of 264, were not found right"),
        ({"d": 80, "dv": 80}, "heads of 80 features, with values of 80, were not found right"),
        ({"d": 64, "dv": 128}, "heads of 64 features, with values of 128, were not found right"),
        ({"b": 70_000}, "70,000 heads, over the batch, are more than 65,535"),
        ({"features": frozenset({"dropout"})}, "it does not take dropout"),
        ({"features": frozenset({"bias"})}, "it does not take `bias`"),
        ({"n": 0}, "there are no pairs"),
        (
            {"features": frozenset({"score"}), "score": alibi(2).node},
            "of scores it takes `softcap` alone",
        ),
        (
            {"graph": documents([4, 5])},
            "the graph is not all pairs between two diagonals, with keys for all queries",
        ),
        ({"n": 5}, "the last query does not attend to the last key"),
        ({"features": frozenset({"score"}), "score": softcap(5.0).node}, None),
        ({"features": frozenset({"lse"})}, None),
    ],
)
def test_refusals_are_reasons(stand_in, change, reason):
    case = Case(2, 1, 9, 9, 8, 8, torch.bfloat16, "cuda", window(2), 1.0)
    assert flash4.refuses(replace(case, **change)) == reason


def test_what_the_machine_lacks_is_a_reason(monkeypatch):
    def missing(package):
        raise PackageNotFoundError

    for installed, reason in (
        (missing, 'flash-attn-4 is not installed: pip install "edgewise[flash]"'),
        (lambda package: "4.1.0", "flash-attn-4 is 4.1.0, tested is 4.0.0b36: pip install"),
    ):
        monkeypatch.setattr(kernel_choices, "version", installed)
        kernel_choices._version.cache_clear()
        assert kernel_choices.no_flash4("cuda").startswith(reason)
    kernel_choices._version.cache_clear()
    assert kernel_choices.no_flash4("cpu") == "it runs on a CUDA GPU, not on cpu"


def test_it_is_taken_where_it_was_measured_to_win(stand_in):
    """Long and wide; short rows and narrow windows stay with what is faster there."""

    def chosen(graph, n, d=64, batch=1, queries=None, heads=16, keys=16):
        q = torch.empty(batch, heads, queries or n, d, dtype=torch.bfloat16, device="meta")
        k = torch.empty(batch, keys, n, d, dtype=torch.bfloat16, device="meta")
        offset = n - (queries or n)
        return prepare(q, k, k, graph, offset=offset, device="cuda").choice.name

    past = window(1023) & causal()
    for graph, n, d in ((causal(), 16384, 64), (full(), 16384, 64), (window(256), 16384, 128)):
        assert chosen(graph, n, d) == "flash4"
    assert chosen(causal(), 4096, batch=8) == "flash4"
    assert chosen(past, 8192, 256, heads=8, keys=8) == "flash4"
    assert chosen(causal(), 32768, 128, queries=4096, heads=32, keys=8) == "flash4"
    for graph, n in ((window(256), 65536), (window(255) & causal(), 65536)):
        assert chosen(graph, n) != "flash4"
    assert chosen(causal(), 1000, batch=8) == chosen(causal(), 333, batch=64) == "dense"
    for queries in (1, 4):
        assert chosen(causal(), 65536, 128, queries=queries, heads=32, keys=8) != "flash4"


def test_parts_of_a_larger_graph(stand_in, monkeypatch):
    """Its output and log-sum-exp are merged, and gradients start from those of all parts."""
    monkeypatch.setattr(flash4, "cost", lambda case: 0.0)
    q, k, v = (torch.randn(2, 2, 40, 8).half() for _ in range(3))
    found = []
    for kernel, dtype in (("union", torch.float16), ("reference", torch.float64)):
        tensors = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        out = attention(*tensors, window(2) | global_tokens(2), kernel=kernel)
        found.append([out, *torch.autograd.grad(out.square().sum(), tensors)])
    for mine, right in zip(*found, strict=True):
        assert (mine.double() - right).abs().max() < 0.01
    assert {"launched", ("backward", False, False)} <= set(stand_in)
