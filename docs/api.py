"""The API reference: every public name with its signature and docstring, grouped."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

LINE = 88
GROUPS = {  # of the names in `edgewise`
    "Rules": ("R", "V", "C", "F", "W", "Program", "scope", "repeat"),
    "Models": ("Model", "Data", "Relation", "Growing", "Updating", "load", "training_step"),
    "Inputs": ("rows", "ragged", "numbers"),
    "Attention": ("attention", "attention_graph"),
    "Results": (
        "Solution",
        "Why",
        "Reach",
        "Counterexample",
        "Explanation",
        "Profile",
        "Picture",
        "view",
        "View",
    ),
    "Errors": ("EdgewiseError", "EdgewiseWarning"),
}
MODULES = {  # what else is public, by the `__all__` of each
    "edgewise.data": "Databases, tables, graphs, molecules and texts",
    "edgewise.graphs": "Sparsity patterns; [each with its set](graphs.md)",
    "edgewise.scores": "Attention scores",
    "edgewise.batches": "Mini-batches",
    "edgewise.decode": "Decoding",
    "edgewise.zoo": "Models and checkpoints",
    "edgewise.zoo.parts": "Parts of models, as blocks of rules",
    "edgewise.zoo.rope_scaling": "Rotary positions of long texts",
    "edgewise.hf": "Hugging Face models",
    "edgewise.attention_graphs": "Attention of a model as a graph",
    "edgewise.distributed": "Many ranks",
    "edgewise.training": "Training from recipes",
    "edgewise.viz": "Pictures",
}


RESULTS = (  # made by functions of ours, never by their constructors
    *("Model", "Data", "Batch", "Batches", "Relation", "Growing", "Updating"),
    *("Solution", "Why", "Reach", "Counterexample", "Explanation", "Profile", "Picture"),
    *("Pretrained", "Run", "View", "AttentionGraph", "HeadSummary", "WeightedEdges"),
    "Communication",
)
INTERNAL = {  # methods that other modules of ours call
    "Data": ("keep", "forget_changed", "live", "stated", "wanting", "part"),
    "numbers": ("on",),
    "Pattern": (
        *("parts", "residues", "compute_rows", "compute_rows_between", "rows_between"),
        *("trapezoids", "columns", "predicate", "is_arithmetic", "mask", "counts_twice"),
    ),
}


def page() -> str:
    """The page `reference/api.md`."""
    edgewise = import_module("edgewise")
    parts = [
        "# API",
        "Everything on this page is public: it changes only as [stability](stability.md) says. "
        "Every other module, class, function and method is internal.",
    ]
    grouped = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "Others": tuple(n for n in edgewise.__all__ if n not in grouped)}
    for group, names in groups.items():
        if names:
            parts.append(f"## {group}")
            known = [name for name in names if name in edgewise.__all__]
            parts += [entry(name, getattr(edgewise, name)) for name in known]
    for module, title in MODULES.items():
        parts.append(f"## `{module}`\n\n{title}.")
        parts += members(import_module(module))
    return "\n\n".join(parts) + "\n"


def members(module: ModuleType) -> list[str]:
    """The public names of a module: a table of its submodules, then the rest one by one."""
    found = {name: getattr(module, name) for name in public_names(module)}
    inner = {name: thing for name, thing in found.items() if inspect.ismodule(thing)}
    table = ["| module | |", "| --- | --- |"]
    table += [f"| `{name}` | {_first_line(thing)} |" for name, thing in inner.items()]
    rest = [entry(name, thing) for name, thing in found.items() if name not in inner]
    return ["\n".join(table), *rest] if inner else rest


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or every public name that the module itself defines."""
    own = [n for n, t in vars(module).items() if getattr(t, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [n for n in own if not n.startswith("_")]))


def entry(name: str, thing: Any) -> str:
    """One name: signature, docstring, and the public methods of a class."""
    shown = f"### `{name}`\n\n"
    if name not in RESULTS and (inspect.isclass(thing) or inspect.isfunction(thing)):
        shown += f"```py\n{signature(name, thing)}\n```\n\n"
    methods = [
        f"#### `{name}.{method}`\n\n```py\n{signature(method, function)}\n```\n\n"
        f"{described(function)}"
        for method, function in methods_of(thing)
    ]
    return "\n\n".join([shown + described(thing), *methods])


def methods_of(thing: Any) -> list[tuple[str, Any]]:
    """The public methods and properties of a class; those that all patterns have, once."""
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return []
    found: dict[str, Any] = {}
    bases = [base for base in thing.__mro__ if base.__module__.startswith("edgewise")]
    pattern = next((base for base in bases[1:] if base.__name__ == "Pattern"), None)
    known = dir(pattern) if pattern else INTERNAL.get(thing.__name__, ())
    for base in bases:
        for name, item in vars(base).items():
            function = getattr(item, "__func__", item)
            shown = inspect.isfunction(function) or isinstance(function, property)
            hidden = name.startswith("_") or name in known or not inspect.getdoc(function)
            if shown and not hidden:
                found.setdefault(name, function)
    return list(found.items())


def signature(name: str, thing: Any) -> str:
    """`name(arguments) -> type`, one argument a line if it is long; a property as `name: type`."""
    if isinstance(thing, property):
        return f"{name}: {_type(inspect.signature(thing.fget).return_annotation)}"
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return name
    arguments = list(_arguments(found))
    result = _type(found.return_annotation)
    end = f") -> {result}" if result and not inspect.isclass(thing) else ")"
    line = f"{name}({', '.join(arguments)}{end}"
    if len(line) <= LINE:
        return line
    return f"{name}(\n" + "".join(f"    {argument},\n" for argument in arguments) + end


def _arguments(found: inspect.Signature) -> Iterator[str]:
    """The arguments as they are written, with `*` and `/` where they belong."""
    kind = inspect.Parameter
    before = None
    for name, parameter in found.parameters.items():
        if name in ("self", "cls"):
            continue
        if before == kind.POSITIONAL_ONLY and parameter.kind != before:
            yield "/"
        starred = before in (kind.VAR_POSITIONAL, kind.KEYWORD_ONLY)
        if parameter.kind == kind.KEYWORD_ONLY and not starred:
            yield "*"
        before = parameter.kind
        stars = {kind.VAR_POSITIONAL: "*", kind.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        annotation = _type(parameter.annotation)
        shown = f"{stars}{name}" + (f": {annotation}" if annotation else "")
        if parameter.default is not kind.empty:
            shown += f" = {_default(parameter.default)}"
        yield shown


def _default(value: object) -> str:
    shown = re.sub(r"<factory>|<object object at .*>", "...", repr(value))
    return shown if len(shown) <= 40 else "..."


def _type(annotation: object) -> str:
    """An annotation without the modules that its names come from."""
    if annotation is inspect.Parameter.empty:
        return ""
    shown = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Z])|edgewise\.(?:\w+\.)*|'", "", shown)


def described(thing: object) -> str:
    """The docstring with its examples as code."""
    lines, shown = (inspect.getdoc(thing) or "").splitlines(), []
    inside = False
    for line in lines:
        begins = line.startswith(">>>")
        if begins and not inside:
            shown.append("```pycon")
        if inside and not line.strip():
            shown.append("```")
        inside = begins or (inside and bool(line.strip()))
        shown.append(line)
    return "\n".join([*shown, "```"] if inside else shown)


def _first_line(thing: object) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0]
