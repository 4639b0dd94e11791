"""A pruned model equals the full one with those heads masked, and has fewer weights."""

import pytest
import torch

from edgewise import EdgewiseError, F, Program, R, V, W, load
from edgewise.inputs.kinds import numbers
from edgewise.pruning import prune
from edgewise.pruning.layers import head_layers
from edgewise.zoo import bert, encoder, gpt2, llama, vit

SIZES = {"size": 12, "heads": 4, "hidden": 8, "layers": 2, "dropout": 0.1}
TOKENS = {"vocabulary": 11, "length": 9}


def text(**more):
    return {"token": numbers(torch.tensor([[1, 2, 3, 4, 5]])), **more}


def double(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


MASK = torch.tensor([[1.0, 1, 1, 1, 0]], dtype=torch.float64).unsqueeze(-1)
MODELS = {
    "bert": (
        bert.program(bert.Config(**SIZES, **TOKENS)),
        R.out,
        text(mask=MASK, segment=numbers(torch.zeros(1, 5, dtype=torch.int64))),
    ),
    "mpnet": (
        bert.program(bert.Config(**SIZES, **TOKENS, types=0, buckets=4)),
        R.out,
        text(mask=MASK),
    ),
    "gpt2": (gpt2.program(gpt2.Config(**SIZES, **TOKENS)), R.logits, text()),
    "alibi": (gpt2.program(gpt2.Config(**SIZES, **TOKENS, positions="alibi")), R.logits, text()),
    "relative": (
        gpt2.program(gpt2.Config(**SIZES, **TOKENS, positions="relative")),
        R.logits,
        text(),
    ),
    "window": (gpt2.program(gpt2.Config(**SIZES, **TOKENS, graph="window(1)")), R.logits, text()),
    "llama": (llama.program(llama.Config(**SIZES, **TOKENS, groups=2, d=4)), R.logits, text()),
    "gemma": (
        llama.program(
            llama.Config(
                **SIZES, **TOKENS, groups=4, d=4, post_norm=True, qk_norm=True, shifted=True,
                scaled=True, biases=("q", "v", "attended"),
            )
        ),
        R.logits,
        text(),
    ),
    "vit": (
        vit.program(vit.Config(image=4, patch=2, channels=1, classes=3, **SIZES)),
        R.logits,
        {"pixel": double(1, 4, 4)},
    ),
    "encoder": (encoder.program(encoder.Config(**SIZES)), R.out, {"x": double(2, 5, 12)}),
}  # fmt: skip
HEADS = [{0: [0]}, {0: [1, 3], 1: [2]}, {1: [0, 1, 2, 3]}]
PAIRS = [{0: [0, 1]}, {0: [0, 1, 2, 3], 1: [2, 3]}]


def cases():
    for name in MODELS:
        for heads in PAIRS if name == "llama" else HEADS:
            yield pytest.param(name, heads, id=f"{name}-{heads}".replace(" ", ""))


def masked(model, heads):
    """The same with values of 0 in some heads."""
    for number, layer in enumerate(head_layers(model.program)):
        for h in {head // layer.each for head in heads.get(number, ())}:
            for name, axis in layer.values:
                model.weight(name).data.select(axis, h).zero_()


def assert_pruned(small, full, heads, inputs):
    masked(full, heads)
    found, expected = small(**inputs), full(**inputs)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    found.sin().sum().backward()
    expected.sin().sum().backward()
    for name in small._paths:
        ours, theirs = small.weight(name), full.weight(name)
        if ours.shape == theirs.shape and isinstance(ours, torch.nn.Parameter):
            grad = torch.zeros_like(ours) if ours.grad is None else ours.grad
            torch.testing.assert_close(grad, theirs.grad, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("name", "heads"), list(cases()))
def test_it_equals_the_masked_model(name, heads, tmp_path):
    program, output, inputs = MODELS[name]
    full = program.compile(output, seed=3, dtype=torch.float64).eval()
    small = prune(full, heads)
    count = sum(p.numel() for p in small.parameters())
    assert count < sum(p.numel() for p in full.parameters())
    small.save(tmp_path / "small.edgewise")
    again = load(tmp_path / "small.edgewise").eval()
    assert_pruned(small, full, heads, inputs)
    torch.testing.assert_close(again(**inputs), small(**inputs))
    plan = str(small.explain(stage="kernels", **inputs))
    assert "not one attention" not in plan


def test_gradients_of_the_heads_that_stay_are_theirs():
    program, output, inputs = MODELS["gpt2"]
    full = program.compile(output, seed=3, dtype=torch.float64).eval()
    small = prune(full, {0: [1]})
    assert_pruned(small, full, {0: [1]}, inputs)
    left = [0, 2, 3]
    for name in ("q.weight", "q.bias", "k.weight", "v.weight"):
        theirs = full.weight(f"layer.0.{name}").grad[left]
        torch.testing.assert_close(small.weight(f"layer.0.{name}").grad, theirs)
    columns = full.weight("layer.0.attended.weight").grad.unflatten(1, (4, 3))[:, left].flatten(1)
    torch.testing.assert_close(small.weight("layer.0.attended.weight").grad, columns)


def test_it_can_be_pruned_again_and_heads_are_counted_anew():
    program, output, inputs = MODELS["gpt2"]
    full = program.compile(output, seed=3, dtype=torch.float64).eval()
    twice = prune(prune(full, {0: [1]}), {0: [1], 1: [-1]})
    once = prune(full, {0: [1, 2], 1: [3]})
    torch.testing.assert_close(twice(**inputs), once(**inputs))


def test_a_copy_shares_no_weights():
    program, output, inputs = MODELS["gpt2"]
    full = program.compile(output, seed=3, dtype=torch.float64).eval()
    before = full(**inputs)
    small = prune(full, {})
    with torch.no_grad():
        for weight in small.parameters():
            weight.zero_()
    torch.testing.assert_close(full(**inputs), before)


def rules(readout=True, aggregation=F.concat_agg, domains=4):
    body = [R[n](V.H, V.I) <= R.x(V.I)[W[n](V.H)[3, 5]] for n in "qkv"]
    body += [
        (R.w(V.H, V.I, V.J) <= R.k(V.H, V.J).T @ R.q(V.H, V.I)) | [F.softmax_agg(agg_terms=[V.J])],
        (R.a(V.H, V.I) <= (R.w(V.H, V.I, V.J), R.v(V.H, V.J))) | [F.product],
        (R.o(V.I) <= R.a(V.H, V.I)) | [aggregation],
        R.y(V.I) <= (R.o(V.I)[5, 12] if readout else R.o(V.I)),
    ]
    return Program(body, domains={V.H: domains})


def test_rules_of_ones_own():
    full = rules().compile(R.y, seed=0, dtype=torch.float64)
    assert_pruned(prune(full, {0: [0, 2]}), full, {0: [0, 2]}, {"x": double(4, 5)})


def test_heads_that_are_summed_by_weights_of_their_own():
    program = rules()
    summed = R.z(V.I) <= R.a(V.H, V.I)[W.out(V.H)[5, 3]]
    program = Program([*program.statements[:5], summed], domains={V.H: ["a", "b", "c"]})
    full = program.compile(R.z, seed=0, dtype=torch.float64, dense=True, fill=0.0)
    assert_pruned(prune(full, {0: [1]}), full, {0: [1]}, {"x": double(4, 5)})


@pytest.mark.parametrize(
    ("made", "heads", "code"),
    [
        (lambda: rules(), {0: [4]}, "no-such-head"),
        (lambda: rules(), {1: [0]}, "no-such-head"),
        (lambda: rules(), {0: ["a"]}, "no-such-head"),
        (lambda: rules(), {0: 1}, "no-such-head"),
        (lambda: rules(), [0], "no-such-head"),
        (lambda: rules(), {0: [0, 1, 2, 3]}, "not-prunable"),
        (lambda: rules(readout=False), {0: [0]}, "not-prunable"),
        (lambda: rules(False, F.avg_agg), {0: [0]}, "not-prunable"),
        (lambda: Program([R.y(V.I) <= R.x(V.I)]), {0: [0]}, "no-attention"),
    ],
)
def test_what_cannot_be_pruned(made, heads, code):
    with pytest.raises(EdgewiseError) as found:
        prune(made().compile(R.y, seed=0), heads)
    assert found.value.code == code


def test_grouped_heads_go_together():
    program, output, _ = MODELS["llama"]
    with pytest.raises(EdgewiseError, match="share keys") as found:
        prune(program.compile(output, seed=0), {0: [1]})
    assert found.value.code == "not-prunable"


def test_what_is_not_a_model():
    with pytest.raises(EdgewiseError) as found:
        prune(torch.nn.Linear(2, 2), {0: [0]})
    assert found.value.code == "not-prunable"
