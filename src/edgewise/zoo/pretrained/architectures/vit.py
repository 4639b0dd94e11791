"""ViT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import vit as model
from edgewise.zoo.pretrained.entries import TensorEntry, linear, norm
from edgewise.zoo.pretrained.fields import Fields, activation_name, head_size

MODEL_TYPE, MODEL, OUTPUT = "vit", model, "logits"
ARCHITECTURES = {"ViTForImageClassification": ("vit.", ("logits",)), "ViTModel": ("", ("pooled",))}
TIED: dict[str, str] = {}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("qkv_bias", True)
    fields.fixed("pooler_act", "tanh")
    size, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    head_size(size, heads, "hidden_size")
    image, patch = fields.size("image_size"), fields.size("patch_size")
    head_size(image, patch, "image_size")
    labels = fields.table.get("id2label")
    return model.Config(
        image=image,
        patch=patch,
        channels=fields.size("num_channels", default=3),
        size=size,
        heads=heads,
        hidden=fields.size("intermediate_size"),
        layers=fields.layers("num_hidden_layers"),
        classes=max(len(labels), 1) if isinstance(labels, dict) else 2,
        activation=fields.activation("hidden_act", default="gelu"),
        eps=fields.number("layer_norm_eps", default=1e-12),
        dropout=fields.rate("hidden_dropout_prob"),
    )


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        "image_size": config.image,
        "patch_size": config.patch,
        "num_channels": config.channels,
        "hidden_size": config.size,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "id2label": {str(k): f"LABEL_{k}" for k in range(config.classes)},
        "label2id": {f"LABEL_{k}": k for k in range(config.classes)},
        "hidden_act": activation_name(config.activation),
        "layer_norm_eps": config.eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    d, at = config.size, f"{prefix}embeddings"
    yield TensorEntry("class", f"{at}.cls_token", shape=(1, 1, d))
    rows = (1, config.side**2 + 1, d)
    yield TensorEntry("position", f"{at}.position_embeddings", shape=rows)
    kernel = (d, config.channels, config.patch, config.patch)
    yield TensorEntry("patch.weight", f"{at}.patch_embeddings.projection.weight", shape=kernel)
    yield TensorEntry("patch.bias", f"{at}.patch_embeddings.projection.bias")
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}encoder.layer.{i}"
        yield from norm(f"{ours}.norm1", f"{theirs}.layernorm_before")
        for our, their in {"q": "query", "k": "key", "v": "value"}.items():
            yield from linear(f"{ours}.{our}", f"{theirs}.attention.attention.{their}", joined=2)
        yield from linear(f"{ours}.attended", f"{theirs}.attention.output.dense")
        yield from norm(f"{ours}.norm2", f"{theirs}.layernorm_after")
        yield from linear(f"{ours}.mlp", f"{theirs}.intermediate.dense")
        yield from linear(f"{ours}.out", f"{theirs}.output.dense")
    yield from norm("out", f"{prefix}layernorm")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {
        "pooled": linear("pooled", f"{prefix}pooler.dense"),
        "logits": linear("logits", "classifier"),
    }
