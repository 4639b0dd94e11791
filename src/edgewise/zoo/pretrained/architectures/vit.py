"""ViT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import vit as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "vit", model, "logits"
ARCHITECTURES = {
    "ViTForImageClassification": Architecture("vit.", ("logits",)),
    "ViTModel": Architecture("", (), "out"),
}
OPTIONAL = ("pooled",)
NAMES = {k: v for k, v in bert.NAMES.items() if k not in ("vocabulary", "length")}
LAYER = {
    "norm1": "layernorm_before",
    **{k: bert.LAYER[k].replace("self", "attention") for k in ("q", "k", "v")},
    **{"attended": "attention.output.dense", "norm2": "layernorm_after"},
    **{"mlp": "intermediate.dense", "out": "output.dense"},
}
TIED: dict[str, str] = {}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("qkv_bias", True)
    fields.fixed("pooler_act", "tanh")
    image, patch = fields.size("image_size"), fields.size("patch_size")
    fields.divided(image, patch, "image_size", "pixels")
    return model.Config(
        image=image,
        patch=patch,
        channels=fields.size("num_channels", default=3),
        classes=fields.labels(),
        **fields.read(NAMES, activation="gelu", eps=1e-12, dropout=0.0),
    )


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        "image_size": config.image,
        "patch_size": config.patch,
        "num_channels": config.channels,
        **bert.classes(config.classes),
        **written(config, NAMES),
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    d, at = config.size, f"{prefix}embeddings"
    yield TensorEntry("class", f"{at}.cls_token", shape=(1, 1, d))
    rows = (1, config.side**2 + 1, d)
    yield TensorEntry("position", f"{at}.position_embeddings", shape=rows)
    kernel = (d, config.channels, config.patch, config.patch)
    yield TensorEntry("patch.weight", f"{at}.patch_embeddings.projection.weight", shape=kernel)
    yield TensorEntry("patch.bias", f"{at}.patch_embeddings.projection.bias")
    yield from layers(config, "layer", f"{prefix}encoder.layer", LAYER)
    yield from norm("out", f"{prefix}layernorm")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {
        "pooled": linear("pooled", f"{prefix}pooler.dense"),
        "logits": linear("logits", "classifier"),
    }
