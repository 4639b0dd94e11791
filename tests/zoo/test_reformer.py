"""Reformer as rules: `transformers.ReformerModel` within a chunk, the paper's equations beyond."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch.nn import functional as f

from edgewise import R, numbers
from edgewise.zoo import reformer
from edgewise.zoo.pretrained.model import learnable

pytest.importorskip("transformers")
from theirs import KeepDouble, transformers

few = settings(max_examples=6, phases=[Phase.explicit, Phase.generate])


def theirs(config):
    made = transformers.ReformerConfig(
        vocab_size=config.vocabulary, hidden_size=config.size, num_attention_heads=config.heads,
        attention_head_size=config.size // config.heads, feed_forward_size=config.hidden,
        attn_layers=["lsh"] * config.layers, max_position_embeddings=config.length,
        axial_pos_embds=False, is_decoder=True, hidden_dropout_prob=0.0, hash_seed=0,
        lsh_attention_probs_dropout_prob=0.0, lsh_attn_chunk_length=config.length,
        layer_norm_eps=config.eps, hidden_act="relu", use_cache=False,
    )  # fmt: skip
    return transformers.ReformerModel(made).double().train()  # its layers are undone in training


def names(config):
    """Our weights → the names of theirs, and how many axes of ours are one there."""
    found = {
        "word": "embeddings.word_embeddings.weight",
        "position": "embeddings.position_embeddings.embedding.weight",
        "out.gain": "encoder.layer_norm.weight",
        "out.bias": "encoder.layer_norm.bias",
    }
    for k in range(config.layers):
        at = f"encoder.layers.{k}."
        found |= {
            f"layer.{k}.{ours}": at + part
            for ours, part in {
                "norm1.gain": "attention.layer_norm.weight",
                "norm1.bias": "attention.layer_norm.bias",
                "q.weight": "attention.self_attention.query_key.weight",
                "v.weight": "attention.self_attention.value.weight",
                "y1.weight": "attention.output.dense.weight",
                "norm2.gain": "feed_forward.layer_norm.weight",
                "norm2.bias": "feed_forward.layer_norm.bias",
                "mlp.weight": "feed_forward.dense.dense.weight",
                "mlp.bias": "feed_forward.dense.dense.bias",
                "y2.weight": "feed_forward.output.dense.weight",
                "y2.bias": "feed_forward.output.dense.bias",
            }.items()
        }
    return found


@few
@given(st.integers(1, 11), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_within_a_chunk_it_is_theirs(n, heads, layers, seed):
    torch.manual_seed(seed)
    config = reformer.Config(20, 4 * heads, heads, 7, layers, 12, rounds=0, dropout=0.0)
    peer = theirs(config)
    with torch.no_grad():
        for weight in peer.parameters():
            weight.normal_(0, 0.4)
    state = dict(peer.named_parameters())
    model = reformer.program(config).compile(R.out, seed=0, dtype=torch.float64)
    table = names(config)
    assert set(table) == set(learnable(model))
    ours = {name: model.weight(name) for name in table}
    with torch.no_grad():
        for name, weight in ours.items():
            weight.copy_(state[table[name]].reshape(weight.shape))
    token = torch.randint(0, 20, (2, n))
    found = model(token=numbers(token))
    with KeepDouble():
        expected = peer(token).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    direction = torch.randn_like(expected)
    mine = torch.autograd.grad((found * direction).sum(), list(ours.values()))
    with KeepDouble():
        (expected * direction).sum().backward()
    for name, gradient in zip(ours, mine, strict=True):
        other = state[table[name]].grad.reshape(gradient.shape)
        torch.testing.assert_close(gradient, other, rtol=1e-6, atol=1e-7, msg=name)


def normed(x, w, name, config):
    return f.layer_norm(x, x.shape[-1:], w(f"{name}.gain"), w(f"{name}.bias"), config.eps)


def affine(x, w, name):
    return x @ w(f"{name}.weight").T + w(f"{name}.bias")


def heard_by(q, directions):
    """Which pairs share a bucket in some round; a token hears itself if it hears no other."""
    turned = torch.einsum("bhnd,rkd->bhrnk", q, directions)
    bucket = torch.cat([turned, -turned], -1).argmax(-1)
    alike = (bucket[..., None] == bucket[..., None, :]).any(2)
    alike &= torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril(-1)
    alone = ~alike.any(-1)
    return alike | torch.diag_embed(alone)


def written(w, config, token):
    x = w("word")[token] + w("position")[: token.shape[1]]
    a = b = x
    for k in range(config.layers):
        at = f"layer.{k}."
        z = normed(b, w, f"{at}norm1", config)
        q, v = (torch.einsum("bne,hde->bhnd", z, w(f"{at}{part}.weight")) for part in "qv")
        key = q / (q.square().sum(-1, keepdim=True) + 1e-6 * q.shape[-1]).sqrt()
        pairs = heard_by(q.detach(), w(f"{at}direction"))
        weights = (q @ key.mT).masked_fill(~pairs, -torch.inf).softmax(-1)
        a = a + (weights @ v).transpose(1, 2).flatten(2) @ w(f"{at}y1.weight").T
        inner = affine(normed(a, w, f"{at}norm2", config), w, f"{at}mlp").relu()
        b = b + affine(inner, w, f"{at}y2")
    out = normed(torch.cat([a, b], -1), w, "out", config)
    return affine(out, w, "logits")


@few
@given(st.integers(1, 13), st.integers(1, 3), st.integers(1, 3), st.integers(0, 99))
def test_buckets_are_the_paper_s(n, directions, rounds, seed):
    config = reformer.Config(9, 4, 2, 5, 2, 16, directions, rounds, dropout=0.0)
    model = reformer.program(config).compile(R.logits, seed=seed, dtype=torch.float64)
    torch.manual_seed(seed)
    token = torch.randint(0, 9, (2, n))
    ours, expected = model(token=numbers(token)), written(model.weight, config, token)
    torch.testing.assert_close(ours, expected, rtol=1e-9, atol=1e-9)
    leaves = [model.weight(name) for name in learnable(model)]
    direction = torch.randn_like(expected)
    a = torch.autograd.grad((ours * direction).sum(), leaves)
    b = torch.autograd.grad((expected * direction).sum(), leaves)
    for one, other in zip(a, b, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-8)


def test_its_attention_is_one_node():
    config = reformer.Config(9, 4, 2, 5, 2, 16, 4, 2)
    model = reformer.program(config).compile(R.out, seed=0)
    token = numbers(torch.zeros(1, 5, dtype=torch.long))
    assert not model.explain(json=True, stage="passes", token=token)["passes"]["not fused"]
