"""A small `config.json` of every model type."""

from typing import Any

SIZES = {
    "vocab_size": 12, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6,
    "num_hidden_layers": 2, "max_position_embeddings": 16,
}  # fmt: skip
BOTH = {
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 5 for side in ("encoder", "decoder")},
    "vocab_size": 12, "d_model": 8,
}  # fmt: skip
GROUPED = {**SIZES, "num_key_value_heads": 1, "head_dim": 4}
SMALL: dict[str, dict[str, Any]] = {
    "bert": SIZES,
    "roberta": {**SIZES, "type_vocab_size": 1},
    "distilbert": {
        "vocab_size": 12, "dim": 8, "n_heads": 2, "hidden_dim": 6, "n_layers": 2,
        "max_position_embeddings": 16,
    },
    "mpnet": SIZES,
    "electra": {**SIZES, "embedding_size": 3},
    **{
        name: {
            **SIZES, "relative_attention": True, "position_biased_input": False,
            "pos_att_type": ["c2p", "p2c"],
        }
        for name in ("deberta", "deberta-v2")
    },
    "xlnet": {"vocab_size": 12, "d_model": 8, "n_head": 2, "d_inner": 5, "n_layer": 2},
    "albert": {**SIZES, "embedding_size": 3},
    "megatron-bert": SIZES,
    "longformer": {**SIZES, "attention_window": 4},
    "big_bird": {**SIZES, "block_size": 2},
    "gpt2": {"vocab_size": 12, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 16},
    "openai-gpt": {"vocab_size": 12, "n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 16},
    "t5": {"vocab_size": 12, "d_model": 6, "d_kv": 4, "d_ff": 5, "num_heads": 2, "num_layers": 2},
    **{name: {**BOTH, "max_position_embeddings": 16} for name in ("bart", "mbart", "marian")},
    "whisper": {**BOTH, "num_mel_bins": 3, "max_source_positions": 4, "max_target_positions": 16},
    "clip_text_model": SIZES,
    "clip_vision_model": {**SIZES, "image_size": 4, "patch_size": 2},
    "clip": {
        "text_config": SIZES, "vision_config": {**SIZES, "image_size": 4, "patch_size": 2},
        "projection_dim": 5,
    },
    "vit": {
        **{k: v for k, v in SIZES.items() if k not in ("vocab_size", "max_position_embeddings")},
        "image_size": 4, "patch_size": 2,
    },
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3"), GROUPED),
    **dict.fromkeys(("gemma", "gemma2", "phi", "phi3"), GROUPED),
    "gemma3_text": {
        **GROUPED, "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention"],
    },
}  # fmt: skip
