"""MPNet as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import bert as model
from edgewise.zoo.pretrained.architectures import bert, roberta
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, layers

MODEL_TYPE, MODEL, OUTPUT = "mpnet", model, "embedding"
ARCHITECTURES = bert.architectures("MPNet", "mpnet.") | {
    "MPNetForSequenceClassification": Architecture("mpnet.", ("classes",), "classes"),
}
OPTIONAL = roberta.OPTIONAL
LAYER = bert.LAYER | {
    **{name: f"attention.attn.{name}" for name in ("q", "k", "v")},
    **{"attended": "attention.attn.o", "norm1": "attention.LayerNorm"},
}
TIED = roberta.TIED
FIRST, BUCKETS = 2, 32  # whatever a configuration says


def read_config(fields: Fields) -> model.Config:
    fields.fixed("relative_attention_num_buckets", BUCKETS)
    more: Any = {"types": 0, "first": FIRST, "buckets": BUCKETS, "labels": fields.labels()}
    return model.Config(**roberta.guessing(fields), **more)


def write_config(config: model.Config) -> dict[str, Any]:
    made = {k: v for k, v in bert.write_config(config).items() if k != "type_vocab_size"}
    made["pad_token_id"] = config.first - 1
    return {**made, "relative_attention_num_buckets": config.buckets}


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.embeddings(prefix, types=False)
    pairs = (config.buckets, config.heads)
    yield TensorEntry("relative", f"{prefix}encoder.relative_attention_bias.weight", shape=pairs)
    yield from layers(config, "layer", f"{prefix}encoder.layer", LAYER)


task_heads = roberta.task_heads
