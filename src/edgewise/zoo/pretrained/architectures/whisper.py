"""Whisper as Hugging Face saves it."""

from collections.abc import Iterator
from typing import Any

from edgewise.zoo import whisper as model
from edgewise.zoo.pretrained.architectures import bart
from edgewise.zoo.pretrained.fields import Fields
from edgewise.zoo.pretrained.schema import Architecture
from edgewise.zoo.pretrained.tensors import TensorEntry, taps

MODEL_TYPE, MODEL, OUTPUT = "whisper", model, "logits"
ARCHITECTURES = {
    "WhisperForConditionalGeneration": Architecture("model."),
    "WhisperModel": Architecture("", (), "decoder.out"),
}
OPTIONAL: tuple[str, ...] = ()
NAMES = {"length": "max_target_positions", "frames": "max_source_positions", "mels": "num_mel_bins"}
TIED = {"proj_out.weight": "model.decoder.embed_tokens.weight"}


def read_config(fields: Fields) -> model.Config:
    fields.fixed("tie_word_embeddings", True)
    fields.fixed("scale_embedding", False)
    table = {**fields.table, "max_position_embeddings": fields.table.get(NAMES["length"])}
    found = bart.sizes(Fields({"dropout": 0.0, **table}, fields.problems))
    return model.Config(**found | {ours: fields.size(theirs) for ours, theirs in NAMES.items()})


def write_config(config: model.Config) -> dict[str, Any]:
    own = {theirs: getattr(config, ours) for ours, theirs in NAMES.items()}
    found = {k: v for k, v in bart.written_sizes(config).items() if k != "max_position_embeddings"}
    return found | own


def entries(config: model.Config, prefix: str) -> Iterator[TensorEntry]:
    yield TensorEntry("word", f"{prefix}decoder.embed_tokens.weight")
    for side in ("encoder", "decoder"):
        yield TensorEntry(f"{side}.position", f"{prefix}{side}.embed_positions.weight")
    for name, inputs in {"conv1": config.mels, "conv2": config.size}.items():
        shape = config.size, inputs, model.TAPS
        yield from taps(name, f"{prefix}encoder.{name}", shape)
    yield from bart.both_stacks(config, prefix)


def task_heads(config: model.Config, prefix: str) -> dict[str, list[TensorEntry]]:
    return {}
