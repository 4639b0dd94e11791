"""DistilBERT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import bert as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.entries import TensorEntry, linear, norm
from edgewise.zoo.pretrained.fields import Fields, activation_name, head_size

MODEL_TYPE, MODEL, OUTPUT = "distilbert", model, "embedding"
ARCHITECTURES = {"DistilBertModel": ("", ()), "DistilBertForMaskedLM": ("distilbert.", ("logits",))}
TIED = {"vocab_projector.weight": "embeddings.word_embeddings.weight"}


def read_config(fields: Fields) -> model.Config:
    size, heads = fields.size("dim"), fields.size("n_heads")
    head_size(size, heads, "dim")
    return model.Config(
        vocabulary=fields.size("vocab_size"),
        size=size,
        heads=heads,
        hidden=fields.size("hidden_dim"),
        layers=fields.layers("n_layers"),
        positions=fields.size("max_position_embeddings"),
        types=0,
        activation=fields.activation("activation", default="gelu"),
        dropout=fields.rate("dropout", default=0.1),
    )


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        "vocab_size": config.vocabulary,
        "dim": config.size,
        "n_heads": config.heads,
        "hidden_dim": config.hidden,
        "n_layers": config.layers,
        "max_position_embeddings": config.positions,
        "activation": activation_name(config.activation),
        "dropout": config.dropout,
        "attention_dropout": config.dropout,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.embeddings(prefix, types=False)
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}transformer.layer.{i}"
        for name in "qkv":
            yield from linear(f"{ours}.{name}", f"{theirs}.attention.{name}_lin", joined=2)
        yield from linear(f"{ours}.attended", f"{theirs}.attention.out_lin")
        yield from norm(f"{ours}.norm1", f"{theirs}.sa_layer_norm")
        yield from linear(f"{ours}.mlp", f"{theirs}.ffn.lin1")
        yield from linear(f"{ours}.added", f"{theirs}.ffn.lin2")
        yield from norm(f"{ours}.norm2", f"{theirs}.output_layer_norm")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {
        "logits": [
            *linear("guess", "vocab_transform"),
            *norm("guessed", "vocab_layer_norm"),
            TensorEntry("logits.bias", "vocab_projector.bias"),
        ]
    }
