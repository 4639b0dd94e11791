"""GPT-2 as Hugging Face saves it: matrices are (in, out), and q, k, v are one."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import gpt2 as model
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, norm

MODEL_TYPE, MODEL, OUTPUT = "gpt2", model, "logits"
ARCHITECTURES = {"GPT2LMHeadModel": Architecture("transformer."), "GPT2Model": Architecture("")}
OPTIONAL: tuple[str, ...] = ()
NAMES = {
    "size": "n_embd",
    "heads": "n_head",
    "vocabulary": "vocab_size",
    "layers": "n_layer",
    "activation": "activation_function",
    "eps": "layer_norm_epsilon",
    "dropout": "resid_pdrop",
    "attention_dropout": "attn_pdrop",
}
TIED = {"lm_head.weight": "transformer.wte.weight"}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("scale_attn_weights", True)
    fields.fixed("scale_attn_by_inverse_layer_idx", False)
    fields.fixed("add_cross_attention", False)
    fields.fixed("tie_word_embeddings", True)
    found = fields.read(NAMES, activation="gelu_new", eps=1e-5, dropout=0.1)
    hidden = fields.size("n_inner", default=4 * found["size"])
    return model.Config(**found, hidden=hidden, length=fields.size("n_positions", "n_ctx"))


def write_config(config: model.Config) -> dict[str, Any]:
    more = {"n_inner": config.hidden, "n_positions": config.length, "embd_pdrop": config.dropout}
    return written(config, NAMES) | more


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}wte.weight")
    yield TensorEntry("position", f"{prefix}wpe.weight")
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}h.{i}"
        yield from norm(f"{ours}.norm1", f"{theirs}.ln_1")
        yield from queries(config, ours, theirs)
        yield from transposed(f"{ours}.attended", f"{theirs}.attn.c_proj")
        yield from norm(f"{ours}.norm2", f"{theirs}.ln_2")
        yield from transposed(f"{ours}.mlp", f"{theirs}.mlp.c_fc")
        yield from transposed(f"{ours}.out", f"{theirs}.mlp.c_proj")
    yield from norm("out", f"{prefix}ln_f")


def queries(config: Any, ours: str, theirs: str) -> Iterator[TensorEntry]:
    """Queries, keys and values, which are the columns of one matrix."""
    for k, name in enumerate("qkv"):
        part = k * config.size, 3 * config.size
        yield from transposed(f"{ours}.{name}", f"{theirs}.attn.c_attn", 2, part)


def transposed(
    ours: str, theirs: str, joined: int = 1, part: tuple[int, int] | None = None
) -> Iterator[TensorEntry]:
    """A matrix (in, out) and its bias; `part` is where ours starts among how many outputs."""
    columns, rows = ((1, *part), (0, *part)) if part else (None, None)
    yield TensorEntry(f"{ours}.weight", f"{theirs}.weight", joined, columns, order=(1, 0))
    yield TensorEntry(f"{ours}.bias", f"{theirs}.bias", joined, rows)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {}
