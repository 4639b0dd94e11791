"""Hugging Face architectures, one file per `model_type`.

To add one, write its file and add it to MODEL_TYPES. A file holds

- MODEL_TYPE, the `model_type` of its `config.json`; MODEL, the module of the zoo; OUTPUT, the
  relation that it computes by default;
- ARCHITECTURES, class name → prefix of tensor names, task heads, output; OPTIONAL, task heads that
  any class may have;
- TIED, tensors that may be there and must equal another one ("" for one that is ignored);
- `read_config` and `write_config`, between the fields of `config.json` and `MODEL.Config`: most by
  NAMES, our field → theirs, with `Fields.read` and `written`;
- `entries` and `task_heads`, the tensors of the body and of each task head; those of a layer by
  LAYER, our name → theirs, with `layers`.

A decoder of the Llama family is an entry of FAMILY in `llama.py`, an encoder–decoder of BART's one
of FAMILY in `bart.py`. A checkpoint that holds more than a text model, of which that is read, is an
entry of TEXT_PARTS.
"""

from edgewise.zoo.pretrained.architectures import (
    albert,
    bart,
    bert,
    bigbird,
    clip,
    deberta,
    deberta_v2,
    distilbert,
    electra,
    gpt,
    gpt2,
    llama,
    longformer,
    megatron,
    mpnet,
    phi,
    roberta,
    t5,
    vit,
    whisper,
    xlnet,
)
from edgewise.zoo.pretrained.schema import CheckpointSpec, TextPart

MODEL_TYPES: dict[str, CheckpointSpec] = {
    spec.MODEL_TYPE: spec
    for spec in (
        *(bert, roberta, distilbert, mpnet, megatron, electra, albert, longformer, bigbird),
        *(deberta, deberta_v2, xlnet),
        *(gpt, gpt2, *llama.FAMILY, phi, t5, *bart.FAMILY),
        *(vit, whisper, *clip.FAMILY),
    )
}

TEXT_PARTS = {
    "gemma3": TextPart(
        "gemma3_text",
        "Gemma3ForCausalLM",
        {
            "language_model.model.": "model.",
            "language_model.lm_head.": "lm_head.",
            "model.language_model.": "model.",
        },
        tuple(
            f"{prefix}{part}."
            for prefix in ("", "model.")
            for part in ("vision_tower", "multi_modal_projector")
        ),
        {
            **{"vocab_size": 262_208, "hidden_size": 2304, "intermediate_size": 9216},
            **{"num_hidden_layers": 26, "num_attention_heads": 8, "num_key_value_heads": 4},
            **{"max_position_embeddings": 131_072, "sliding_window": 4096},
        },
    ),
}
