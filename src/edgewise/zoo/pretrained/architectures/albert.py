"""ALBERT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import albert as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "albert", model, "embedding"
ARCHITECTURES = bert.architectures("Albert", "albert.") | {
    "AlbertForPreTraining": Architecture("albert.", ("pooled", "logits", "follows")),
}
OPTIONAL = ("pooled", "follows")
GROUPS = {"groups": "num_hidden_groups", "inner": "inner_group_num"}
LAYER = {
    "q": "attention.query",
    "k": "attention.key",
    "v": "attention.value",
    "attended": "attention.dense",
    "norm1": "attention.LayerNorm",
    "mlp": "ffn",
    "added": "ffn_output",
    "norm2": "full_layer_layer_norm",
}
TIED = {
    "predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "predictions.decoder.bias": "predictions.bias",
}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("position_embedding_type", "absolute")
    found = fields.read(bert.NAMES, activation="gelu_new", eps=1e-12, dropout=0.0)
    groups: dict[str, Any] = {
        ours: fields.layers(theirs, default=1) for ours, theirs in GROUPS.items()
    }
    if groups["groups"] > found["layers"]:
        fields.refuse("num_hidden_groups", groups["groups"], "at most the number of layers", 1)
    return model.Config(
        **found,
        **groups,
        types=fields.size("type_vocab_size", default=2),
        labels=fields.labels(),
        embedding=fields.size("embedding_size", default=128),
    )


def write_config(config: model.Config) -> dict[str, Any]:
    groups = {theirs: getattr(config, ours) for ours, theirs in GROUPS.items()}
    return bert.write_config(config) | groups | {"embedding_size": config.embedding}


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.embeddings(prefix)
    yield from linear("x", f"{prefix}encoder.embedding_hidden_mapping_in")
    for group in range(config.groups):
        for k in range(config.inner):
            theirs = f"{prefix}encoder.albert_layer_groups.{group}.albert_layers.{k}"
            for name, other in LAYER.items():
                at, joined = (f"group.{group}.{k}.{name}", f"{theirs}.{other}"), 1 + (name in "qkv")
                yield from norm(*at) if name.startswith("norm") else linear(*at, joined=joined)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {
        "pooled": linear("pooled", f"{prefix}pooler"),
        "follows": linear("follows", "sop_classifier.classifier"),
        "logits": [
            *linear("guess", "predictions.dense"),
            *norm("guessed", "predictions.LayerNorm"),
            TensorEntry("logits.bias", "predictions.bias"),
        ],
        **bert.classifiers("classifier"),
    }
