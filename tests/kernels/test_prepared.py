"""A prepared call is what `attention` does, decided once."""

import pytest
import torch
from torch.overrides import TorchFunctionMode

from edgewise import F, Program, R, V
from edgewise.graphs import causal, global_tokens, per_head, per_sample, strided, window
from edgewise.kernels.attention import attention, choose, prepare
from edgewise.kernels.attention.calls import term_arguments
from edgewise.kernels.attention.errors import AttentionShape, SecondDerivative, UnsupportedDevice
from edgewise.kernels.attention.flash import aligned
from edgewise.scores import H, S, alibi, relative, softcap
from edgewise.scores.score import BadScore

GRAPH = window(2) | global_tokens(1)
EDGES = GRAPH.count(12)


def inputs(dtype=torch.float32):
    random = torch.Generator().manual_seed(0)
    return [torch.randn(2, 4, 12, 8, generator=random).to(dtype).requires_grad_() for _ in "qkv"]


def numbers(*shape):
    return torch.randn(shape, generator=torch.manual_seed(1), requires_grad=True)


OPTIONS = {
    "nothing": {},
    "no graph": {"graph": None},
    "strides": {"graph": strided(3)},
    "scale": {"scale": -0.5},
    "scale 0": {"scale": 0.0},
    "a kernel": {"kernel": "reference"},
    "an offset": {"graph": causal(), "offset": 3},
    "log-sum-exp": {"return_lse": True},
    "weights": {"return_weights": True, "return_lse": True},
    "dropout": {"dropout": 0.3},
    "bias": {"bias": numbers(4, 12, 12)},
    "score": {"score": softcap(2.0), "bias": relative(numbers(4, 7))},
    "heads": {"score": S * (1 + H), "bias": alibi(4)},
    "edges": {
        "edge_bias": numbers(4, EDGES),
        "edge_scale": numbers(EDGES),
        "edge_key": numbers(EDGES, 8),
        "edge_value": numbers(1, EDGES, 8),
    },
    "lengths": {"lengths": torch.tensor([12, 5]), "return_weights": True},
    "lengths and bias": {"lengths": torch.tensor([12, 0]), "bias": alibi(4), "return_lse": True},
    "per head": {"graph": per_head(window(1), causal(), window(1), causal()), "dropout": 0.2},
    "per sample": {
        "graph": per_sample(GRAPH, per_head(*[causal()] * 4)),
        "edge_bias": [numbers(EDGES), [numbers(78) for _ in range(4)]],
        "lengths": torch.tensor([7, 12]),
        "return_weights": True,
    },
}


def flat(found):
    if isinstance(found, torch.Tensor):
        return [found]
    return [x for part in found for x in flat(part)]


def prepared(q, k, v, options, meta=True):
    given = dict(options)
    graph = given.pop("graph", GRAPH)
    like = [x.to("meta") for x in (q, k, v)] if meta else [q, k, v]
    if meta:
        for name in ("bias", "edge_bias", "edge_scale", "edge_key", "edge_value", "lengths"):
            given[name] = to_meta(given.get(name))
    return prepare(*like, graph, **given, device="cpu")


def to_meta(x):
    if isinstance(x, list):
        return [to_meta(part) for part in x]
    return x.to("meta") if isinstance(x, torch.Tensor) else x


def rest(options):
    names = ("bias", "edge_bias", "edge_scale", "edge_key", "edge_value", "lengths")
    given = {name: options[name] for name in names if name in options}
    score = options.get("score", S)
    if "bias" in given and not isinstance(given["bias"], torch.Tensor):
        score = score + given.pop("bias")
    return {**given, "tables": score.tables}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("meta", [True, False], ids=["meta", "tensors"])
def test_it_is_attention(options, meta):
    q, k, v = inputs()
    call = prepared(q, k, v, options, meta)
    graph = options.get("graph", GRAPH)
    given = {name: x for name, x in options.items() if name != "graph"}
    torch.manual_seed(3)
    right = flat(attention(q, k, v, graph, **given))
    torch.manual_seed(3)
    found = flat(call(q, k, v, **rest(options)))
    grads = [
        torch.autograd.grad(sum(x[x.isfinite()].sum() for x in out), (q, k, v))
        for out in (found, right)
    ]
    for a, b in zip([*found, *grads[0]], [*right, *grads[1]], strict=True):
        assert torch.equal(a, b)


def test_it_knows_its_kernel_its_work_and_why_not_the_others():
    x = torch.empty(2, 4, 64, 16, device="meta")
    call = prepare(x, x[:, :2], x[:, :2], window(1), device="cpu")
    assert call.choice == choose(call.inner.case)
    assert "dense" in call.choice.refusals
    assert call.work.pairs == 8 * window(1).count(64)
    assert call.work.flops == 2 * call.work.pairs * 32
    assert call.work.bytes == (2 * 4 + 2 * 2) * 64 * 32 * 4


def test_a_gpu_is_prepared_for_without_one():
    x = torch.empty(1, 8, 4096, 64, dtype=torch.bfloat16, device="meta")
    assert prepare(x, x, x, causal(), device="cuda").choice.name == "dense"


class Recorder(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def test_a_mode_sees_one_function():
    q, k, v = inputs()
    call = prepare(q, k, v, GRAPH)
    with Recorder() as mode:
        found = call(q, k, v)
    assert mode.seen == [call]
    torch.testing.assert_close(found, attention(q, k, v, GRAPH))


def test_it_is_prepared_unseen():
    q, k, v = inputs()
    with Recorder() as mode:
        call = prepare(q, k, v, GRAPH, bias=alibi(4))
    assert not [f for f in mode.seen if "empty" in getattr(f, "__name__", "")]
    torch.testing.assert_close(
        call(q, k, v, tables=alibi(4).tables), attention(q, k, v, GRAPH, bias=alibi(4))
    )


@pytest.mark.parametrize("lse", [False, True])
def test_of_meta_tensors_it_gives_shapes(lse):
    x = torch.empty(2, 4, 12, 8, dtype=torch.bfloat16, device="meta")
    call = prepare(x, x, x[..., :3], GRAPH, return_lse=lse, device="cpu")
    found = flat(call(x, x, x[..., :3]))
    assert (found[0].shape, found[0].dtype) == ((2, 4, 12, 3), torch.bfloat16)
    if lse:
        assert (found[1].shape, found[1].dtype) == ((2, 4, 12), torch.float32)


@pytest.mark.parametrize(
    "name", ["nothing", "score", "heads", "lengths and bias", "per head", "edges"]
)
def test_a_trace_has_the_operator(name):
    torch._dynamo.reset()
    options = {**OPTIONS[name], "dropout": 0.0}
    q, k, v = inputs()
    call = prepared(q, k, v, options)
    seen = []

    def backend(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    traced = torch.compile(
        lambda q, k, v: call(q, k, v, **rest(options)), fullgraph=True, backend=backend
    )
    for a, b in zip(flat(traced(q, k, v)), flat(call(q, k, v, **rest(options))), strict=True):
        torch.testing.assert_close(a, b)
    assert any("attend" in target for target in seen)


def test_mistakes_are_found_when_it_is_prepared():
    x = torch.empty(2, 4, 12, 8, device="meta")
    with pytest.raises(UnsupportedDevice):
        prepare(x, x, x)
    with pytest.raises(AttentionShape):
        prepare(x, x, x[..., :-1, :], device="cpu")
    with pytest.raises(AttentionShape):
        prepare(x, x, x, bias=x[0, 0, :5], device="cpu")


def test_constants_of_scores_follow_the_call():
    """Here, as a meta tensor: a GPU is another device of the same kind."""
    from edgewise.kernels.attention.calls.term_arguments import constants_at

    (slopes,) = alibi(4).tables
    (first,), (again,) = (constants_at((slopes,), torch.device("meta")) for _ in range(2))
    assert first.is_meta
    assert first is again
    slopes.mul_(2)
    assert constants_at((slopes,), torch.device("meta"))[0] is not first
    assert constants_at((slopes,), slopes.device)[0] is slopes
    x = torch.empty(2, 4, 12, 8, device="meta")
    with pytest.raises(UnsupportedDevice, match="table of the score"):
        prepare(x, x, x, bias=relative(numbers(4, 7).to("cpu")), device="cuda")


def test_a_table_without_numbers_is_refused():
    q, k, v = inputs()
    with pytest.raises(UnsupportedDevice, match="a table of the score is on meta, `q` on cpu"):
        attention(q, k, v, GRAPH, bias=relative(torch.zeros(4, 7, device="meta")))


@pytest.mark.parametrize("option", ["bias", "score"])
@pytest.mark.parametrize("function", [alibi, softcap])
def test_a_function_that_makes_a_score_must_be_called(option, function):
    q, k, v = inputs()
    with pytest.raises(BadScore, match=rf"got a function(.|\n)*`{function.__name__}\(...\)`"):
        attention(q, k, v, GRAPH, **{option: function})


def test_a_copy_of_a_table_follows_what_is_changed_unseen():
    """By `.data` its version stays as it was."""
    table = torch.zeros(3)
    copied = term_arguments.constants_at((table,), torch.device("meta"))[0]
    assert term_arguments.constants_at((table,), torch.device("meta"))[0] is copied
    table.data += 1
    assert term_arguments.constants_at((table,), torch.device("meta"))[0] is not copied


def test_torch_alone_is_differentiated_once_in_a_model_too():
    rules = [
        (R.w(V.I, V.J) <= (R.x(V.J).T, R.x(V.I), R.special.leq(V.J, V.I)))
        | [F.product, F.softmax_agg(agg_terms=[V.J])],
        (R.y(V.I) <= (R.w(V.I, V.J), R.x(V.J)[4, 4])) | [F.product],
    ]
    x = torch.randn(20, 4, requires_grad=True)
    (once,) = torch.autograd.grad(Program(rules).compile(R.y, seed=0)(x=x).sum(), x)
    with pytest.raises(SecondDerivative, match="without="):
        torch.autograd.grad(Program(rules).compile(R.y, seed=0)(x=x).sum(), x, create_graph=True)
    listed = Program(rules).compile(R.y, seed=0, without=["fuse attention"])
    (twice,) = torch.autograd.grad(listed(x=x).sum(), x, create_graph=True)
    torch.testing.assert_close(twice, once)
    assert torch.autograd.grad(twice.sum(), x)[0].isfinite().all()


def test_what_is_not_aligned_is_copied_for_torch():
    x = torch.randn(65)
    whole, moved = x[:64].view(1, 2, 4, 8), x[1:].view(1, 2, 4, 8)
    found = aligned(whole, moved)
    assert found[0] is whole
    assert found[1].data_ptr() % 16 == 0
    assert torch.equal(found[1], moved)
