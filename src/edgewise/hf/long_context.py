"""Longer contexts for dense pretrained models: more positions, a sparse graph, the same weights.

As in Longformer (https://arxiv.org/abs/2004.05150) a learned position table is repeated, so that
every window looks as it did. Rotary embeddings are interpolated instead
(https://arxiv.org/abs/2306.15595), or extended by one of transformers' methods.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from edgewise.errors import caller, checks_options
from edgewise.graphs.checks import integer, one_of, physical_memory
from edgewise.hf.architectures import POSITION_FIELDS, ROTARY_CLASS
from edgewise.hf.errors import NoPositions
from edgewise.hf.positions import position_tables, reserved_rows
from edgewise.hf.replace import attention_modules, use
from edgewise.hf.saved import Attention

ROTARY = ("linear", "dynamic", "yarn")
SLIDING = "sliding_attention"
POSITIONS = "write `hf.longer(model, 4096, window(256) | global_tokens(1))`"
INSTEAD = {
    **dict.fromkeys(("max_length", "length", "max_position_embeddings", "n_positions"), POSITIONS),
    **dict.fromkeys(("graph", "window", "attention_window"), POSITIONS),
    **dict.fromkeys(("rope_scaling", "rope_type"), 'write `rotary="yarn"`'),
}


@checks_options(**INSTEAD)
def longer(
    model: nn.Module,
    positions: int,
    attention: Attention | str,
    *,
    rotary: str = "linear",
) -> nn.Module:
    """Extend a pretrained model to `positions` tokens, with sparse attention.

    - rotary: how rotary embeddings are extended: "linear" interpolates, "dynamic" and "yarn" are
      transformers' methods.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import global_tokens, window
    >>> model = BertModel(BertConfig(num_hidden_layers=1))
    >>> model = longer(model, 4096, window(256) | global_tokens(1))
    >>> model.embeddings.position_embeddings.weight.shape
    torch.Size([4096, 768])
    """
    positions = integer(positions, "positions", 1)
    one_of(rotary, "rotary", ROTARY)
    attention_modules(model)  # a model that takes no graph is refused as `use` refuses it
    tables, rotaries = position_tables(model), _rotary(model)
    if not tables and not rotaries:
        raise NoPositions(
            f"`{type(model).__name__}` has neither a position table nor rotary embeddings",
            caller(),
            "use `hf.use(model, graph)`: it has no limit of positions",
        )
    before = _length(model.config)
    extra = max((reserved_rows(table) for _, _, table in tables), default=0)
    usable = before - (extra if _counts_reserved(tables) else 0)
    if positions <= usable:
        raise NoPositions(
            f"the model already has {usable} positions, got {positions}",
            caller(),
            f"give more than {usable}, or call `hf.use(model, graph)`",
        )
    needed = sum(
        2 * positions * table.embedding_dim * table.weight.element_size() for _, _, table in tables
    )
    if needed > physical_memory():
        raise NoPositions(
            f"tables of {positions:,} positions take {needed / 2**30:,.0f} GiB to write, more than "
            "this machine has",
            caller(),
            "give fewer positions",
        )
    repeated = [(owner, name, _repeated(table, positions)) for owner, name, table in tables]
    extended = [
        (owner, name, _extended(module, positions, usable, rotary))
        for owner, name, module in rotaries
    ]
    use(model, attention)  # if it is refused, the model is unchanged
    for owner, name, module in (*repeated, *extended):
        setattr(owner, name, module)
    _set_length(model, positions + (before - usable))
    _resize_buffers(model)
    return model


def _rotary(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    return [
        (owner, name, module)
        for owner in model.modules()
        for name, module in owner.named_children()
        if ROTARY_CLASS in type(module).__name__ and hasattr(module, "config")
    ]


def _length(config: Any) -> int:
    for name in POSITION_FIELDS:
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    raise NoPositions(
        f"`{type(config).__name__}` has no number of positions",
        caller(),
        f"set one of {', '.join(POSITION_FIELDS)}",
    )


def _counts_reserved(tables: list[tuple[nn.Module, str, nn.Embedding]]) -> bool:
    """True if the configured length includes the reserved rows, as RoBERTa's 514 does."""
    return any(getattr(table, "offset", None) is None for _, _, table in tables)


def _repeated(table: nn.Embedding, positions: int) -> nn.Embedding:
    """The table with the rows of its positions repeated."""
    first = reserved_rows(table)
    rows = table.weight[first:]
    times = -(-positions // len(rows))
    weight = torch.cat([table.weight[:first], rows.repeat(times, 1)[:positions]]).detach()
    out = copy.copy(table)
    out._parameters = dict(table._parameters)
    out.num_embeddings = len(weight)
    out.weight = nn.Parameter(weight.clone(), requires_grad=table.weight.requires_grad)
    return out


def _extended(module: nn.Module, positions: int, before: int, how: str) -> nn.Module:
    """The rotary embeddings of `positions` tokens.

    Where each kind of layer has its own, those of sliding windows stay: no distance is new there.
    """
    config: Any = copy.deepcopy(module.config)
    rope = dict(getattr(config, "rope_parameters", None) or {})
    kinds = {kind: dict(own) for kind, own in rope.items() if isinstance(own, dict)}
    for own in [kinds[kind] for kind in kinds if kind != SLIDING] if kinds else [rope]:
        _rescale(own, positions, before, how)
    config.rope_parameters = kinds or rope
    config.max_position_embeddings = positions
    device = next((b.device for b in module.buffers()), torch.device("cpu"))
    return type(module)(config).to(device)


def _rescale(rope: dict[str, Any], positions: int, before: int, how: str) -> None:
    kind = rope.get("rope_type", "default")
    if kind not in ("default", how) or "rope_theta" not in rope:
        raise NoPositions(
            f"its rotary embeddings are already of type `{kind}`",
            caller(),
            "use a model with default rotary embeddings",
        )
    factor = positions / before * float(rope.get("factor", 1.0))
    rope |= {"rope_type": how, "factor": factor}
    if how != "linear":
        rope["original_max_position_embeddings"] = before


def _set_length(model: nn.Module, positions: int) -> None:
    """Write the new length into every config of the model."""
    own: Any = model.config
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        for name in POSITION_FIELDS:
            if isinstance(getattr(config, name, None), int):
                setattr(config, name, positions)
        rotary = getattr(module, "rope_type", None)
        if rotary is not None and config is not None and config is not own:
            own.rope_parameters = config.rope_parameters


def _resize_buffers(model: nn.Module) -> None:
    """Resize the buffers of position and token-type ids."""
    for module in model.modules():
        numbers = module._buffers.get("position_ids")
        if numbers is None:
            continue
        length = _length(model.config)
        module._buffers["position_ids"] = torch.arange(length, device=numbers.device)[None]
        types = module._buffers.get("token_type_ids")
        if types is not None:
            module._buffers["token_type_ids"] = types.new_zeros(1, length)
