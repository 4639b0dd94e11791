"""BigBird as Hugging Face saves it."""

from typing import Any

from edgewise.zoo import bigbird as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.architectures.bert import entries as entries
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear

MODEL_TYPE, MODEL, OUTPUT = "big_bird", model, "out"
ARCHITECTURES = {"BigBirdModel": Architecture("")}
OPTIONAL = ("pooled",)
TIED: dict[str, str] = {}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("use_bias", True)
    fields.fixed("rescale_embeddings", False)
    fields.fixed("attention_type", "block_sparse")
    return model.Config(
        **bert.sizes(fields, activation="gelu_new"),
        labels=fields.labels(),
        types=fields.size("type_vocab_size", default=2),
        block=fields.size("block_size", default=64),
        random=fields.size("num_random_blocks", default=3, least=0),
        variant="hf_eval",
    )


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        **bert.write_config(config),
        "block_size": config.block,
        "num_random_blocks": config.random,
        "attention_type": "block_sparse",
    }


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {"pooled": linear("pooled", f"{prefix}pooler")}
