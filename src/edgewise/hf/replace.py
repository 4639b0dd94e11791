"""Replacing the attention of a Hugging Face model, restoring it, and loading it saved."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from edgewise.errors import caller, checks_options, suggest
from edgewise.graphs import full, parse, per_head, per_layer, per_sample
from edgewise.graphs.algebra import pattern_instead
from edgewise.graphs.drawing import require_package
from edgewise.graphs.pattern import Pattern
from edgewise.hf import eviction, positions
from edgewise.hf.architectures import is_cross_attention, query_heads
from edgewise.hf.errors import LayerMismatch, NotAnAttention, NotPluggable, NotSaved, UnknownPart
from edgewise.hf.eviction import Graph
from edgewise.hf.graph_attention import MeshPlace, refuse_on_mesh
from edgewise.hf.interface import NAME, ModuleAttention, register
from edgewise.hf.program_attention import ProgramAttention, check_relations, compile_attention
from edgewise.hf.relations import PREPARE_INPUTS, PrepareInputs
from edgewise.hf.saved import (
    IN_USE,
    LOADING,
    Attention,
    graph_of,
    load_program_weights,
    refuse_lost_graph,
    refuse_lost_graphs,
    to_config,
    warn_not_saved,
)
from edgewise.language.program import Program

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from edgewise.distributed import Shards

BEFORE = "_attention_before_edgewise"
HOOK = "_edgewise_hook"
CACHE_HOOK = "_edgewise_cache_hook"
IN_USE_HOOK = "_edgewise_in_use_hook"
PREPARE = "_prepare_cache_for_generation"
WINDOW = "a window is a graph: `hf.use(model, window(256))`"
INSTEAD = {
    **dict.fromkeys(("window", "window_size", "sliding_window", "attention_window"), WINDOW),
    "attn_implementation": "leave it out: a graph replaces it; `hf.restore` brings it back",
    **dict.fromkeys(
        ("mask", "attention_mask", "graph", "pattern", "program"),
        "give it second: `hf.use(model, window(256))`",
    ),
    **dict.fromkeys(
        ("layers", "modules", "target_modules"),
        'name parts of the model: `hf.use(model, {"encoder": window(256)})`',
    ),
}


FOLDER = "give the folder of `save_pretrained`, or a name that transformers has in its cache"


@checks_options(**INSTEAD)
def use(
    model: nn.Module,
    attention: Attention | str,
    *,
    mesh: DeviceMesh | None = None,
    shards: Shards | None = None,
) -> nn.Module:
    """Replace the self-attention of a Hugging Face model by a graph or a program.

    The model's own mask (causal, sliding window, packed sequences, padding) still applies: it is
    intersected with the graph. `per_layer` counts the self-attention modules in order, `per_head`
    query heads, `per_sample` the rows of every batch. Cross-attention stays dense. Weights are not
    touched, nor other models of the same config; `restore` undoes it. A program reads `q(H, I)`,
    already scaled, `k(H, J)` and `v(H, J)` and derives `out(H, I)`; its weights become parameters
    of the model, separate for each layer; other relations that it reads come with every batch, as
    arguments of the model's call: `model(input_ids, arc=...)`. A mapping from names of modules,
    such as `{"encoder": window(3)}`, replaces the attention inside these alone. A graph may be
    text, as `repr` prints it. A saved model stores its graph or program in its config: `load`
    restores it. With one axis of a `mesh` the model is called with the tokens of this rank and
    their `position_ids`, and attention goes over those of all ranks; `shards` say which each has.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import global_tokens, window
    >>> model = BertModel(BertConfig(num_hidden_layers=1))
    >>> model = use(model, window(256) | global_tokens(1))
    """
    modules = attention_modules(model)
    parsed: Attention = _parsed(attention)
    self_attention = [name for name, module in modules if not is_cross_attention(name, module)]
    chosen = _per_module(model, parsed, self_attention)
    for name, module in modules:
        _check_heads(chosen.get(name, full()), module, name)
    relations = _relations(chosen.values())
    check_relations(model, relations)
    place = None if mesh is None else MeshPlace(mesh, shards)
    if place is not None and any(isinstance(one, ProgramAttention) for one in chosen.values()):
        raise refuse_on_mesh("it is a program")
    restore(model)
    _install(modules, chosen, self_attention, relations, place)
    causal = [one for name, one in chosen.items() if _is_causal(model.get_submodule(name))]
    _hook_generation(model, relations, _relations(causal))
    register()
    refuse_lost_graphs()
    _copy_configs(model)
    owners = [one for one in (model, *(module for _, module in modules)) if hasattr(one, "config")]
    configs: list[Any] = list({id(one.config): one.config for one in owners}.values())
    names = [config._attn_implementation for config in configs]
    # saved with a graph and loaded by transformers, it had none of its own: None is the default
    setattr(
        model, BEFORE, [(c, None if n == NAME else n) for c, n in zip(configs, names, strict=True)]
    )
    _set_implementation(model, [(config, NAME) for config in configs])
    positions.watch_lengths(model)
    setattr(model, IN_USE, parsed)
    setattr(model, HOOK, model.register_state_dict_pre_hook(warn_not_saved))
    if hasattr(model, "config"):  # saved, so that transformers loads no other attention
        setattr(model.config, NAME, to_config(parsed))
        vars(model.config)["attn_implementation"] = NAME
    return model


def _install(
    modules: list[tuple[str, nn.Module]],
    chosen: Mapping[str, Graph | per_sample | ProgramAttention],
    self_attention: list[str],
    relations: frozenset[str],
    place: MeshPlace | None,
) -> None:
    """Give every module its attention, and causal ones a cache that evicts keys."""
    indices = {name: index for index, name in enumerate(self_attention)}
    causal = [name for name, module in modules if name in indices and _is_causal(module)]
    evicting = {name for name in causal if eviction.evicts(chosen.get(name, full()))}
    evict = partial(eviction.install, sliding=len(evicting) == len(causal))
    for name, module in modules:
        attend = chosen.get(name, full())
        graph = None if isinstance(attend, ProgramAttention) else attend
        if isinstance(attend, ProgramAttention):
            module.add_module(NAME, attend)
        own = ModuleAttention(name, indices.get(name, -1), graph, relations, place)
        module._edgewise = own  # type: ignore[assignment]
        handle = module.register_forward_pre_hook(refuse_lost_graph)
        setattr(module, IN_USE_HOOK, handle)
        if name in evicting:
            handle = module.register_forward_pre_hook(evict, with_kwargs=True)
            setattr(module, CACHE_HOOK, handle)


def _relations(chosen: Iterable[object]) -> frozenset[str]:
    """What programs read of a batch."""
    programs = [one for one in chosen if isinstance(one, ProgramAttention)]
    return frozenset(name for one in programs for name in one.relations)


def _is_causal(module: nn.Module) -> bool:
    return bool(getattr(module, "is_causal", True))


def _hook_generation(model: nn.Module, relations: frozenset[str], growing: frozenset[str]) -> None:
    """What `generate` calls: caches that evict, and relations of the tokens so far."""
    for module in model.modules():
        if hasattr(type(module), PREPARE):
            setattr(module, PREPARE, partial(eviction.prepare_for_generation, module))
            if relations:
                setattr(module, PREPARE_INPUTS, PrepareInputs(module, relations, growing))


def restore(model: nn.Module) -> nn.Module:
    """Restore the attention that a model had before `use`.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise import hf
    >>> from edgewise.graphs import window
    >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> model = hf.use(BertModel(BertConfig(vocab_size=9, intermediate_size=8, **sizes)), window(2))
    >>> hf.graph_of(hf.restore(model)) is None
    True
    """
    for module in list(model.modules()):
        module.__dict__.pop("_edgewise", None)
        module._modules.pop(NAME, None)
        module.__dict__.pop(PREPARE, None)
        module.__dict__.pop(PREPARE_INPUTS, None)
        for hook in (CACHE_HOOK, IN_USE_HOOK, positions.HOOK):
            if hook in module.__dict__:
                module.__dict__.pop(hook).remove()
    for module in list(model.modules()):  # `use` may have been called on a submodule
        before = module.__dict__.pop(BEFORE, None)
        if before is not None:
            _set_implementation(module, before)
            module.__dict__.pop(IN_USE, None)
            module.__dict__.pop(HOOK).remove()
            for name in (NAME, "attn_implementation"):
                vars(module.config).pop(name, None)
    return model


def load(path: str | Path, kind: type | None = None, **options: object) -> nn.Module:
    """`kind.from_pretrained(path)` with the graph or program that the model was saved with.

    `kind` defaults to the class that was saved; options go to `from_pretrained`.

    >>> import tempfile
    >>> from transformers import BertConfig, BertModel
    >>> from edgewise import hf
    >>> from edgewise.graphs import window
    >>> sizes = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> model = BertModel(BertConfig(vocab_size=9, intermediate_size=8, **sizes))
    >>> hf.use(model, window(2)).save_pretrained(folder := tempfile.mkdtemp())
    >>> hf.graph_of(hf.load(folder))
    window(2)
    """
    require_package("transformers")
    register()
    refuse_lost_graphs()
    folder = Path(path, str(options.get("subfolder", "")))
    if folder.is_dir() and not (folder / "config.json").exists():
        what = f"no model is loaded from `{path}`: there is no config.json"
        raise NotSaved(what, caller(), FOLDER)
    token = LOADING.set(True)
    try:
        loader: Any = kind or _saved_class(path, options)
        model = loader.from_pretrained(path, **{"attn_implementation": None, **options})
    except OSError as error:  # no such folder or name, or one without weights
        why = str(error).partition("\n")[0]
        raise NotSaved(f"no model is loaded from `{path}`: {why}", caller(), FOLDER) from None
    finally:
        LOADING.reset(token)
    graph = graph_of(model)
    if graph is None:
        return model
    use(model, graph)
    load_program_weights(model, path)
    return model


def _saved_class(path: str | Path, options: Mapping[str, Any]) -> Any:
    """The class that `save_pretrained` was called on, where transformers has it."""
    import transformers

    stored, _ = transformers.PretrainedConfig.get_config_dict(path, **options)
    names = stored.get("architectures") or ["AutoModel"]
    return getattr(transformers, names[0], transformers.AutoModel)


def attention_modules(model: nn.Module) -> list[tuple[str, nn.Module]]:
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
            "use a model that supports `set_attn_implementation`, as Llama, Qwen, GPT-NeoX, OPT "
            "and BERT do; Bloom, Falcon, GPT-J and XGLM compute attention in code of their own",
        )
    return found


def _copy_configs(model: nn.Module) -> None:
    """Copy the configs, which other models may share; a config shared in the model stays shared."""
    from transformers import PretrainedConfig

    copied: dict[int, Any] = {}
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, PretrainedConfig):
                setattr(module, name, copy.deepcopy(value, copied))


def _set_implementation(model: nn.Module, names: list[tuple[Any, str | None]]) -> None:
    """Set `_attn_implementation`: by the model's setter, and where it does not reach (T5)."""
    model.set_attn_implementation(names[0][1])  # type: ignore[operator]
    for config, name in names:
        if name is not None and config._attn_implementation != name:
            config._attn_implementation = name


def _parsed(attention: Any) -> Any:
    """Graphs that are texts as patterns."""
    if isinstance(attention, Mapping):
        return {path: _parsed(one) for path, one in attention.items()}
    return parse(attention) if isinstance(attention, str) else attention


def _per_module(
    model: nn.Module, attention: Any, names: list[str]
) -> dict[str, Graph | per_sample | ProgramAttention]:
    """The attention of each self-attention module that has one of its own."""
    if not isinstance(attention, Mapping):
        return dict(zip(names, _per_layer(model, attention, len(names)), strict=True))
    if not attention:
        raise UnknownPart("the mapping names no part", caller(), f"name one, such as `{names[0]}`")
    found: dict[str, Any] = {}
    for path, one in attention.items():
        inside = [name for name in names if f"{name}.".startswith(f"{path}.")]
        if not inside or any(name in found for name in inside):
            raise _unknown_part(path, names, bool(inside))
        found |= zip(inside, _per_layer(model, one, len(inside)), strict=True)
    return found


def _per_layer(model: nn.Module, attention: Any, count: int) -> list[Any]:
    """The attention of each of `count` modules."""
    if isinstance(attention, Program):
        first = compile_attention(attention, model)
        return [first, *(first.copy() for _ in range(count - 1))]
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
            "of one graph for each layer, write `per_layer(a, b)`; for each head, `per_head(a, b)`"
            if isinstance(attention, list | tuple)
            else pattern_instead(attention),
        )
    return [attention] * count


def _unknown_part(path: object, names: list[str], twice: bool) -> UnknownPart:
    if twice:
        return UnknownPart(f"`{path}` is inside another part", caller(), "give each module once")
    parts = [".".join(name.split(".")[:depth]) for name in names for depth in range(1, 9)]
    return UnknownPart(
        f"the model has no self-attention in `{path}`",
        caller(),
        suggest(path, parts, f"write a name such as `{names[0]}`"),
    )


def _check_heads(graph: object, module: nn.Module, name: str) -> None:
    heads = query_heads(module)
    for one in graph if isinstance(graph, per_sample) else (graph,):
        if heads is not None and isinstance(one, per_head) and len(one) != heads:
            raise LayerMismatch(
                f"the graph has {len(one)} patterns, `{name}` has {heads} heads",
                caller(),
                "give one pattern per query head",
            )
