"""Megatron-BERT as Hugging Face saves it: BERT's names, norms elsewhere."""

from collections.abc import Iterator

from edgewise.zoo import megatron as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.architectures.bert import task_heads as task_heads
from edgewise.zoo.pretrained.architectures.bert import write_config as write_config
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, norm

MODEL_TYPE, MODEL, OUTPUT = "megatron-bert", model, "embedding"
ARCHITECTURES = bert.architectures("MegatronBert", "bert.")
OPTIONAL = bert.OPTIONAL
LAYER = bert.LAYER | {"norm1": "attention.ln", "norm2": "ln"}
TIED = bert.TIED


def read_config(fields: Fields) -> model.Config:
    fields.fixed("position_embedding_type", "absolute")
    types = fields.size("type_vocab_size", default=2)
    return model.Config(**bert.sizes(fields), types=types, labels=fields.labels())


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.tables(prefix)
    yield from layers(config, "layer", f"{prefix}encoder.layer", LAYER)
    yield from norm("out", f"{prefix}encoder.ln")
