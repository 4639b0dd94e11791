"""XLNet as Hugging Face saves it: a projection is (size, heads, head size)."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import xlnet as model
from edgewise.zoo.pretrained.architectures import bert
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, linear, norm

MODEL_TYPE, MODEL, OUTPUT = "xlnet", model, "out"
ARCHITECTURES = {
    "XLNetLMHeadModel": Architecture("transformer.", ("logits",), "logits"),
    "XLNetModel": Architecture(""),
    "XLNetForTokenClassification": Architecture("transformer.", ("tags",), "tags"),
}
OPTIONAL: tuple[str, ...] = ()
NAMES = {
    "size": "d_model",
    "heads": "n_head",
    "vocabulary": "vocab_size",
    "hidden": "d_inner",
    "layers": "n_layer",
    "activation": "ff_activation",
    "eps": "layer_norm_eps",
    "dropout": "dropout",
}
PROJECTIONS = {"q": "q", "k": "k", "value": "v", "place": "r"}
BIASES = {"u": "r_w_bias", "v": "r_r_bias", "w": "r_s_bias"}
SEGMENTS = ("same", "other")
TIED = {"lm_loss.weight": "transformer.word_embedding.weight"}
FIXED = {"attn_type": "bi", "bi_data": False, "clamp_len": -1, "same_length": False}


def read_config(fields: Fields) -> model.Config:
    for name, value in {**FIXED, "tie_word_embeddings": True}.items():
        fields.fixed(name, value)
    found = fields.read(NAMES, activation="gelu", eps=1e-12, dropout=0.1)
    fields.equal("d_head", "a head", found["size"] // found["heads"])
    fields.divided(found["size"], 2, "d_model", "numbers: sines and cosines")
    return model.Config(**found, labels=fields.labels())


def write_config(config: model.Config) -> dict[str, Any]:
    head = {"d_head": config.size // config.heads}
    return written(config, NAMES) | FIXED | head | bert.classes(config.labels)


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    size, d = config.size, config.size // config.heads
    yield TensorEntry("word", f"{prefix}word_embedding.weight")
    yield TensorEntry("blank", f"{prefix}mask_emb", shape=(1, 1, size))
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}layer.{i}"
        at = f"{theirs}.rel_attn"
        for name, other in PROJECTIONS.items():
            yield TensorEntry(f"{ours}.{name}.weight", f"{at}.{other}", order=(1, 2, 0))
        for name, other in BIASES.items():
            yield TensorEntry(f"{ours}.{name}", f"{at}.{other}")
        for k, name in enumerate(SEGMENTS):
            shape = (len(SEGMENTS), config.heads, d)
            yield TensorEntry(f"{ours}.{name}", f"{at}.seg_embed", part=(0, k, 2), shape=shape)
        yield TensorEntry(f"{ours}.attended.weight", f"{at}.o", shape=(size, config.heads, d))
        yield from norm(f"{ours}.norm1", f"{at}.layer_norm")
        yield from linear(f"{ours}.mlp", f"{theirs}.ff.layer_1")
        yield from linear(f"{ours}.added", f"{theirs}.ff.layer_2")
        yield from norm(f"{ours}.norm2", f"{theirs}.ff.layer_norm")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    bias = [TensorEntry("logits.bias", "lm_loss.bias")]
    return {"logits": bias, "tags": linear("tags", "classifier")}
