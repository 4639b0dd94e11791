"""T5 as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import t5 as model
from edgewise.zoo.pretrained.fields import Fields, activation_name
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry

MODEL_TYPE, MODEL, OUTPUT = "t5", model, "logits"
ARCHITECTURES = {
    "T5ForConditionalGeneration": Architecture("", ("logits",)),
    "T5Model": Architecture("", (), "decoder.out"),
}
OPTIONAL: tuple[str, ...] = ()
TIED = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "lm_head.weight": "shared.weight",
    # in the first checkpoints, and never used
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": "",
}


def read_config(fields: Fields) -> model.Config:
    kind = fields.table.get("feed_forward_proj", "relu")
    gated = isinstance(kind, str) and kind.startswith("gated-")
    name = kind.removeprefix("gated-") if isinstance(kind, str) else kind
    name = "gelu_new" if kind == "gated-gelu" else name  # as its authors' code does
    layers = fields.layers("num_layers")
    buckets = fields.size("relative_attention_num_buckets", default=32, least=4)
    return model.Config(
        vocabulary=fields.size("vocab_size"),
        size=fields.size("d_model"),
        heads=fields.size("num_heads"),
        d=fields.size("d_kv"),
        hidden=fields.size("d_ff"),
        layers=layers,
        decoder_layers=fields.layers("num_decoder_layers", default=layers),
        buckets=buckets,
        far=fields.size("relative_attention_max_distance", default=128, least=buckets // 2 + 1),
        activation=Fields({"feed_forward_proj": name}, fields.problems).activation(
            "feed_forward_proj"
        ),
        gated=gated,
        tied=_ties(fields),
        scaled=fields.flag("scale_decoder_outputs", default=_ties(fields)),
        eps=fields.number("layer_norm_epsilon", default=1e-6),
        dropout=fields.rate("dropout_rate", default=0.1),
    )


def _ties(fields: Fields) -> bool:
    return fields.table.get("tie_word_embeddings") is not False


def write_config(config: model.Config) -> dict[str, Any]:
    name = activation_name(config.activation)
    kind = f"gated-{name.removesuffix('_new')}" if config.gated else name
    return {
        "vocab_size": config.vocabulary,
        "d_model": config.size,
        "num_heads": config.heads,
        "d_kv": config.d,
        "d_ff": config.hidden,
        "num_layers": config.layers,
        "num_decoder_layers": config.decoder_layers,
        "relative_attention_num_buckets": config.buckets,
        "relative_attention_max_distance": config.far,
        "feed_forward_proj": kind,
        "tie_word_embeddings": config.tied,
        "scale_decoder_outputs": config.scaled,
        "layer_norm_epsilon": config.eps,
        "dropout_rate": config.dropout,
        "is_encoder_decoder": True,
        "decoder_start_token_id": 0,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", "shared.weight")
    pairs = (config.buckets, config.heads)
    for side, layers in {"encoder": config.layers, "decoder": config.decoder_layers}.items():
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield TensorEntry(f"{side}.relative", first, shape=pairs)
        for i in range(layers):
            ours, theirs = f"{side}.layer.{i}", f"{side}.block.{i}.layer"
            yield from _attention(f"{ours}.self", f"{theirs}.0", "SelfAttention")
            if side == "decoder":
                yield from _attention(f"{ours}.cross", f"{theirs}.1", "EncDecAttention")
            last = f"{theirs}.{2 if side == 'decoder' else 1}"
            yield TensorEntry(f"{ours}.norm.gain", f"{last}.layer_norm.weight")
            yield from _feed_forward(ours, f"{last}.DenseReluDense", config.gated)
        yield TensorEntry(f"{side}.out.gain", f"{side}.final_layer_norm.weight")


def _attention(ours: str, theirs: str, kind: str) -> Iterator[TensorEntry]:
    yield TensorEntry(f"{ours}_norm.gain", f"{theirs}.layer_norm.weight")
    for name in "qkv":
        yield TensorEntry(f"{ours}.{name}.weight", f"{theirs}.{kind}.{name}.weight", joined=2)
    yield TensorEntry(f"{ours}.weight", f"{theirs}.{kind}.o.weight")


def _feed_forward(ours: str, theirs: str, gated: bool) -> Iterator[TensorEntry]:
    yield TensorEntry(f"{ours}.mlp.weight", f"{theirs}.{'wi_0' if gated else 'wi'}.weight")
    if gated:
        yield TensorEntry(f"{ours}.gate.weight", f"{theirs}.wi_1.weight")
    yield TensorEntry(f"{ours}.out.weight", f"{theirs}.wo.weight")


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {"logits": [] if config.tied else [TensorEntry("logits.weight", "lm_head.weight")]}
