"""RoBERTa as Hugging Face saves it: BERT's layers, positions from 2 on, another head."""

from typing import Any

from edgewise.language import F
from edgewise.zoo import bert as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.architectures.bert import entries as entries
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "roberta", model, "embedding"
ARCHITECTURES = bert.architectures("Roberta", "roberta.") | {
    "RobertaForSequenceClassification": Architecture("roberta.", ("classes",), "classes"),
}
OPTIONAL = ("pooled",)
TIED = {
    "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
    "lm_head.decoder.bias": "lm_head.bias",
    # beside a classifier, which has a layer of its own, and never used
    "roberta.pooler.dense.weight": "",
    "roberta.pooler.dense.bias": "",
}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("position_embedding_type", "absolute")
    first = fields.size("pad_token_id", default=1, least=0) + 1
    types, labels = fields.size("type_vocab_size"), fields.labels()
    return model.Config(**guessing(fields), types=types, first=first, labels=labels)


def guessing(fields: Fields) -> dict[str, Any]:
    """BERT's sizes; words are guessed by GELU, whatever the layers have."""
    found = bert.sizes(fields)
    return found | {"guessing": None if found["activation"] == F.gelu else F.gelu}


def write_config(config: model.Config) -> dict[str, Any]:
    return {**bert.write_config(config), "pad_token_id": config.first - 1}


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    heads = bert.classifiers("classifier.out_proj")
    heads["classes"] += linear("pooled", "classifier.dense")
    return {
        "pooled": linear("pooled", f"{prefix}pooler.dense"),
        "logits": guess("lm_head"),
        **heads,
    }


def guess(at: str) -> list[TensorEntry]:
    """The head of masked tokens."""
    return [
        *linear("guess", f"{at}.dense"),
        *norm("guessed", f"{at}.layer_norm"),
        TensorEntry("logits.bias", f"{at}.bias"),
    ]
