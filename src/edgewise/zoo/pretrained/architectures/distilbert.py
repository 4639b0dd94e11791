"""DistilBERT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.language import F
from edgewise.zoo import bert as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "distilbert", model, "embedding"
ARCHITECTURES = bert.architectures("DistilBert", "distilbert.")
OPTIONAL: tuple[str, ...] = ()
NAMES = {
    "size": "dim",
    "heads": "n_heads",
    "vocabulary": "vocab_size",
    "hidden": "hidden_dim",
    "layers": "n_layers",
    "length": "max_position_embeddings",
    "activation": "activation",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
}
LAYER = {
    "q": "attention.q_lin",
    "k": "attention.k_lin",
    "v": "attention.v_lin",
    "attended": "attention.out_lin",
    "norm1": "sa_layer_norm",
    "mlp": "ffn.lin1",
    "added": "ffn.lin2",
    "norm2": "output_layer_norm",
}
TIED = {"vocab_projector.weight": "embeddings.word_embeddings.weight"}


def read_config(fields: Fields) -> model.Config:
    found = fields.read(NAMES, activation="gelu", dropout=0.1)
    return model.Config(**found, types=0, labels=fields.labels(), pooling=F.relu)


def write_config(config: model.Config) -> dict[str, Any]:
    return written(config, NAMES) | bert.classes(config.labels)


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.embeddings(prefix, types=False)
    yield from layers(config, "layer", f"{prefix}transformer.layer", LAYER)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {
        "pooled": linear("pooled", "pre_classifier"),
        **bert.classifiers("classifier"),
        "logits": [
            *linear("guess", "vocab_transform"),
            *norm("guessed", "vocab_layer_norm"),
            TensorEntry("logits.bias", "vocab_projector.bias"),
        ],
    }
