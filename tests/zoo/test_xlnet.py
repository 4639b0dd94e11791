"""XLNet as rules is `transformers.XLNetModel`: both streams, outputs and gradients."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from edgewise import R, numbers
from edgewise.zoo import xlnet
from edgewise.zoo.pretrained.model import learnable

pytest.importorskip("transformers")
from theirs import KeepDouble, transformers


def theirs(config):
    made = transformers.XLNetConfig(
        vocab_size=config.vocabulary, d_model=config.size, n_layer=config.layers,
        n_head=config.heads, d_inner=config.hidden, layer_norm_eps=config.eps, dropout=0.0,
        mem_len=None, use_mems_eval=False,
    )  # fmt: skip
    return transformers.XLNetModel(made).double().eval()


def names(config):
    """Our weights → where theirs are, as functions of their state."""
    found = {"word": lambda s: s["word_embedding.weight"]}
    if config.guesses:
        found["blank"] = lambda s: s["mask_emb"].flatten()

    def at(k, name, change=lambda t: t):
        return lambda s: change(s[f"layer.{k}.{name}"])

    for k in range(config.layers):
        own = f"layer.{k}."
        for ours, part in {"q": "q", "k": "k", "value": "v", "place": "r"}.items():
            found[f"{own}{ours}.weight"] = at(k, f"rel_attn.{part}", lambda t: t.permute(1, 2, 0))
        found[f"{own}attended.weight"] = at(k, "rel_attn.o", lambda t: t.flatten(1))
        for ours, part in {"u": "r_w_bias", "v": "r_r_bias", "w": "r_s_bias"}.items():
            found[f"{own}{ours}"] = at(k, f"rel_attn.{part}")
        for n, ours in enumerate(("same", "other")):
            found[f"{own}{ours}"] = at(k, "rel_attn.seg_embed", lambda t, n=n: t[n][:, None])
        for ours, part in {
            "norm1.gain": "rel_attn.layer_norm.weight",
            "norm1.bias": "rel_attn.layer_norm.bias",
            "mlp.weight": "ff.layer_1.weight",
            "mlp.bias": "ff.layer_1.bias",
            "added.weight": "ff.layer_2.weight",
            "added.bias": "ff.layer_2.bias",
            "norm2.gain": "ff.layer_norm.weight",
            "norm2.bias": "ff.layer_norm.bias",
        }.items():
            found[f"{own}{ours}"] = at(k, part)
    return found


def assert_same(config, inputs, real, output, run):
    """Outputs and the gradients of all weights, where `real`."""
    peer = theirs(config)
    with torch.no_grad():
        for weight in peer.parameters():
            weight.normal_(0, 0.4)
    state = dict(peer.named_parameters())
    model = xlnet.program(config).compile(R[output], seed=0, dtype=torch.float64)
    assert not model.explain(json=True, stage="passes", **inputs)["passes"]["not fused"]
    table = names(config)
    assert set(learnable(model)) <= set(table)
    ours = [model.weight(name) for name in learnable(model)]
    with torch.no_grad():
        for name, weight in zip(learnable(model), ours, strict=True):
            weight.copy_(table[name](state))
    found = model(**inputs)
    with KeepDouble():
        expected = run(peer)
    torch.testing.assert_close(found[real], expected[real], rtol=1e-9, atol=1e-9)
    direction = torch.randn_like(expected[real])
    mine = torch.autograd.grad((found[real] * direction).sum(), ours, materialize_grads=True)
    with KeepDouble():
        peers = torch.autograd.grad(
            (expected[real] * direction).sum(), list(state.values()), materialize_grads=True
        )
    grads = dict(zip(state, peers, strict=True))
    for name, gradient in zip(learnable(model), mine, strict=True):
        torch.testing.assert_close(gradient, table[name](grads), rtol=1e-7, atol=1e-8, msg=name)


def text(n, segments):
    token, segment = torch.randint(0, 20, (2, n)), torch.randint(0, segments, (2, n))
    mask = (torch.arange(n) < torch.tensor([n, max(1, n - 2)])[:, None]).double()
    inputs = {"token": numbers(token), "mask": mask[..., None], "segment": numbers(segment)}
    return token, segment, mask, inputs


few = settings(max_examples=5, phases=[Phase.explicit, Phase.generate])


@few
@given(st.sampled_from([1, 2, 5, 9]), st.integers(1, 3), st.integers(1, 2), st.integers(0, 99))
def test_the_stream_of_content_is_theirs(n, heads, layers, seed):
    torch.manual_seed(seed)
    config = xlnet.Config(20, 4 * heads, heads, 7, layers, dropout=0.0)
    token, segment, mask, inputs = text(n, 3)

    def run(model):
        return model(token, attention_mask=mask, token_type_ids=segment).last_hidden_state

    assert_same(config, inputs, mask.bool(), "out", run)


@few
@given(st.sampled_from([2, 5, 8]), st.integers(0, 99))
def test_the_stream_of_guesses_is_theirs(n, seed):
    """Tokens are guessed in a random order, each from those before it and the first token."""
    torch.manual_seed(seed)
    config = xlnet.Config(20, 6, 2, 7, 2, guesses=True, dropout=0.0)
    token, segment, mask, inputs = text(n, 3)
    order = torch.rand(2, n)
    order[:, 0] = -1
    hides = (order[:, :, None] <= order[:, None]).double()
    hides[:, :, 0] = 0
    eye = torch.eye(n, dtype=torch.float64).expand(2, n, n)

    def run(model):
        return model(
            token, attention_mask=mask, token_type_ids=segment, perm_mask=hides, target_mapping=eye
        ).last_hidden_state

    assert_same(config, inputs | {"hides": hides[..., None]}, mask.bool(), "guess", run)
