"""Into a model and out of it again: which modules attend, and what each of them attends by."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import drawing, full, parse
from edgewise.graphs.families import per_head, per_layer, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.hf.attend import Graph, Options, attend
from edgewise.hf.errors import LayerMismatch, NotAnAttention, NotPluggable, UnsupportedArgument
from edgewise.hf.mask import Mask, mask
from edgewise.hf.programs import ProgramAttention, compiled
from edgewise.language.program import Program

NAME = "edgewise"
BEFORE = "_attention_before_edgewise"
IN_USE = "_edgewise_attention"
Attention = Pattern | per_head | per_sample | per_layer | Program
# what models pass on to any attention function: said by the mask too, or not about attention
TOLD = {
    *("position_ids", "cache_position", "use_cache", "is_causal", "sliding_window"),
    *(
        "output_hidden_states",
        "return_dict",
        "num_items_in_batch",
        "layer_idx",
        "position_embeddings",
    ),
}


@dataclass(frozen=True, eq=False)
class Place:
    """One attention module of a model: where it stands, and what it hears along."""

    name: str
    number: int
    graph: Graph | per_sample | ProgramAttention
    cross: bool = False


def use(model: nn.Module, attention: Attention) -> nn.Module:
    """Let the self-attention of a Hugging Face model hear along a graph, or by a program.

    The pairs that the model itself allows (causal, sliding window, packed texts, padding) still
    hold: the graph is met with them. `per_layer` counts the self-attention modules in their order,
    `per_head` query heads, `per_sample` the rows of every batch. Cross-attention stays dense.
    Weights are not touched, nor other models of the same config; `restore` undoes it. A program
    reads `q(H, I)`, already scaled, `k(H, J)` and `v(H, J)` and derives `out(H, I)`; its own
    weights become parameters of the model, for each layer its own. A model that is saved keeps
    what it attends along in its config: `load` brings it back.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import global_tokens, window
    >>> model = BertModel(BertConfig(num_hidden_layers=1))
    >>> model = use(model, window(256) | global_tokens(1))
    """
    places = _attention_modules(model)
    selves = [place for place in places if not place[2]]
    chosen = _chosen(model, attention, len(selves))
    restore(model)
    numbers = {name: number for number, (name, _, _) in enumerate(selves)}
    for name, module, cross in places:
        graph = full() if cross else chosen[numbers[name]]
        for one in graph if isinstance(graph, per_sample) else (graph,):
            if isinstance(one, per_head):
                _check_heads(one, module, name)
        if isinstance(graph, ProgramAttention):
            module.add_module(NAME, graph)
        module._edgewise = Place(name, numbers.get(name, -1), graph, cross)  # type: ignore[assignment]
    register()
    _own_configs(model)
    configs = _configs(model, [module for _, module, _ in places])
    setattr(model, BEFORE, [(config, config._attn_implementation) for config in configs])
    _say(model, [(config, NAME) for config in configs])
    setattr(model, IN_USE, attention)
    if hasattr(model, "config"):  # as saved: transformers then loads no other attention for it
        setattr(model.config, NAME, _written(attention))
        vars(model.config)["attn_implementation"] = NAME
    return model


def restore(model: nn.Module) -> nn.Module:
    """Give a model the attention back that it had before `use`."""
    for module in model.modules():
        module.__dict__.pop("_edgewise", None)
    for module in list(model.modules()):
        if isinstance(module._modules.get(NAME), ProgramAttention):
            del module._modules[NAME]
    for module in list(model.modules()):  # a part of it may have been switched alone
        before = module.__dict__.pop(BEFORE, None)
        if before is not None:
            _say(module, before)
            module.__dict__.pop(IN_USE, None)
            for name in (NAME, "attn_implementation"):
                vars(module.config).pop(name, None)
    return model


def _written(attention: Attention) -> dict[str, str]:
    """What a model attends along as data for its config."""
    if isinstance(attention, Program):
        try:
            return {"program": attention.text()}
        except EdgewiseError as error:
            return {"missing": error.message}
    text = repr(attention)
    try:
        exact = parse(text) == attention
    except EdgewiseError:
        exact = False
    return {"graph": text} if exact else {"missing": f"`{text[:80]}` has no text to read back"}


def _own_configs(model: nn.Module) -> None:
    """Copies of the configs, which other models may read too; what is one object stays one."""
    from transformers import PretrainedConfig

    copied: dict[int, Any] = {}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, PretrainedConfig):
                setattr(module, name, copy.deepcopy(value, copied))


def _configs(model: nn.Module, modules: list[nn.Module]) -> list[Any]:
    """The configs that modules ask for their attention, that of the model first, each once."""
    found = {id(m.config): m.config for m in (model, *modules) if hasattr(m, "config")}
    return list(found.values())


def _say(model: nn.Module, names: list[tuple[Any, str]]) -> None:
    """Through the model, which checks the name; then where it does not reach, as in T5's stacks."""
    model.set_attn_implementation(names[0][1])  # type: ignore[operator]
    for config, name in names:
        if config._attn_implementation != name:
            config._attn_implementation = name


def register() -> None:
    """Make the attention known to transformers by its name."""
    from transformers import AttentionInterface, AttentionMaskInterface

    # what they do depends on numbers in tensors: a compiled model calls them as they are
    AttentionInterface.register(NAME, torch.compiler.disable(forward))
    AttentionMaskInterface.register(NAME, torch.compiler.disable(mask))


def forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Mask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """What a model calls: the attention of this module, (batch, queries, heads, d)."""
    place: Place | None = getattr(module, "_edgewise", None)
    if place is None:
        if hasattr(getattr(module, "config", None), NAME):
            raise NotPluggable(
                "the model was saved with a graph, which is not in use yet",
                caller(),
                "`hf.use(model, hf.graph_of(model))`, or load it by `hf.load(path)`",
            )
        raise NotPluggable(
            f"a `{type(module).__name__}` attends that was not there when the model was switched",
            caller(),
            "call `hf.use(model, graph)` again after changing the model",
        )
    _refuse(rest, place)
    told, bias = _told(attention_mask, module, query, key, rest)
    options = Options(scaling, dropout, _sum(position_bias, bias))
    if isinstance(place.graph, ProgramAttention):
        out = place.graph.attend(query, key, value, told, options)
    else:
        out = attend(query, key, value, place.graph, told, options)
    return out.transpose(1, 2).contiguous(), None


def _told(
    given: Mask | Tensor | None,
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    rest: dict[str, Any],
) -> tuple[Mask, Tensor | None]:
    """What the model says about pairs, and a mask of the user's own as a bias."""
    if isinstance(given, Mask):
        return given, None
    if isinstance(given, Tensor):
        return Mask(full(), max(key.shape[-2] - query.shape[-2], 0)), given[..., : key.shape[-2]]
    ahead = rest.get("is_causal")
    ahead = getattr(module, "is_causal", True) if ahead is None else ahead
    if not ahead:
        return Mask(full()), None
    from edgewise.graphs import causal

    return Mask(causal(), key.shape[-2] - query.shape[-2]), None


def _sum(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    if b is not None and b.dtype == torch.bool:
        b = torch.zeros(b.shape, device=b.device).masked_fill(~b, -torch.inf)
    return b if a is None else a if b is None else a + b


def _refuse(rest: dict[str, Any], place: Place) -> None:
    for name, value in rest.items():
        if name in TOLD or value is None or value is False:
            continue
        reasons = {
            "output_attentions": "attention weights are never stored",
            "softcap": "scores are not capped",
            "s_aux": "there are no sinks",
        }
        raise UnsupportedArgument(
            f"`{place.name}` asks for `{name}`: {reasons.get(name, 'it is not known here')}",
            caller(),
            "leave it out, or give the model its own attention back: `hf.restore(model)`",
        )


def _attention_modules(model: nn.Module) -> list[tuple[str, nn.Module, bool]]:
    """The modules that ask transformers for their attention function, in order; which are cross."""
    drawing.require_package("transformers")
    if not isinstance(model, nn.Module):
        raise NotPluggable(
            f"expected a model, got {type(model).__name__}",
            caller(),
            "make one: `AutoModel.from_pretrained(name)`",
        )
    found = []
    for name, module in model.named_modules():
        code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
        if code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names:
            found.append((name, module, _is_cross(name, module)))
    if not found or not hasattr(model, "set_attn_implementation"):
        raise NotPluggable(
            f"`{type(model).__name__}` does not ask transformers for its attention",
            caller(),
            "give a Hugging Face model whose `set_attn_implementation` works",
        )
    return found


def _is_cross(name: str, module: nn.Module) -> bool:
    last = name.rpartition(".")[2]
    named = any(
        word in name.lower() for word in ("crossattention", "encoder_attn", "encdecattention")
    )
    return (
        bool(getattr(module, "is_cross_attention", False))
        or "CrossAttention" in type(module).__name__
        or named
        or last == "cross_attn"
    )


def _chosen(
    model: nn.Module, attention: Any, count: int
) -> list[Graph | per_sample | ProgramAttention]:
    """What each of the self-attention modules hears along."""
    if isinstance(attention, Program):
        made = compiled(attention, model)
        copies = [made, *(copy.deepcopy(made) for _ in range(count - 1))]
        for one in copies:
            one._met = made._met  # the same rules: asked once
        return list(copies)
    if isinstance(attention, per_layer):
        if len(attention) != count:
            raise LayerMismatch(
                f"the graph has {len(attention)} layers, the model has {count}",
                caller(),
                f"give as many patterns as layers: {count}",
            )
        return list(attention)
    if not isinstance(attention, Pattern | per_head | per_sample):
        raise NotAnAttention(
            f"expected a graph or a program, got {type(attention).__name__}",
            caller(),
            "write one of `edgewise.graphs`, such as `window(3)`",
        )
    return [attention] * count


def _check_heads(graph: per_head, module: nn.Module, name: str) -> None:
    heads = heads_of(module)
    if heads is not None and len(graph) != heads:
        raise LayerMismatch(
            f"the graph has {len(graph)} patterns, `{name}` has {heads} heads",
            caller(),
            "give one pattern per query head",
        )


def heads_of(module: nn.Module) -> int | None:
    for name in ("num_heads", "num_attention_heads", "n_heads"):
        for owner in (module, getattr(module, "config", None)):
            found = getattr(owner, name, None)
            if isinstance(found, int):
                return found
    return None
