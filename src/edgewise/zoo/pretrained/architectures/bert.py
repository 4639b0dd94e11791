"""BERT as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import bert as model
from edgewise.zoo.pretrained.entries import TensorEntry, linear, norm
from edgewise.zoo.pretrained.fields import Fields, activation_name, head_size

MODEL_TYPE, MODEL, OUTPUT = "bert", model, "embedding"
ARCHITECTURES = {"BertModel": ("", ("pooled",)), "BertForMaskedLM": ("bert.", ("logits",))}
TIED = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "cls.seq_relationship.weight": "",  # whether one sentence follows another
    "cls.seq_relationship.bias": "",
}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("position_embedding_type", "absolute")
    return model.Config(**sizes(fields), types=fields.size("type_vocab_size", default=2))


def sizes(fields: Fields) -> dict[str, Any]:
    """What the configurations of this family have in common."""
    fields.fixed("is_decoder", False)
    size, heads = fields.size("hidden_size"), fields.size("num_attention_heads")
    head_size(size, heads, "hidden_size")
    return {
        "vocabulary": fields.size("vocab_size"),
        "size": size,
        "heads": heads,
        "hidden": fields.size("intermediate_size"),
        "layers": fields.layers("num_hidden_layers"),
        "positions": fields.size("max_position_embeddings"),
        "activation": fields.activation("hidden_act", default="gelu"),
        "eps": fields.number("layer_norm_eps", default=1e-12),
        "dropout": fields.rate("hidden_dropout_prob", default=0.1),
    }


def write_config(config: model.Config) -> dict[str, Any]:
    return {
        "vocab_size": config.vocabulary,
        "hidden_size": config.size,
        "num_attention_heads": config.heads,
        "intermediate_size": config.hidden,
        "num_hidden_layers": config.layers,
        "max_position_embeddings": config.positions,
        "type_vocab_size": config.types,
        "hidden_act": activation_name(config.activation),
        "layer_norm_eps": config.eps,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.dropout,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield from embeddings(prefix)
    for i in range(config.layers):
        yield from layer(f"layer.{i}", f"{prefix}encoder.layer.{i}")


def embeddings(prefix: str, types: bool = True) -> Iterator[TensorEntry]:
    yield from tables(prefix, types)
    yield from norm("embedded", f"{prefix}embeddings.LayerNorm")


def tables(prefix: str, types: bool = True) -> Iterator[TensorEntry]:
    at = f"{prefix}embeddings"
    yield TensorEntry("word", f"{at}.word_embeddings.weight")
    yield TensorEntry("position", f"{at}.position_embeddings.weight")
    if types:
        yield TensorEntry("type", f"{at}.token_type_embeddings.weight")


def layer(ours: str, theirs: str) -> Iterator[TensorEntry]:
    yield from attention(ours, theirs)
    yield from norm(f"{ours}.norm1", f"{theirs}.attention.output.LayerNorm")
    yield from linear(f"{ours}.mlp", f"{theirs}.intermediate.dense")
    yield from linear(f"{ours}.added", f"{theirs}.output.dense")
    yield from norm(f"{ours}.norm2", f"{theirs}.output.LayerNorm")


def attention(ours: str, theirs: str) -> Iterator[TensorEntry]:
    for our, their in {"q": "query", "k": "key", "v": "value"}.items():
        yield from linear(f"{ours}.{our}", f"{theirs}.attention.self.{their}", joined=2)
    yield from linear(f"{ours}.attended", f"{theirs}.attention.output.dense")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    """What a checkpoint may have beyond the encoder, by the relation that needs it."""
    return {
        "pooled": linear("pooled", f"{prefix}pooler.dense"),
        "logits": [
            *linear("guess", "cls.predictions.transform.dense"),
            *norm("guessed", "cls.predictions.transform.LayerNorm"),
            TensorEntry("logits.bias", "cls.predictions.bias"),
        ],
    }
