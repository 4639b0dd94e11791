"""Replacing the attention of a Hugging Face model, restoring it, and loading it saved."""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import causal, full, parse, per_head, per_layer, per_sample
from edgewise.graphs.drawing import require_package
from edgewise.graphs.pattern import Pattern
from edgewise.hf.architectures import (
    IGNORED_ARGUMENTS,
    UNSUPPORTED_ARGUMENTS,
    is_cross_attention,
    query_heads,
)
from edgewise.hf.errors import (
    LayerMismatch,
    NotAnAttention,
    NotPluggable,
    NotSaved,
    PartNotSaved,
    UnsupportedArgument,
)
from edgewise.hf.graph_attention import Graph, ScoreOptions, attend
from edgewise.hf.masks import ModelMask, build_mask
from edgewise.hf.program_attention import ProgramAttention, compile_attention
from edgewise.language.program import Program

BEFORE = "_attention_before_edgewise"
IN_USE = "_edgewise_attention"
HOOK = "_edgewise_hook"
Attention = Pattern | per_head | per_sample | per_layer | Program


def use(model: nn.Module, attention: Attention) -> nn.Module:
    """Replace the self-attention of a Hugging Face model by a graph or a program.

    The model's own mask (causal, sliding window, packed sequences, padding) still applies: it is
    intersected with the graph. `per_layer` counts the self-attention modules in order, `per_head`
    query heads, `per_sample` the rows of every batch. Cross-attention stays dense. Weights are not
    touched, nor other models of the same config; `restore` undoes it. A program reads `q(H, I)`,
    already scaled, `k(H, J)` and `v(H, J)` and derives `out(H, I)`; its weights become parameters
    of the model, separate for each layer. A saved model stores its graph or program in its config:
    `load` restores it.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import global_tokens, window
    >>> model = BertModel(BertConfig(num_hidden_layers=1))
    >>> model = use(model, window(256) | global_tokens(1))
    """
    modules = _attention_modules(model)
    self_attention = [name for name, module in modules if not is_cross_attention(name, module)]
    per_module = _per_module(model, attention, len(self_attention))
    restore(model)
    indices = {name: index for index, name in enumerate(self_attention)}
    for name, module in modules:
        graph = per_module[indices[name]] if name in indices else full()
        for one in graph if isinstance(graph, per_sample) else (graph,):
            if isinstance(one, per_head):
                _check_heads(one, module, name)
        if isinstance(graph, ProgramAttention):
            module.add_module(NAME, graph)
        module._edgewise = ModuleAttention(name, indices.get(name, -1), graph)  # type: ignore[assignment]
    register()
    _copy_configs(model)
    owners = [one for one in (model, *(module for _, module in modules)) if hasattr(one, "config")]
    configs: list[Any] = list({id(one.config): one.config for one in owners}.values())
    before = [(config, config._attn_implementation) for config in configs]
    setattr(model, BEFORE, before)
    _set_implementation(model, [(config, NAME) for config, _ in before])
    setattr(model, IN_USE, attention)
    setattr(model, HOOK, model.register_state_dict_pre_hook(_warn_part))
    if hasattr(model, "config"):  # saved, so that transformers loads no other attention
        setattr(model.config, NAME, _to_config(attention))
        vars(model.config)["attn_implementation"] = NAME
    return model


def restore(model: nn.Module) -> nn.Module:
    """Restore the attention that a model had before `use`."""
    for module in model.modules():
        module.__dict__.pop("_edgewise", None)
    for module in list(model.modules()):
        if isinstance(module._modules.get(NAME), ProgramAttention):
            del module._modules[NAME]
    for module in list(model.modules()):  # `use` may have been called on a submodule
        before = module.__dict__.pop(BEFORE, None)
        if before is not None:
            _set_implementation(module, before)
            module.__dict__.pop(IN_USE, None)
            module.__dict__.pop(HOOK).remove()
            for name in (NAME, "attn_implementation"):
                vars(module.config).pop(name, None)
    return model


def graph_of(model: nn.Module) -> Attention | None:
    """What `use` set, or was saved with the model; None if the model has its own attention.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import window
    >>> graph_of(use(BertModel(BertConfig(num_hidden_layers=1)), window(3)))
    window(3)
    """
    in_use = getattr(model, IN_USE, None)
    if in_use is not None:
        return in_use
    saved: dict[str, str] = getattr(getattr(model, "config", None), NAME, None) or {}
    if "missing" in saved:
        raise NotSaved(
            f"the graph of this model was not saved with it: {saved['missing']}",
            caller(),
            "set it again: `hf.use(model, graph)`",
        )
    if "program" in saved:
        return Program.parse(saved["program"])
    return parse(saved["graph"]) if "graph" in saved else None


def load(path: str | Path, kind: type | None = None, **options: object) -> nn.Module:
    """`kind.from_pretrained(path)` with the graph or program that the model was saved with.

    `kind` defaults to `AutoModel`; options go to `from_pretrained`.
    """
    require_package("transformers")
    from transformers import AutoModel

    register()
    loader: Any = kind or AutoModel
    model = loader.from_pretrained(path, **options)
    graph = graph_of(model)
    if graph is None:
        return model
    use(model, graph)
    _load_program_weights(model, Path(path))
    return model


def _warn_part(model: nn.Module, prefix: str, _: bool) -> None:
    """Warn if the model is saved as part of a larger one, whose config has no graph."""
    frame = sys._getframe() if prefix else None
    while frame is not None and frame.f_code.co_name != "save_pretrained":
        frame = frame.f_back
    if frame is not None:
        warning = PartNotSaved(
            f"the graph of `{prefix.removesuffix('.')}` is not saved with the larger model",
            caller(),
            "set it on the larger model: `hf.use(model, graph)`; or save the part itself",
        )
        warnings.warn(warning, stacklevel=2)


def _to_config(attention: Attention) -> dict[str, str]:
    """The graph or program as text for the config."""
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
    return {"graph": text} if exact else {"missing": f"`{text[:80]}` has no exact text form"}


def _load_program_weights(model: nn.Module, folder: Path) -> None:
    """The weights of programs, which `from_pretrained` does not load."""
    names = {
        f"{at}.{name}"
        for at, module in model.named_modules()
        if isinstance(module, ProgramAttention)
        for name, _ in module.named_parameters()
    }
    found: dict[str, Any] = {}
    if names:
        from safetensors.torch import load_file

        for part in sorted(folder.glob("*.safetensors")):
            found |= {name: value for name, value in load_file(part).items() if name in names}
    if missing := sorted(names - found.keys()):
        raise NotSaved(
            f"`{folder}` has no weight `{missing[0]}` of the program",
            caller(),
            "load from the folder that `save_pretrained` wrote",
        )
    model.load_state_dict(found, strict=False)


def _copy_configs(model: nn.Module) -> None:
    """Copy the configs, which other models may share; a config shared in the model stays shared."""
    from transformers import PretrainedConfig

    copied: dict[int, Any] = {}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, PretrainedConfig):
                setattr(module, name, copy.deepcopy(value, copied))


def _set_implementation(model: nn.Module, names: list[tuple[Any, str]]) -> None:
    """Set `_attn_implementation`: by the model's setter, and where it does not reach (T5)."""
    model.set_attn_implementation(names[0][1])  # type: ignore[operator]
    for config, name in names:
        if config._attn_implementation != name:
            config._attn_implementation = name


def _attention_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The modules that look up their attention function in transformers, in order."""
    require_package("transformers")
    if not isinstance(model, nn.Module):
        raise NotPluggable(
            f"expected a model, got {type(model).__name__}",
            caller(),
            "load one: `AutoModel.from_pretrained(name)`",
        )
    found = []
    for name, module in model.named_modules():
        code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
        if code is not None and "ALL_ATTENTION_FUNCTIONS" in code.co_names:
            found.append((name, module))
    if not found or not hasattr(model, "set_attn_implementation"):
        raise NotPluggable(
            f"`{type(model).__name__}` does not look up its attention in transformers",
            caller(),
            "use a Hugging Face model that supports `set_attn_implementation`",
        )
    return found


def _per_module(
    model: nn.Module, attention: Any, count: int
) -> list[Graph | per_sample | ProgramAttention]:
    """The attention of each self-attention module."""
    if isinstance(attention, Program):
        first = compile_attention(attention, model)
        copies = [first, *(copy.deepcopy(first) for _ in range(count - 1))]
        for one in copies:
            one._checked = first._checked  # the same rules are checked once
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
    heads = query_heads(module)
    if heads is not None and len(graph) != heads:
        raise LayerMismatch(
            f"the graph has {len(graph)} patterns, `{name}` has {heads} heads",
            caller(),
            "give one pattern per query head",
        )


NAME = "edgewise"


@dataclass(frozen=True, eq=False)
class ModuleAttention:
    """What one attention module of a model computes; `index` counts self-attention modules."""

    name: str
    index: int
    graph: Graph | per_sample | ProgramAttention


def register() -> None:
    """Register the attention and its masks with transformers, under `NAME`."""
    from transformers import AttentionInterface, AttentionMaskInterface

    # they depend on values of tensors: a compiled model calls them eagerly
    AttentionInterface.register(NAME, torch.compiler.disable(forward))
    AttentionMaskInterface.register(NAME, torch.compiler.disable(build_mask))


def forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: ModelMask | Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """The attention of one module: (batch, queries, heads, d)."""
    own: ModuleAttention | None = getattr(module, "_edgewise", None)
    if own is None:
        raise _not_in_use(module)
    _check_arguments(rest, own.name)
    mask, bias = _mask_and_bias(attention_mask, module, query, key, rest)
    options = ScoreOptions(scaling, dropout, _sum(position_bias, bias))
    if isinstance(own.graph, ProgramAttention):
        out = own.graph.attend(query, key, value, mask, options)
    else:
        out = attend(query, key, value, own.graph, mask, options)
    return out.transpose(1, 2).contiguous(), None


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
    if isinstance(mask, ModelMask):
        return mask, None
    if isinstance(mask, Tensor):
        offset = max(key.shape[-2] - query.shape[-2], 0)
        return ModelMask(full(), offset), mask[..., : key.shape[-2]]
    is_causal = rest.get("is_causal")
    if not (getattr(module, "is_causal", True) if is_causal is None else is_causal):
        return ModelMask(full()), None
    return ModelMask(causal(), key.shape[-2] - query.shape[-2]), None


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
