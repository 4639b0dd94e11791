"""Learned positions of Hugging Face models, and texts that have more tokens than these."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import caller
from edgewise.hf.architectures import POSITION_TABLES
from edgewise.hf.errors import TooManyTokens

HOOK = "_edgewise_positions_hook"


def position_tables(model: nn.Module) -> list[tuple[nn.Module, str, nn.Embedding]]:
    """The tables of learned positions, each with the module that holds it and its name there."""
    return [
        (owner, name, table)
        for owner in model.modules()
        for name, table in owner.named_children()
        if name in POSITION_TABLES and isinstance(table, nn.Embedding)
    ]


def reserved_rows(table: nn.Embedding) -> int:
    """Rows before the first position: RoBERTa starts after its padding index, OPT at 2."""
    offset = getattr(table, "offset", None)
    if isinstance(offset, int):
        return offset
    return 0 if table.padding_idx is None else table.padding_idx + 1


def watch_lengths(model: nn.Module) -> None:
    """Refuse texts that are longer than a table where it is read: torch names no text."""
    for owner in {id(owner): owner for owner, _, _ in position_tables(model)}.values():
        setattr(owner, HOOK, owner.register_forward_pre_hook(_check_length, with_kwargs=True))


def _check_length(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if torch.compiler.is_compiling():  # a trace cannot read signatures
        return
    names = _parameters(type(module))  # type: ignore[arg-type]
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    for name in POSITION_TABLES:
        table = getattr(module, name, None)
        if not isinstance(table, nn.Embedding):
            continue
        have = table.num_embeddings - reserved_rows(table)
        need = _tokens(arguments, reserved_rows(table) if table.padding_idx is not None else 0)
        if need > have and (need := _unpadded(arguments, table, need)) > have:
            raise TooManyTokens(
                f"the text has {need} tokens, the model has {have} positions",
                caller(),
                f"extend it: `hf.longer(model, {need}, graph)`; or cut the text: "
                f"`tokenizer(text, truncation=True, max_length={have})`",
            )


def _unpadded(arguments: dict[str, Any], table: nn.Embedding, need: int) -> int:
    """The tokens of the longest text, where padding takes no position: RoBERTa, OPT."""
    tokens, mask = arguments.get("input_ids"), arguments.get("attention_mask")
    if table.padding_idx is not None and isinstance(tokens, Tensor):
        return int((tokens != table.padding_idx).sum(-1).max())
    if hasattr(table, "offset") and isinstance(mask, Tensor) and mask.ndim == 2:
        return int(mask.sum(-1).max())
    return need


@cache
def _parameters(kind: Any) -> tuple[str, ...]:
    return tuple(inspect.signature(kind.forward).parameters)[1:]


def _tokens(arguments: dict[str, Any], first: int) -> int:
    """How many positions a call needs; 0 where that would have to be read from a GPU."""
    positions = arguments.get("position_ids")
    if isinstance(positions, Tensor):
        return int(positions.max()) + 1 - first if positions.is_cpu and positions.numel() else 0
    tokens = arguments.get("input_ids")
    tokens = arguments.get("inputs_embeds") if tokens is None else tokens
    if not isinstance(tokens, Tensor) or tokens.ndim < 2:
        return 0
    past = arguments.get("past_key_values")
    before = past.get_seq_length() if past is not None and hasattr(past, "get_seq_length") else 0
    return tokens.shape[1] + int(before or arguments.get("past_key_values_length") or 0)
