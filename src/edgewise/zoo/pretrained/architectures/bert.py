"""BERT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import bert as model
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, layers, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "bert", model, "embedding"
OPTIONAL = ("pooled", "follows")
NAMES = {
    "size": "hidden_size",
    "heads": "num_attention_heads",
    "vocabulary": "vocab_size",
    "hidden": "intermediate_size",
    "layers": "num_hidden_layers",
    "length": "max_position_embeddings",
    "activation": "hidden_act",
    "eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "attended": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "mlp": "intermediate.dense",
    "added": "output.dense",
    "norm2": "output.LayerNorm",
}
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


def architectures(name: str, prefix: str) -> dict[str, Architecture]:
    """The classes of a family of encoders: the body, masked tokens, classifiers."""
    return {
        f"{name}Model": Architecture(""),
        f"{name}ForMaskedLM": Architecture(prefix, ("logits",)),
        f"{name}ForSequenceClassification": Architecture(prefix, ("pooled", "classes"), "classes"),
        f"{name}ForTokenClassification": Architecture(prefix, ("tags",), "tags"),
        f"{name}ForQuestionAnswering": Architecture(prefix, ("span",), "span"),
    }


ARCHITECTURES = architectures("Bert", "bert.") | {
    "BertForPreTraining": Architecture("bert.", ("pooled", "logits", "follows")),
    "BertForNextSentencePrediction": Architecture("bert.", ("pooled", "follows"), "follows"),
}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("position_embedding_type", "absolute")
    types = fields.size("type_vocab_size", default=2)
    return model.Config(**sizes(fields), types=types, labels=fields.labels())


def sizes(fields: Fields, activation: str = "gelu") -> dict[str, Any]:
    """What the configurations of this family have in common; `activation` is the default."""
    fields.fixed("is_decoder", False)
    return fields.read(NAMES, activation=activation, eps=1e-12, dropout=0.1)


def write_config(config: model.Config) -> dict[str, Any]:
    types = {"type_vocab_size": config.types}
    return written(config, NAMES) | types | classes(config.labels)


def classes(labels: int) -> dict[str, Any]:
    """Names of classes, which say how many there are."""
    names = {k: f"LABEL_{k}" for k in range(labels)}
    return {
        "id2label": {str(k): v for k, v in names.items()},
        "label2id": {v: k for k, v in names.items()},
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from embeddings(prefix)
    yield from layers(config, "layer", f"{prefix}encoder.layer", LAYER)


def embeddings(prefix: str, types: bool = True) -> Iterator[TensorEntry]:
    yield from tables(prefix, types)
    yield from norm("embedded", f"{prefix}embeddings.LayerNorm")


def tables(prefix: str, types: bool = True) -> Iterator[TensorEntry]:
    at = f"{prefix}embeddings"
    yield TensorEntry("word", f"{at}.word_embeddings.weight")
    yield TensorEntry("position", f"{at}.position_embeddings.weight")
    if types:
        yield TensorEntry("type", f"{at}.token_type_embeddings.weight")


def task_heads(config: Any, prefix: str) -> dict[str, list[TensorEntry]]:
    """What a checkpoint may have beyond the encoder, by the relation that needs it."""
    return {
        "pooled": linear("pooled", f"{prefix}pooler.dense"),
        "logits": [
            *linear("guess", "cls.predictions.transform.dense"),
            *norm("guessed", "cls.predictions.transform.LayerNorm"),
            TensorEntry("logits.bias", "cls.predictions.bias"),
        ],
        "follows": linear("follows", "cls.seq_relationship"),
        **classifiers("classifier"),
    }


def classifiers(classes: str) -> dict[str, list[TensorEntry]]:
    """Of texts, of tokens, and of where an answer begins and ends."""
    return {
        "classes": linear("classes", classes),
        "tags": linear("tags", "classifier"),
        "span": linear("span", "qa_outputs"),
    }
