"""How far back models hear, and how they remember it, against their equations in plain torch."""

import math

import torch
from gradients import assert_equal_with_gradients
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as f

from edgewise import R, numbers
from edgewise.zoo import adaptive_span, compressive, transformer_xl

few = settings(max_examples=6, phases=[Phase.explicit, Phase.generate])


def normed(x, w, name):
    return f.layer_norm(x, x.shape[-1:], w(f"{name}.gain"), w(f"{name}.bias"))


def affine(x, w, name):
    return x @ w(f"{name}.weight").T + w(f"{name}.bias")


def by_head(x, w, name):
    return torch.einsum("bne,hde->bhnd", x, w(f"{name}.weight"))


def places(count, size):
    """r(0), r(1), ...: sines, then cosines."""
    speed = 10_000.0 ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
    angle = torch.arange(count)[:, None] * speed
    return torch.cat([angle.sin(), angle.cos()], 1)


def relative_scores(x, z, w, at, config, far):
    """(qᵢ + u) · kⱼ + (qᵢ + v) · P r(farᵢⱼ), and which pairs are heard: those not ahead."""
    q, k = by_head(x, w, f"{at}q"), by_head(z, w, f"{at}k")
    u, v = w("u")[:, None], w("v")[:, None]
    r = places(int(far.max()) + 1, config.size).to(x.dtype)
    away = torch.einsum("ne,hde->hnd", r, w(f"{at}away.weight"))[:, far.clamp(min=0)]
    scores = (q + u) @ k.mT + torch.einsum("bhid,hijd->bhij", q + v, away)
    scores = scores / math.sqrt(config.size // config.heads)
    return scores.masked_fill(far < 0, -torch.inf)


def after(x, heard, w, at):
    mid = normed(x + affine(heard.transpose(1, 2).flatten(2), w, f"{at}attended"), w, f"{at}norm1")
    return normed(mid + affine(affine(mid, w, f"{at}mlp").relu(), w, f"{at}added"), w, f"{at}norm2")


def xl(w, config, token, memory):
    """Logits, and what each layer read."""
    x = w("word")[token]
    read = [x]
    for k in range(config.layers):
        at = f"layer.{k}."
        z = torch.cat([memory[:, k], x], 1)
        far = torch.arange(x.shape[1])[:, None] + memory.shape[2] - torch.arange(z.shape[1])
        weights = relative_scores(x, z, w, at, config, far).softmax(-1)
        x = after(x, weights @ by_head(z, w, f"{at}value"), w, at)
        read.append(x)
    return x @ w("word").T, torch.stack(read, 1)


def squeezed(w, k, memory, rate):
    """A convolution whose step is as long as its kernel."""
    taps = w(f"layer.{k}.taps").permute(1, 2, 0)
    return f.conv1d(memory.mT, taps, w(f"layer.{k}.short.bias"), stride=rate).mT


def recalled(w, k, x, rows):
    """Attention to rows without places."""
    q, key, v = (
        by_head(r, w, f"layer.{k}.{p}") for r, p in ((x, "q"), (rows, "k"), (rows, "value"))
    )
    return (q @ key.mT / math.sqrt(q.shape[-1])).softmax(-1) @ v


@few
@given(st.integers(0, 4), st.lists(st.integers(4, 7), max_size=2), st.integers(1, 5))
def test_transformer_xl(m, segments, last):
    config = transformer_xl.Config(9, 4, 2, 5, 2, m, dropout=0.0)
    program = transformer_xl.program(config)
    model = program.compile([R.logits, R.states], seed=0, dtype=torch.float64)
    torch.manual_seed(m)
    memory = torch.zeros(2, 3, 0, 4, dtype=torch.float64)
    for n in (*segments, last):
        token = torch.randint(0, 9, (2, n))
        inputs = {"token": numbers(token), "memory": memory}
        theirs, read = xl(model.weight, config, token, memory)
        both = model(**inputs)
        assert_equal_with_gradients(model, both["logits"], theirs)
        found = both["states"].data.unflatten(1, (3, n))
        torch.testing.assert_close(found, read, rtol=1e-10, atol=1e-10)
        memory = found[:, :, n - m :].detach()
    assert not model.explain(json=True, stage="passes", **inputs)["passes"]["not fused"]


@settings(few, max_examples=4)
@given(
    st.integers(2, 5), st.integers(1, 3), st.integers(0, 3), st.integers(1, 4), st.integers(0, 99)
)  # fmt: skip
def test_compressive(m, rate, steps, last, seed):
    """Segments as long as the memory, so that all of it is compressed after each."""
    torch.manual_seed(seed)
    each = m // rate
    config = compressive.Config(
        9, 4, 2, 5, 2, m, dropout=0.0, compressed=each, rate=rate, loss=True
    )  # fmt: skip
    program = compressive.program(config)

    def compiled(relation):
        return program.compile(relation, seed=0, dtype=torch.float64)

    model, kept = compiled(R.logits), compiled(R.states)
    memory, compressed = (torch.zeros(2, 2, 0, 4, dtype=torch.float64) for _ in range(2))
    for n in (*[m] * steps, last):
        token = torch.randint(0, 9, (2, n))
        inputs = {"token": numbers(token), "memory": memory, "compressed": compressed}
        theirs, read = xl(model.weight, config, token, torch.cat([compressed, memory], 2))
        assert_equal_with_gradients(model, model(**inputs), theirs)
        if memory.shape[2] and each:
            made = []
            for k in range(2):
                at, x = f"layer.{k}.", read[:, k].detach()
                loss, found = compiled(R[f"{at}loss"]), compiled(R[f"{at}short"])
                loss.load_state_dict(model.state_dict(), strict=False)
                alone = squeezed(found.weight, k, memory[:, k], rate)
                torch.testing.assert_close(found(memory=memory).data, alone)
                short = squeezed(loss.weight, k, memory[:, k], rate)
                lost = recalled(loss.weight, k, x, memory[:, k])
                lost = (lost - recalled(loss.weight, k, x, short)).square().sum((1, 2, 3))
                ours = loss(**{name: inputs[name] for name in loss.inputs})
                torch.testing.assert_close(ours, lost)
                leaves = [loss.weight(at + part) for part in ("taps", "short.bias")]
                a = torch.autograd.grad(ours.sum(), leaves)
                b = torch.autograd.grad(lost.sum(), leaves, retain_graph=True)
                torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-9)
                made.append(short.detach())
            compressed = torch.cat([compressed, torch.stack(made, 1)], 2)[:, :, -each:]
        memory = kept(**inputs).data.unflatten(1, (3, n))[:, :2, -m:].detach()


def spanned(w, config, token):
    x = w("word")[token]
    n, d = token.shape[1], config.size // config.heads
    for k in range(config.layers):
        at = f"layer.{k}."
        q, key, v = (by_head(x, w, f"{at}{name}") for name in "qkv")
        outputs = [torch.zeros_like(v[:, :, 0])]
        for i in range(1, n):
            past = range(max(0, i - config.span), i)
            behind = torch.tensor([i - j for j in past])
            z = w(f"{at}span").clamp(0, config.span)
            mask = ((config.ramp + z - behind) / config.ramp).clamp(0, 1)
            near = key[:, :, past.start : i] + w(f"{at}place")[behind - 1]
            scores = torch.einsum("bhd,bhjd->bhj", q[:, :, i], near) / math.sqrt(d)
            shares = mask * scores.exp()
            shares = shares / shares.sum(-1, keepdim=True)
            outputs.append(torch.einsum("bhj,bhjd->bhd", shares, v[:, :, past.start : i]))
        heard = torch.stack(outputs, 1).flatten(2)
        mid = normed(x + heard @ w(f"{at}attended.weight").T, w, f"{at}norm1")
        inner = affine(mid, w, f"{at}mlp").relu()
        x = normed(mid + affine(inner, w, f"{at}added"), w, f"{at}norm2")
    return affine(x, w, "logits")


@few
@given(st.integers(1, 9), st.integers(1, 6), st.sampled_from([2, 3, 32]), st.integers(0, 99))
def test_adaptive_span(n, span, ramp, seed):
    config = adaptive_span.Config(9, 4, 2, 5, 2, span, ramp, dropout=0.0)
    model = adaptive_span.program(config).compile(R.logits, seed=0, dtype=torch.float64)
    torch.manual_seed(seed)
    with torch.no_grad():
        for k in range(2):  # some beyond what is allowed, below 0 or above the span
            model.weight(f"layer.{k}.span").uniform_(-1, span + 1)
    token = torch.randint(0, 9, (2, n))
    assert_equal_with_gradients(
        model, model(token=numbers(token)), spanned(model.weight, config, token)
    )
