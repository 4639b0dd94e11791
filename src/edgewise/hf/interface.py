"""The attention and mask functions that transformers calls by name."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import caller
from edgewise.graphs import causal, full, per_sample
from edgewise.hf.architectures import IGNORED_ARGUMENTS, UNSUPPORTED_ARGUMENTS
from edgewise.hf.errors import NotPluggable, UnsupportedArgument
from edgewise.hf.eviction import Graph
from edgewise.hf.graph_attention import (
    MeshPlace,
    ScoreOptions,
    attend,
    attend_on_mesh,
    refuse_on_mesh,
)
from edgewise.hf.masks import ModelMask, build_mask
from edgewise.hf.program_attention import no_program_weights
from edgewise.hf.sparse_weights import AttentionWeights, attend_with_weights

NAME = "edgewise"


@dataclass(frozen=True, eq=False)
class ModuleAttention:
    """What one attention module of a model computes; `index` counts self-attention modules.

    `graph` is None where its submodule `NAME` is a program; `relations` are the names that the
    model's call may pass to programs.
    """

    name: str
    index: int
    graph: Graph | per_sample | None
    relations: frozenset[str] = frozenset()
    place: MeshPlace | None = None  # where its tokens are on the ranks of a mesh


@dataclass(frozen=True, eq=False)
class ModuleCall:
    """One call of an attention module: q (batch, heads, n, d), k (batch, key heads, m, d)."""

    name: str
    q: Tensor
    k: Tensor
    graph: Graph | per_sample
    mask: ModelMask
    options: ScoreOptions
    is_cross: bool


RECORDED: ContextVar[list[ModuleCall] | None] = ContextVar("recorded", default=None)
EAGER = "hf.use: the attention depends on values of tensors; compile without `fullgraph=True`"


def register() -> None:
    """Register the attention and its masks with transformers, under `NAME`."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register(NAME, torch.compiler.disable(forward, reason=EAGER))
    AttentionMaskInterface.register(NAME, torch.compiler.disable(build_mask, reason=EAGER))


def forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: ModelMask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **rest: Any,
) -> tuple[Tensor, AttentionWeights | None]:
    """The attention of one module: (batch, queries, heads, d), and its weights if requested."""
    own: ModuleAttention | None = getattr(module, "_edgewise", None)
    if own is None:
        raise _not_in_use(module)
    relations = {name: rest.pop(name) for name in own.relations if rest.get(name) is not None}
    wanted = _wants_weights(rest)
    _check_arguments(rest, own.name)
    mask, bias = _mask_and_bias(attention_mask, module, query, key, rest)
    options = ScoreOptions(scaling, dropout, _sum(position_bias, bias), softcap, s_aux)
    weights = None
    recorded = RECORDED.get()
    if recorded is not None and own.graph is not None:
        cross = own.index < 0
        recorded.append(ModuleCall(own.name, query, key, own.graph, mask, options, cross))
    if own.graph is None:
        if wanted or recorded is not None:
            raise no_program_weights()
        program = module.get_submodule(NAME)  # an adapter may have replaced it
        out = program(query, key, value, mask, options, relations)
    elif own.place is not None:
        _check_on_mesh(own, wanted)
        out = attend_on_mesh(query, key, value, own.graph, mask, options, own.place)
    elif wanted:
        out, weights = attend_with_weights(query, key, value, own.graph, mask, options)
    else:
        out = attend(query, key, value, own.graph, mask, options)
    return out.transpose(1, 2).contiguous(), weights


def _check_on_mesh(own: ModuleAttention, wanted: bool) -> None:
    if own.index < 0:
        raise refuse_on_mesh(f"`{own.name}` is cross-attention")
    if wanted:
        raise refuse_on_mesh("weights are requested")


def _wants_weights(rest: dict[str, Any]) -> bool:
    """True under `output_attentions=True`; some models do not pass the argument on."""
    wanted = bool(rest.pop("output_attentions", False))
    from transformers.utils.output_capturing import _active_collector

    collected = _active_collector.get() or {}
    return wanted or any(name.endswith("attentions") for name in collected)


def _not_in_use(module: nn.Module) -> NotPluggable:
    if hasattr(getattr(module, "config", None), NAME):
        return NotPluggable(
            "the model was saved with a graph, which is not in use yet",
            caller(),
            "`hf.use(model, hf.graph_of(model))`, or load it by `hf.load(path)`",
        )
    return NotPluggable(
        f"a `{type(module).__name__}` was added to the model after `hf.use`",
        caller(),
        "call `hf.use(model, graph)` again after changing the model",
    )


def _mask_and_bias(
    mask: ModelMask | Tensor | None,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    rest: dict[str, Any],
) -> tuple[ModelMask, Tensor | None]:
    """The model's mask; a 4-D mask of the user becomes a bias."""
    n, m = query.shape[-2], key.shape[-2]
    if isinstance(mask, ModelMask):
        return mask, mask.bias
    if isinstance(mask, Tensor):
        return ModelMask(full(), max(m - n, 0)), mask[..., :m]
    is_causal = rest.get("is_causal")
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        return ModelMask(full()), None
    return ModelMask(causal(), m - n), None


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if b is not None and b.dtype == torch.bool:
        b = torch.zeros(b.shape, device=b.device).masked_fill(~b, -torch.inf)
    return b if a is None else a if b is None else a + b


def _check_arguments(rest: dict[str, Any], module: str) -> None:
    for name, value in rest.items():
        if name in IGNORED_ARGUMENTS or value is None or value is False:
            continue
        raise UnsupportedArgument(
            f"`{module}` passes `{name}`: {UNSUPPORTED_ARGUMENTS.get(name, 'unknown argument')}",
            caller(),
            "leave it out, or restore the model's own attention: `hf.restore(model)`",
        )
