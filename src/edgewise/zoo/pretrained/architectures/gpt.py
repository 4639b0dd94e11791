"""GPT as Hugging Face saves it: matrices are (in, out), and q, k, v are one."""

from collections.abc import Iterator
from typing import Any

from edgewise.language import F
from edgewise.zoo import gpt as model
from edgewise.zoo.pretrained.architectures import gpt2
from edgewise.zoo.pretrained.fields import Fields, written
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, norm

MODEL_TYPE, MODEL, OUTPUT = "openai-gpt", model, "logits"
ARCHITECTURES = {
    "OpenAIGPTLMHeadModel": Architecture("transformer."),
    "OpenAIGPTModel": Architecture("", (), "out"),
}
OPTIONAL: tuple[str, ...] = ()
NAMES = {k: v for k, v in gpt2.NAMES.items() if k != "activation"} | {"length": "n_positions"}
ACTIVATIONS = {"gelu": F.gelu_tanh, "relu": F.relu, "silu": F.silu, "swish": F.silu}
LAYER = {
    "attended": "attn.c_proj",
    "norm1": "ln_1",
    "mlp": "mlp.c_fc",
    "added": "mlp.c_proj",
    "norm2": "ln_2",
}
TIED = {"lm_head.weight": "transformer.tokens_embed.weight"}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("tie_word_embeddings", True)
    found = fields.read(NAMES, eps=1e-5, dropout=0.1)
    activation = ACTIVATIONS[fields.choice("afn", *ACTIVATIONS)]
    return model.Config(**found, hidden=4 * found["size"], activation=activation)


def write_config(config: model.Config) -> dict[str, Any]:
    name = next((n for n, f in ACTIVATIONS.items() if f == config.activation), None)
    return written(config, NAMES) | {"embd_pdrop": config.dropout, "afn": name}


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}tokens_embed.weight")
    yield TensorEntry("position", f"{prefix}positions_embed.weight")
    for i in range(config.layers):
        ours, theirs = f"layer.{i}", f"{prefix}h.{i}"
        yield from gpt2.queries(config, ours, theirs)
        for name, other in LAYER.items():
            at = f"{ours}.{name}", f"{theirs}.{other}"
            yield from norm(*at) if name.startswith("norm") else gpt2.transposed(*at)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {}
