"""DeBERTa as rules is `transformers.DebertaModel`: outputs and gradients, also beyond its reach."""

import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from edgewise import R, numbers
from edgewise.zoo import deberta
from edgewise.zoo.pretrained.model import learnable

transformers = pytest.importorskip("transformers")


def in_full_precision(norm, x):
    """What their norm computes, but for its passage through float32."""
    return torch.nn.functional.layer_norm(
        x, x.shape[-1:], norm.weight, norm.bias, norm.variance_epsilon
    )


def theirs(config, positions=64):
    made = transformers.DebertaConfig(
        vocab_size=config.vocabulary, hidden_size=config.size, num_hidden_layers=config.layers,
        num_attention_heads=config.heads, intermediate_size=config.hidden,
        max_position_embeddings=positions, max_relative_positions=config.reach,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"], position_biased_input=False, type_vocab_size=0,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, layer_norm_eps=config.eps,
        pad_token_id=0,
    )  # fmt: skip
    return transformers.DebertaModel(made).double().eval()


def names(config):
    """Our weights → where theirs are, as a function of their state."""
    d, h = config.size // config.heads, config.heads
    found = {
        "word": lambda s: s["embeddings.word_embeddings.weight"],
        "embedded.gain": lambda s: s["embeddings.LayerNorm.weight"],
        "embedded.bias": lambda s: s["embeddings.LayerNorm.bias"],
        "place": lambda s: s["encoder.rel_embeddings.weight"],
    }

    def at(k, name):
        return lambda s: s[f"encoder.layer.{k}.{name}"]

    def split(read, *shape):
        return lambda s: read(s).reshape(shape)

    for k in range(config.layers):
        own = "attention.self."
        for n, part in enumerate("qkv"):
            whole = split(at(k, f"{own}in_proj.weight"), h, 3, d, config.size)
            found[f"layer.{k}.{part}.weight"] = lambda s, w=whole, n=n: w(s)[:, n]
        found[f"layer.{k}.q.bias"] = split(at(k, f"{own}q_bias"), h, d)
        found[f"layer.{k}.v.bias"] = split(at(k, f"{own}v_bias"), h, d)
        found[f"layer.{k}.place_k.weight"] = split(
            at(k, f"{own}pos_proj.weight"), h, d, config.size
        )
        found[f"layer.{k}.place_q.weight"] = split(
            at(k, f"{own}pos_q_proj.weight"), h, d, config.size
        )
        found[f"layer.{k}.place_q.bias"] = split(at(k, f"{own}pos_q_proj.bias"), h, d)
        for ours, part in {
            "attended.weight": "attention.output.dense.weight",
            "attended.bias": "attention.output.dense.bias",
            "norm1.gain": "attention.output.LayerNorm.weight",
            "norm1.bias": "attention.output.LayerNorm.bias",
            "mlp.weight": "intermediate.dense.weight",
            "mlp.bias": "intermediate.dense.bias",
            "added.weight": "output.dense.weight",
            "added.bias": "output.dense.bias",
            "norm2.gain": "output.LayerNorm.weight",
            "norm2.bias": "output.LayerNorm.bias",
        }.items():
            found[f"layer.{k}.{ours}"] = at(k, part)
    return found


@settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(st.sampled_from([2, 3, 16]), st.sampled_from([1, 2, 5, 9]), st.integers(0, 99))
def test_deberta_is_theirs(reach, n, seed):
    torch.manual_seed(seed)
    config = deberta.Config(20, 6, 2, 12, 2, reach, dropout=0.0)  # √(3d) = 3: theirs is a float32
    peer = theirs(config)
    kinds = {type(m) for m in peer.modules() if type(m).__name__ == "DebertaLayerNorm"}
    with torch.no_grad():
        for weight in peer.parameters():
            weight.normal_(0, 0.4)
    model = deberta.program(config).compile(R.out, seed=0, dtype=torch.float64)
    table = names(config)
    assert set(table) == set(learnable(model))
    state = dict(peer.named_parameters())
    with torch.no_grad():
        for ours, read in table.items():
            model.weight(ours).copy_(read(state))
    token = torch.randint(1, 20, (2, n))
    lengths = torch.tensor([n, max(1, n - 2)])
    mask = (torch.arange(n) < lengths[:, None]).double()
    found = model(token=numbers(token), mask=mask[..., None])
    with pytest.MonkeyPatch.context() as patch:
        for kind in kinds:
            patch.setattr(kind, "forward", in_full_precision)
        expected = peer(token, attention_mask=mask).last_hidden_state
    real = mask.bool()
    torch.testing.assert_close(found[real], expected[real], rtol=1e-9, atol=1e-9)
    ours = list(table)
    mine = torch.autograd.grad(
        found[real].square().sum(), [model.weight(o) for o in ours], materialize_grads=True
    )
    peers = torch.autograd.grad(
        expected[real].square().sum(), list(state.values()), materialize_grads=True
    )
    grads = dict(zip(state, peers, strict=True))
    for name, gradient in zip(ours, mine, strict=True):
        torch.testing.assert_close(gradient, table[name](grads), rtol=1e-7, atol=1e-8)
