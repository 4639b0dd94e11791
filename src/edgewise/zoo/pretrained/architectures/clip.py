"""CLIP as Hugging Face saves it: both towers, or one of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from edgewise.zoo import clip as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, norm

TOWER = {k: bert.NAMES[k] for k in ("size", "heads", "hidden", "layers", "eps")}
TOWER |= {"attention_dropout": "attention_dropout"}
LAYER = {
    "norm1": "layer_norm1",
    **{name: f"self_attn.{name}_proj" for name in "qkv"},
    **{
        "attended": "self_attn.out_proj",
        "norm2": "layer_norm2",
        "mlp": "mlp.fc1",
        "out": "mlp.fc2",
    },
}
QUICK = "quick_gelu"


@dataclass(frozen=True)
class ClipParts:
    """A model type with some of the towers: ours → the prefix of its tensors beside the other."""

    MODEL_TYPE: str
    OUTPUT: str
    ARCHITECTURES: Mapping[str, Architecture]
    towers: tuple[str, ...] = ("text", "image")

    MODEL: ModuleType = model
    OPTIONAL: tuple[str, ...] = ()

    @property
    def TIED(self) -> dict[str, str]:
        return {}

    def read_config(self, fields: Fields) -> model.Config:
        both = len(self.towers) == 2
        text = fields.inside("text_config") if both else fields
        image = fields.inside("vision_config") if both else fields
        found: dict[str, Any] = {"space": fields.size("projection_dim", default=512)}
        if "text" in self.towers:
            found |= {"text": tower(text), "vocabulary": text.size("vocab_size", default=49_408)}
            found["length"] = text.size("max_position_embeddings", default=77)
            found["end"] = text.size("eos_token_id", default=49_407, least=0)
        if "image" in self.towers:
            found |= {"image": image.size("image_size", default=224)}
            found |= {"patch": image.size("patch_size", default=32), "pixels": tower(image)}
            found["channels"] = image.size("num_channels", default=3)
            fields.divided(found["image"], found["patch"], "image_size", "pixels")
        return model.Config(**found)

    def write_config(self, config: model.Config) -> dict[str, Any]:
        space = {"projection_dim": config.space}
        text = written_tower(config.text) | space | {"vocab_size": config.vocabulary}
        text |= {"max_position_embeddings": config.length, "eos_token_id": config.end}
        image = written_tower(config.pixels) | space | {"num_channels": config.channels}
        image |= {"image_size": config.image, "patch_size": config.patch}
        if len(self.towers) == 2:
            return {"text_config": text, "vision_config": image, **space}
        return text if "text" in self.towers else image

    def entries(self, config: model.Config, prefix: str) -> Iterator[TensorEntry]:
        both = len(self.towers) == 2
        if "text" in self.towers:
            yield from text_tower(config, "text_model." if both else prefix)
        if "image" in self.towers:
            yield from image_tower(config, "vision_model." if both else prefix)
        if both:
            yield TensorEntry("scale", "logit_scale", shape=())

    def task_heads(self, config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
        return {
            "text": [TensorEntry("text.projected.weight", "text_projection.weight")],
            "image": [TensorEntry("image.projected.weight", "visual_projection.weight")],
        }


def tower(fields: Fields) -> model.Tower:
    found = fields.read(TOWER, eps=1e-5, attention_dropout=0.0)
    quick = fields.table.get("hidden_act", QUICK) == QUICK
    own: dict[str, Any] = {} if quick else {"activation": fields.activation("hidden_act")}
    return model.Tower(**found, quick=quick, **own)


def written_tower(tower: model.Tower) -> dict[str, Any]:
    if tower.quick:
        return written(tower, TOWER) | {"hidden_act": QUICK}
    return written(tower, TOWER | {"activation": "hidden_act"})


def text_tower(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("text.word", f"{prefix}embeddings.token_embedding.weight")
    yield TensorEntry("text.position", f"{prefix}embeddings.position_embedding.weight")
    yield from layers(config.text, "text.layer", f"{prefix}encoder.layers", LAYER)
    yield from norm("text.out", f"{prefix}final_layer_norm")


def image_tower(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    at, d = f"{prefix}embeddings", config.pixels.size
    kernel = (d, config.channels, config.patch, config.patch)
    yield TensorEntry("image.class", f"{at}.class_embedding")
    yield TensorEntry("image.patch.weight", f"{at}.patch_embedding.weight", shape=kernel)
    yield TensorEntry("image.position", f"{at}.position_embedding.weight")
    yield from norm("image.x", f"{prefix}pre_layrnorm")
    yield from layers(config.pixels, "image.layer", f"{prefix}encoder.layers", LAYER)
    yield from norm("image.normed", f"{prefix}post_layernorm")


FAMILY = (
    ClipParts("clip", "logits", {"CLIPModel": Architecture("", ("text", "image"))}),
    ClipParts(
        "clip_text_model", "text.pooled",
        {
            "CLIPTextModel": Architecture(""),
            "CLIPTextModelWithProjection": Architecture("text_model.", ("text",), "text.projected"),
        },
        ("text",),
    ),
    ClipParts(
        "clip_vision_model", "image.pooled",
        {
            "CLIPVisionModel": Architecture(""),
            "CLIPVisionModelWithProjection": Architecture(
                "vision_model.", ("image",), "image.projected"
            ),
        },
        ("image",),
    ),
)  # fmt: skip
