"""The graph or program of a model as text in its config, and back."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from functools import wraps
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from edgewise.errors import EdgewiseError, EdgewiseWarning, caller
from edgewise.graphs import parse, per_head, per_layer, per_sample
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import GraphNotSaved, LostGraph, NotSaved, PartNotSaved
from edgewise.hf.interface import NAME
from edgewise.hf.program_attention import ProgramAttention
from edgewise.language.program import Program

IN_USE = "_edgewise_attention"
LOADING: ContextVar[bool] = ContextVar("loading", default=False)  # `hf.load` sets the graph itself
One = Pattern | per_head | per_sample | per_layer | Program
Attention = One | Mapping[str, One]


def graph_of(model: nn.Module) -> Attention | None:
    """What `use` set, or was saved with the model; None if the model has its own attention.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise import hf
    >>> from edgewise.graphs import window
    >>> graph_of(hf.use(BertModel(BertConfig(num_hidden_layers=1)), window(3)))
    window(3)
    """
    in_use = getattr(model, IN_USE, None)
    if in_use is not None:
        return in_use
    saved = getattr(getattr(model, "config", None), NAME, None)
    if saved is None:
        return None
    parts = saved.get("parts") if isinstance(saved, dict) else None
    if isinstance(parts, dict):
        return {path: _from_config(one) for path, one in parts.items()}
    return _from_config(saved)


def to_config(attention: Attention) -> dict[str, Any]:
    """The graph or program as text for the config."""
    if isinstance(attention, Mapping):
        return {"parts": {path: to_config(one) for path, one in attention.items()}}
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


def _from_config(saved: Any) -> One:
    texts = saved if isinstance(saved, dict) else {}
    if "program" in texts:
        return Program.parse(texts["program"])
    if "graph" in texts:
        return parse(texts["graph"])
    raise NotSaved(
        f"the graph of this model was not saved with it: {texts.get('missing', 'no text')}",
        caller(),
        "set it again: `hf.use(model, graph)`",
    )


def warn_not_saved(model: nn.Module, prefix: str, _: bool) -> None:
    """Warn if a graph is lost in `save_pretrained`: it has no text, or is that of a part."""
    stored = str(getattr(getattr(model, "config", None), NAME, ""))
    frame = sys._getframe() if prefix or "'missing'" in stored else None
    while frame is not None and frame.f_code.co_name != "save_pretrained":
        frame = frame.f_back
    if frame is None:
        return
    warning: EdgewiseWarning
    if prefix:
        part = prefix.removesuffix(".")
        warning = PartNotSaved(
            f"the graph of `{part}` is not saved with the larger model",
            caller(),
            f"set it on the larger model, `hf.use(model, {{{part!r}: graph}})`; or save the part",
        )
    else:
        warning = GraphNotSaved(
            "the graph of this model has no text to save",
            caller(),
            "set it again after loading: `hf.use(model, graph)`",
        )
    warnings.warn(warning, stacklevel=2)


def refuse_lost_graphs() -> None:
    """Let `from_pretrained(path, attn_implementation="sdpa")` refuse a model saved with a graph."""
    from transformers import PreTrainedModel

    loader: Any = vars(PreTrainedModel)["from_pretrained"]
    if hasattr(loader.__func__, "__wrapped__") and loader.__func__.__module__ == __name__:
        return

    @wraps(loader.__func__)
    def from_pretrained(cls: type, *args: Any, **options: Any) -> Any:
        found = loader.__func__(cls, *args, **options)
        model = found[0] if isinstance(found, tuple) else found  # with output_loading_info
        name = model.config._attn_implementation
        if hasattr(model.config, NAME) and name != NAME and not LOADING.get():
            raise LostGraph(
                f"the model was saved with a graph, which `attn_implementation={name!r}` drops",
                caller(),
                "`hf.load(path)` keeps it; without it the model is `hf.restore(hf.load(path))`",
            )
        return found

    from_pretrained.__module__ = __name__
    PreTrainedModel.from_pretrained = classmethod(from_pretrained)  # type: ignore[method-assign,assignment]


def refuse_lost_graph(module: nn.Module, _: object) -> None:
    """Before each call of an attention module: that transformers still calls ours."""
    name = module.config._attn_implementation  # type: ignore[union-attr]
    if name != NAME:
        raise LostGraph(
            f"the model has a graph, which `attn_implementation={name!r}` drops",
            caller(),
            "write `hf.restore(model)` before it; `hf.use` sets the implementation itself",
        )


def load_program_weights(model: nn.Module, path: str | Path) -> None:
    """The weights of programs, which `from_pretrained` does not load."""
    names = {
        f"{at}.{name}"
        for at, module in model.named_modules()
        if isinstance(module, ProgramAttention)
        for name, _ in module.named_parameters()
    }
    found: dict[str, Tensor] = {}
    if names:
        from safetensors.torch import load_file

        for part in _weight_files(path):
            found |= {name: value for name, value in load_file(part).items() if name in names}
    if missing := sorted(names - found.keys()):
        raise NotSaved(
            f"`{path}` has no weight `{missing[0]}` of the program",
            caller(),
            "load from the folder that `save_pretrained` wrote",
        )
    model.load_state_dict(found, strict=False)


def _weight_files(path: str | Path) -> list[Path]:
    """The safetensors of a folder, or of a model on the hub that `from_pretrained` has cached."""
    if Path(path).is_dir():
        return sorted(Path(path).glob("*.safetensors"))
    from transformers.utils.hub import cached_file

    index = cached_file(
        str(path), "model.safetensors.index.json", _raise_exceptions_for_missing_entries=False
    )
    names = {"model.safetensors"}
    if index is not None:
        names = set(json.loads(Path(index).read_text())["weight_map"].values())
    return [Path(str(cached_file(str(path), name))) for name in sorted(names)]
