"""GPT-2 as Hugging Face saves it: matrices are (in, out), and q, k, v are one."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import gpt2 as model
from edgewise.zoo.pretrained.entries import TensorEntry, norm
from edgewise.zoo.pretrained.fields import Fields, activation_name, head_size

MODEL_TYPE, MODEL, OUTPUT = "gpt2", model, "logits"
ARCHITECTURES = {"GPT2LMHeadModel": ("transformer.", ()), "GPT2Model": ("", ())}
TIED = {"lm_head.weight": "transformer.wte.weight"}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("scale_attn_weights", True)
    fields.fixed("scale_attn_by_inverse_layer_idx", False)
    fields.fixed("add_cross_attention", False)
    fields.fixed("tie_word_embeddings", True)
    size, heads = fields.size("n_embd"), fields.size("n_head")
    head_size(size, heads, "n_embd")
    return model.Config(
        vocabulary=fields.size("vocab_size"),
        size=size,
        heads=heads,
        hidden=fields.size("n_inner", default=4 * size),
        layers=fields.layers("n_layer"),
        positions=fields.size("n_positions", "n_ctx"),
        activation=fields.activation("activation_function", default="gelu_new"),
        eps=fields.number("layer_norm_epsilon", default=1e-5),
        dropout=fields.rate("resid_pdrop", default=0.1),
    )


def write_config(config: model.Config) -> dict[str, Any]:
    rates = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), config.dropout)
    return {
        "vocab_size": config.vocabulary,
        "n_embd": config.size,
        "n_head": config.heads,
        "n_inner": config.hidden,
        "n_layer": config.layers,
        "n_positions": config.positions,
        "activation_function": activation_name(config.activation),
        "layer_norm_epsilon": config.eps,
        **rates,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}wte.weight")
    yield TensorEntry("position", f"{prefix}wpe.weight")
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}h.{i}"
        yield from norm(f"{ours}.norm1", f"{theirs}.ln_1")
        for k, name in enumerate("qkv"):
            yield from _transposed(f"{ours}.{name}", f"{theirs}.attn.c_attn", 2, (k, 3))
        yield from _transposed(f"{ours}.attended", f"{theirs}.attn.c_proj")
        yield from norm(f"{ours}.norm2", f"{theirs}.ln_2")
        yield from _transposed(f"{ours}.mlp", f"{theirs}.mlp.c_fc")
        yield from _transposed(f"{ours}.out", f"{theirs}.mlp.c_proj")
    yield from norm("out", f"{prefix}ln_f")


def _transposed(
    ours: str, theirs: str, joined: int = 1, chunk: tuple[int, int] = (0, 1)
) -> Iterator[TensorEntry]:
    yield TensorEntry(f"{ours}.weight", f"{theirs}.weight", joined, transposed=True, chunk=chunk)
    yield TensorEntry(f"{ours}.bias", f"{theirs}.bias", joined, chunk=chunk)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {}
