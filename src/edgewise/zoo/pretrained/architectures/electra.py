"""ELECTRA as Hugging Face saves it: the discriminator, the generator and classifiers."""

from collections.abc import Iterator
from typing import Any

from edgewise.language import F
from edgewise.zoo import electra as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "electra", model, "embedding"
ARCHITECTURES = bert.architectures("Electra", "electra.") | {
    "ElectraForPreTraining": Architecture("electra.", ("replaced",), "replaced"),
    "ElectraForSequenceClassification": Architecture("electra.", ("classes",), "classes"),
}
OPTIONAL: tuple[str, ...] = ()
TIED = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}


def read_config(fields: Fields) -> model.Config:
    found = bert.sizes(fields)
    width = fields.size("embedding_size", default=128)
    return model.Config(
        **found,
        types=fields.size("type_vocab_size", default=2),
        labels=fields.labels(),
        embedding=None if width == found["size"] else width,
        pooling=F.gelu,
    )


def write_config(config: model.Config) -> dict[str, Any]:
    return bert.write_config(config) | {"embedding_size": config.width}


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from bert.entries(config, prefix)
    if config.embedding is not None:
        yield from linear("x", f"{prefix}embeddings_project")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    at = "discriminator_predictions"
    heads = bert.classifiers("classifier.out_proj")
    heads["classes"] += linear("pooled", "classifier.dense")
    return {
        **heads,
        "replaced": [
            *linear("judged", f"{at}.dense"),
            *linear("replaced", f"{at}.dense_prediction"),
        ],
        "logits": [
            *linear("guess", "generator_predictions.dense"),
            *norm("guessed", "generator_predictions.LayerNorm"),
            TensorEntry("logits.bias", "generator_lm_head.bias"),
        ],
    }
