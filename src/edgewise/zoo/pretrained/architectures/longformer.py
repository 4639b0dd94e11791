"""Longformer as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import longformer as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear

MODEL_TYPE, MODEL, OUTPUT = "longformer", model, "out"
ARCHITECTURES = {"LongformerModel": Architecture("")}
OPTIONAL = ("pooled",)
TIED: dict[str, str] = {}


def read_config(fields: Fields) -> model.Config:
    width = fields.table.get("attention_window", 512)
    windows = width if isinstance(width, list) and width else [width]
    if len(set(map(repr, windows))) > 1:
        fields.problem(
            "the layers have different windows", "the rules repeat one layer: give one window"
        )
    window = Fields({"attention_window": windows[0]}, fields.problems).size(
        "attention_window", least=2
    )
    return model.Config(
        **bert.sizes(fields),
        labels=fields.labels(),
        types=fields.size("type_vocab_size", default=2),
        first=fields.size("pad_token_id", default=1, least=0) + 1,
        radius=window // 2,
    )


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        **bert.write_config(config),
        "pad_token_id": config.first - 1,
        "attention_window": [2 * config.radius] * config.layers,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.entries(config, prefix)
    for i in range(config.layers):
        for name in ("q", "k", "v"):
            theirs = f"{prefix}encoder.layer.{i}.{bert.LAYER[name]}_global"
            yield from linear(f"layer.{i}.global.{name}", theirs, joined=2)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {"pooled": linear("pooled", f"{prefix}pooler.dense")}
