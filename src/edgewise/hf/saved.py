"""The graph of a model in its config, so that a saved model says what it attends along."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from edgewise.errors import caller
from edgewise.graphs import parse
from edgewise.graphs.drawing import require_package
from edgewise.hf.errors import NotSaved
from edgewise.hf.programs import ProgramAttention
from edgewise.hf.switch import NAME, Attention, register, use
from edgewise.language.program import Program


def graph_of(model: nn.Module) -> Attention | None:
    """What `use` gave to a model, or was saved with it; None if the model has its own attention.

    >>> from transformers import BertConfig, BertModel
    >>> from edgewise.graphs import window
    >>> graph_of(use(BertModel(BertConfig(num_hidden_layers=1)), window(3)))
    window(3)
    """
    in_use = getattr(model, "_edgewise_attention", None)
    if in_use is not None:
        return in_use
    written: dict[str, str] = getattr(getattr(model, "config", None), NAME, None) or {}
    if "missing" in written:
        raise NotSaved(
            f"the graph of this model was not saved with it: {written['missing']}",
            caller(),
            "give it again: `hf.use(model, graph)`",
        )
    if "program" in written:
        return Program.parse(written["program"])
    return parse(written["graph"]) if "graph" in written else None  # type: ignore[return-value]


def load(path: str | Path, kind: Any = None, **options: Any) -> nn.Module:
    """`kind.from_pretrained(path)` with the graph or program that the model was saved with.

    `kind` is `AutoModel` unless given; options go to `from_pretrained`.
    """
    require_package("transformers")
    from transformers import AutoModel

    register()
    model = (kind or AutoModel).from_pretrained(path, **options)
    graph = graph_of(model)
    if graph is None:
        return model
    use(model, graph)
    _load_weights(model, Path(path))
    return model


def _load_weights(model: nn.Module, folder: Path) -> None:
    """The weights of a program, which `from_pretrained` knows nothing of."""
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
