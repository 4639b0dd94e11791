"""The text part of checkpoints that hold more: of Gemma 3 with images, its decoder."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from edgewise.zoo.pretrained.fields import BadPretrained


@dataclass(frozen=True)
class TextPart:
    """A model type whose `text_config` is that of another one.

    - names: what names of its tensors begin with → what they begin with in that one.
    - others: what names of all other tensors begin with.
    - defaults: fields that its `text_config` may leave out.
    """

    model_type: str
    architecture: str
    names: Mapping[str, str]
    others: tuple[str, ...]
    defaults: Mapping[str, Any]

    def table(self, outer: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of the text part."""
        inner = outer.get("text_config")
        if not isinstance(inner, dict):
            raise BadPretrained(
                "the configuration has no `text_config`", help="the `config.json` is incomplete"
            )
        own = {k: v for k, v in outer.items() if not k.endswith("_config")}
        named = {"model_type": self.model_type, "architectures": [self.architecture]}
        return {**self.defaults, **own, **inner, **named}

    def name(self, tensor: str) -> str | None:
        """The name of a tensor in a checkpoint of the text part alone; None of another part."""
        for theirs, ours in self.names.items():
            if tensor.startswith(theirs):
                return ours + tensor.removeprefix(theirs)
        return None if tensor.startswith(self.others) else tensor

    def only(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The tensors of the text part, by those names."""
        named: Iterable[tuple[str | None, Any]] = ((self.name(n), t) for n, t in tensors.items())
        return {name: tensor for name, tensor in named if name is not None}


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
