"""DeBERTa as Hugging Face saves it: the rows of q, k and v are one matrix, head by head."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import deberta as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "deberta", model, "embedding"
ARCHITECTURES = bert.architectures("Deberta", "deberta.")
OPTIONAL: tuple[str, ...] = ()
NAMES = bert.NAMES | {"pooling": "pooler_hidden_act"}
LAYER = {name: bert.LAYER[name] for name in ("attended", "norm1", "mlp", "added", "norm2")}
TIED = bert.TIED
TERMS = {"c2p", "p2c"}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("talking_head", False)
    return model.Config(**sizes(fields))


def sizes(fields: Fields) -> dict[str, Any]:
    """What the configurations of all versions have in common."""
    for name, wanted in {"relative_attention": True, "position_biased_input": False}.items():
        if fields.flag(name, default=not wanted) is not wanted:
            fields.refuse(name, not wanted, f"{wanted}: nothing else is supported", None)
    for name, value in {"type_vocab_size": 0, "legacy": True}.items():
        fields.fixed(name, value)
    said = fields.table.get("pos_att_type")
    kinds = said.lower().split("|") if isinstance(said, str) else said
    if not isinstance(kinds, list) or {str(kind).strip() for kind in kinds} != TERMS:
        fields.refuse("pos_att_type", said, "both of c2p and p2c", None)
    names = {k: v for k, v in NAMES.items() if k != "pooling"}
    found = fields.read(names, activation="gelu", eps=1e-7, dropout=0.1)
    for name in ("embedding_size", "pooler_hidden_size"):
        fields.equal(name, "hidden_size", found["size"])
    fields.equal("attention_head_size", "a head", found["size"] // found["heads"])
    said = fields.table.get("max_relative_positions", -1)
    reach = found["length"] if isinstance(said, int) and said < 1 else None
    reach = fields.size("max_relative_positions", least=2) if reach is None else reach
    pooling = fields.activation("pooler_hidden_act", default="gelu")
    return {**found, "reach": reach, "pooling": pooling, "labels": fields.labels()}


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        **written(config, NAMES),
        **bert.classes(config.labels),
        "relative_attention": True,
        "position_biased_input": False,
        "pos_att_type": ["c2p", "p2c"],
        "max_relative_positions": config.reach,
        "type_vocab_size": 0,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from tables(config, prefix)
    size, heads, d = config.size, config.heads, config.size // config.heads
    shape, view = (3 * size, size), (heads, 3, d, size)
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}encoder.layer.{i}.attention.self"
        for k, name in enumerate("qkv"):
            at, part = f"{theirs}.in_proj.weight", (1, k, 3)
            yield TensorEntry(f"{ours}.{name}.weight", at, part=part, shape=shape, view=view)
        for name in "qv":
            yield TensorEntry(f"{ours}.{name}.bias", f"{theirs}.{name}_bias", joined=2)
        yield from linear(f"{ours}.place_k", f"{theirs}.pos_proj", joined=2, bias=False)
        yield from linear(f"{ours}.place_q", f"{theirs}.pos_q_proj", joined=2)
    yield from layers(config, "layer", f"{prefix}encoder.layer", LAYER)


def tables(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}embeddings.word_embeddings.weight")
    yield from norm("embedded", f"{prefix}embeddings.LayerNorm")
    yield TensorEntry("place", f"{prefix}encoder.rel_embeddings.weight")


def task_heads(config: Any, prefix: str) -> dict[str, list[TensorEntry]]:
    heads = {k: v for k, v in bert.task_heads(config, prefix).items() if k != "follows"}
    return heads | {"pooled": linear("pooled", "pooler.dense")}
