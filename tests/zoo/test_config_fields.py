"""Every field of every supported configuration is read, refused, or known to change nothing."""

import copy
import json

import pytest
import torch
from small import SMALL
from theirs import transformers

from edgewise import EdgewiseError
from edgewise.zoo.pretrained.architectures import MODEL_TYPES
from edgewise.zoo.pretrained.schema import read_config

TOKENS = "of decoding: read when texts are generated"
INITIAL = "of weights that are not read from a file"
TRAINING = "a rate of dropout in training, for which the rules have another one"
TIES = "the tensors say it: a tied one that differs is refused"
FORMAT = "what transformers returns"
HEAD = "of a task head that is not supported: its tensors are refused"
SUMMARY = ("type", "use_proj", "activation", "last_dropout", "first_dropout", "proj_to_labels")
IDLE = {
    **dict.fromkeys(
        ("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id"), TOKENS
    ),
    **dict.fromkeys(("decoder_start_token_id", "forced_eos_token_id"), TOKENS),
    **dict.fromkeys(("suppress_tokens", "begin_suppress_tokens"), TOKENS),
    **dict.fromkeys(("initializer_range", "initializer_factor", "init_std"), INITIAL),
    **dict.fromkeys(("logit_scale_init_value", "sinusoidal_pos_embds"), INITIAL),
    **dict.fromkeys(("classifier_dropout", "classifier_dropout_prob", "embd_pdrop"), TRAINING),
    **dict.fromkeys(("qa_dropout", "seq_classif_dropout", "pooler_dropout"), TRAINING),
    **dict.fromkeys(("encoder_layerdrop", "decoder_layerdrop"), TRAINING),
    **dict.fromkeys(("output_attentions", "output_hidden_states", "return_dict"), FORMAT),
    **dict.fromkeys(("use_cache", "transformers_version", "_name_or_path"), FORMAT),
    **dict.fromkeys(("architectures", "model_type", "is_encoder_decoder"), "names the class"),
    **dict.fromkeys(("label2id", "problem_type"), "names of classes, and their loss"),
    **dict.fromkeys((f"summary_{name}" for name in SUMMARY), HEAD),
    **dict.fromkeys(("start_n_top", "end_n_top", "classifier_proj_size"), HEAD),
    **dict.fromkeys(("use_weighted_layer_sum", "encoder_stride"), HEAD),
    **dict.fromkeys(("mem_len", "reuse_len"), "of a memory, which the first segment has not"),
    **dict.fromkeys(("use_mems_eval", "use_mems_train"), "of a memory, as above"),
    **{f"mask_{a}_{b}": "noise in training" for a in ("time", "feature")
       for b in ("prob", "length", "min_masks")},
    "apply_spec_augment": "noise in training",
    "tie_word_embeddings": TIES,
    "add_cross_attention": "its tensors are refused",
    "is_decoder": "set by the class of a decoder, whatever is said here",
    "chunk_size_feed_forward": "a way to compute the same",
    "pretraining_tp": "a way to compute the same",
    "reorder_and_upcast_attn": "a way to compute the same, to other digits",
    "dtype": "that of `from_pretrained`",
    "onnx_export": "a way to trace the same",
    "median_filter_width": "of time stamps after decoding",
    "pooler_output_size": "a shape: another is refused with its tensor",
    "_sliding_window_pattern": "`layer_types` says it",
    "original_max_position_embeddings": "read with longrope",
    "sliding_window": "read with `use_sliding_window`",
    "max_window_layers": "`layer_types` says it",
    "use_sliding_window": "of no effect without `sliding_window`",
    "id2label": "of a classifier, which the others have not",
    "dense_act_fn": "`feed_forward_proj` says it",
    "is_gated_act": "`feed_forward_proj` says it",
}  # fmt: skip
OTHER = {
    "max_relative_positions": 5,
    "summary_activation": "relu",
    "suppress_tokens": [3],
    "feed_forward_proj": "gated-silu",
    "id2label": {"0": "a", "1": "b", "2": "c"},
    "layer_types": ["sliding_attention", "sliding_attention"],
    "attention_window": [6, 6],
    "pos_att_type": ["c2p"],
    "attention_type": "original_full",
    "norm_rel_ebd": "layer_norm",
    "attn_type": "uni",
    "position_embedding_type": "relative_key",
}
ONLY = {  # where a field of this name is idle; elsewhere it is read
    "sliding_window": ("qwen2", "qwen3"),
    "max_window_layers": ("qwen2", "qwen3"),
    "original_max_position_embeddings": ("phi3",),
    "use_sliding_window": ("qwen2", "qwen3"),
    "id2label": tuple(
        n for n, s in MODEL_TYPES.items() if not {"labels", "classes"} & vars(s.MODEL.Config).keys()
    ),
    "is_decoder": ("t5", "bart", "mbart", "marian"),
}
UNUSED = {  # of the other tower, or said by both
    "clip_vision_model": ("max_position_embeddings", "vocab_size"),
    "clip_text_model": ("projection_dim",),
    "clip": (
        *("text_config.projection_dim", "vision_config.projection_dim"),
        *("vision_config.max_position_embeddings", "vision_config.vocab_size"),
    ),
}


def other(name, value):
    """Another value of the same kind."""
    if name in OTHER:
        return OTHER[name]
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return value / 2 + 0.0625
        case None:
            return 3
        case str():
            return "relu"
        case {"rope_type": _}:
            return {**value, "rope_type": "linear", "factor": 3.0}
        case dict():
            return {key: other(key, inner) for key, inner in value.items()}
        case list():
            return [*value, 1]
    raise AssertionError(name, value)


def table_of(name):
    config = transformers.CONFIG_MAPPING[name](**copy.deepcopy(SMALL[name]))
    table = json.loads(json.dumps(config.to_dict()))
    if (table.get("pad_token_id") or 0) >= 12:  # the default, of a large vocabulary
        table["pad_token_id"] = 0
    return table


def changes(name):
    """Every field of a configuration, those of towers too, with another value."""
    for field, value in table_of(name).items():
        if field in ("text_config", "vision_config"):
            for inner, deep in value.items():
                yield f"{field}.{inner}", {**value, inner: other(inner, deep)}
        else:
            yield field, other(field, value)


def is_idle(name, field):
    leaf = field.rpartition(".")[2]
    return (leaf in IDLE and name in ONLY.get(leaf, (name,))) or field in UNUSED.get(name, ())


def outcome(name, field, value):
    """Whether a changed field is `refused`, `read`, or neither."""
    spec, table = MODEL_TYPES[name], table_of(name)
    before = read_config(spec, table)
    try:
        found = read_config(spec, table | {field.partition(".")[0]: value})
    except EdgewiseError:
        return "refused"
    return "read" if found != before else "idle"


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_every_field_is_read_or_refused_or_known_to_be_idle(name):
    silent = [
        field
        for field, value in changes(name)
        if outcome(name, field, value) == "idle" and not is_idle(name, field)
    ]
    assert silent == []


def without(name):
    """A configuration without each of its fields in turn, those of towers too."""
    table = table_of(name)
    for field, value in table.items():
        if field in ("text_config", "vision_config"):
            for inner in value:
                rest = {k: v for k, v in value.items() if k != inner}
                yield f"{field}.{inner}", {**table, field: rest}
        elif field != "model_type":
            yield field, {k: v for k, v in table.items() if k != field}


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_a_missing_field_has_the_default_of_transformers_or_is_refused(name):
    spec, wrong = MODEL_TYPES[name], []
    for field, table in without(name):
        try:
            found = read_config(spec, copy.deepcopy(table))
        except EdgewiseError:
            continue
        full = transformers.CONFIG_MAPPING[name].from_dict(copy.deepcopy(table)).to_dict()
        try:
            wanted = read_config(spec, json.loads(json.dumps(full)))
        except EdgewiseError as error:
            wanted = error.message
        if found != wanted:
            wrong.append(field)
    assert wrong == []


def body(name, table):
    """Their model, seeded, without dropout."""
    config = transformers.CONFIG_MAPPING[name].from_dict(table)
    torch.manual_seed(0)
    kind = next(iter(MODEL_TYPES[name].ARCHITECTURES))
    return getattr(transformers, kind)(config).double().eval()


def inputs(name):
    token = torch.tensor([[5, 7, 9, 4], [8, 3, 6, 10]])
    pixels = torch.linspace(0, 1, 96).reshape(2, 3, 4, 4).double()
    features = torch.linspace(0, 1, 48).reshape(2, 3, 8).double()
    match name:
        case "vit" | "clip_vision_model":
            return {"pixel_values": pixels}
        case "clip":
            return {"input_ids": token, "pixel_values": pixels}
        case "whisper":
            return {"input_features": features, "decoder_input_ids": token}
        case "t5" | "bart" | "mbart" | "marian":
            return {"input_ids": token, "decoder_input_ids": token}
    return {"input_ids": token}


SEEN = {  # idle fields that transformers acts on, in other ways than by numbers, and why
    "bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "return_dict", "dtype",
    "output_attentions", "output_hidden_states", "is_decoder", "add_cross_attention",
    "pooler_output_size", "is_encoder_decoder", "model_type", "architectures", "onnx_export",
    "dense_act_fn", "is_gated_act", "use_weighted_layer_sum", "sliding_window",
    "max_window_layers", "vocab_size", "max_position_embeddings", "projection_dim",
    "decoder_start_token_id", "forced_eos_token_id", "id2label", "label2id", "problem_type",
}  # fmt: skip


@pytest.mark.parametrize("name", MODEL_TYPES)
def test_idle_fields_change_none_of_their_numbers(name):
    table = table_of(name)
    changed = {
        field: value
        for field, value in changes(name)
        if "." not in field and field not in SEEN and outcome(name, field, value) == "idle"
    }  # fmt: skip
    one, two = body(name, table), body(name, table | changed)
    two.load_state_dict(one.state_dict())
    with torch.no_grad():
        first, second = one(**inputs(name)), two(**inputs(name))
    torch.testing.assert_close(first[0], second[0], atol=1e-12, rtol=1e-12)
