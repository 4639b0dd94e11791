"""A dense pretrained model for long texts: more positions, a sparse graph, the same weights.

The recipe of Longformer (https://arxiv.org/abs/2004.05150): a learned table of positions is
repeated until it is long enough, so that every window looks as it did. Rotary angles are
stretched instead (https://arxiv.org/abs/2306.15595) or as their own recipe says.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from edgewise.errors import caller
from edgewise.graphs.checks import integer, one_of
from edgewise.graphs.families import per_head, per_layer, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import NoPositions
from edgewise.hf.switch import use
from edgewise.language.program import Program

TABLES = ("position_embeddings", "wpe", "embed_positions", "position_embedding")
LENGTHS = ("max_position_embeddings", "n_positions")
ROTARY = ("linear", "dynamic", "yarn")


def longer(
    model: nn.Module,
    positions: int,
    attention: Pattern | per_head | per_sample | per_layer | Program,
    *,
    rotary: str = "linear",
) -> nn.Module:
    """Let a pretrained model read `positions` tokens, along a graph.

    - rotary: how rotary angles reach further: "linear" stretches all of them, "dynamic" and
      "yarn" are transformers' own.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import global_tokens, window
    >>> model = BertModel(BertConfig(num_hidden_layers=1))
    >>> model = longer(model, 4096, window(256) | global_tokens(1))
    >>> model.embeddings.position_embeddings.weight.shape
    torch.Size([4096, 768])
    """
    positions = integer(positions, "positions", 1)
    one_of(rotary, "rotary", ROTARY)
    tables, turning = _tables(model), _rotary(model)
    if not tables and not turning:
        raise NoPositions(
            f"`{type(model).__name__}` has neither a table of positions nor rotary angles",
            caller(),
            "give it a graph with `hf.use`: it has no number of positions to change",
        )
    before = _length(model.config)
    extra = max((_reserved(table) for _, _, table in tables), default=0)
    usable = before - (extra if _counts_reserved(tables) else 0)
    if positions <= usable:
        raise NoPositions(
            f"the model has {usable} positions already, {positions} are no more",
            caller(),
            f"give more than {usable}, or call `hf.use(model, graph)`",
        )
    made = [(owner, name, _repeated(table, positions)) for owner, name, table in tables]
    turned = [
        (owner, name, _stretched(module, positions, usable, rotary))
        for owner, name, module in turning
    ]
    use(model, attention)  # whatever is refused, nothing is changed
    for owner, name, module in (*made, *turned):
        setattr(owner, name, module)
    _say(model, positions + (before - usable))
    _renumber(model)
    return model


def _tables(model: nn.Module) -> list[tuple[nn.Module, str, nn.Embedding]]:
    return [
        (owner, name, table)
        for owner in model.modules()
        for name, table in owner.named_children()
        if name in TABLES and isinstance(table, nn.Embedding)
    ]


def _rotary(model: nn.Module) -> list[tuple[nn.Module, str, nn.Module]]:
    return [
        (owner, name, module)
        for owner in model.modules()
        for name, module in owner.named_children()
        if "RotaryEmbedding" in type(module).__name__ and hasattr(module, "config")
    ]


def _length(config: Any) -> int:
    for name in LENGTHS:
        found = getattr(config, name, None)
        if isinstance(found, int):
            return found
    raise NoPositions(
        f"`{type(config).__name__}` does not say how many positions it has",
        caller(),
        f"set one of {', '.join(LENGTHS)}",
    )


def _reserved(table: nn.Embedding) -> int:
    """The rows before the first position: RoBERTa counts from after its padding, OPT from 2."""
    offset = getattr(table, "offset", None)
    if isinstance(offset, int):
        return offset
    return 0 if table.padding_idx is None else table.padding_idx + 1


def _counts_reserved(tables: list[tuple[nn.Module, str, nn.Embedding]]) -> bool:
    """Whether the configured length includes the reserved rows, as RoBERTa's 514 does."""
    return any(getattr(table, "offset", None) is None for _, _, table in tables)


def _repeated(table: nn.Embedding, positions: int) -> nn.Embedding:
    """The rows of the positions, again and again."""
    first = _reserved(table)
    rows = table.weight[first:]
    times = -(-positions // len(rows))
    weight = torch.cat([table.weight[:first], rows.repeat(times, 1)[:positions]]).detach()
    out = copy.copy(table)
    out._parameters = dict(table._parameters)
    out.num_embeddings = len(weight)
    out.weight = nn.Parameter(weight.clone(), requires_grad=table.weight.requires_grad)
    return out


def _stretched(module: nn.Module, positions: int, before: int, how: str) -> nn.Module:
    config: Any = copy.deepcopy(module.config)
    given = dict(getattr(config, "rope_parameters", None) or {})
    kind = given.get("rope_type", "default")
    if kind not in ("default", how) or "rope_theta" not in given:
        raise NoPositions(
            f"its rotary angles are already of the kind `{kind}`",
            caller(),
            "give a model with plain rotary angles",
        )
    factor = positions / before * float(given.get("factor", 1.0))
    given |= {"rope_type": how, "factor": factor}
    if how != "linear":
        given["original_max_position_embeddings"] = before
    config.rope_parameters = given
    config.max_position_embeddings = positions
    device = next((b.device for b in module.buffers()), torch.device("cpu"))
    return type(module)(config).to(device)


def _say(model: nn.Module, positions: int) -> None:
    """The new length, in every config of the model."""
    own: Any = model.config
    for module in model.modules():
        config: Any = getattr(module, "config", None)
        for name in LENGTHS:
            if isinstance(getattr(config, name, None), int):
                setattr(config, name, positions)
        rotary = getattr(module, "rope_type", None)
        if rotary is not None and config is not None and config is not own:
            own.rope_parameters = config.rope_parameters


def _renumber(model: nn.Module) -> None:
    """Buffers that count the positions, and the token types of as many."""
    for module in model.modules():
        numbers = module._buffers.get("position_ids")
        if numbers is None:
            continue
        length = _length(model.config)
        module._buffers["position_ids"] = torch.arange(length, device=numbers.device)[None]
        types = module._buffers.get("token_type_ids")
        if types is not None:
            module._buffers["token_type_ids"] = types.new_zeros(1, length)
