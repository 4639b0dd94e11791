"""The API reference: every public name, grouped; mkdocstrings shows signature and docstring."""

from __future__ import annotations

import inspect
import json
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

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
    "edgewise.pruning": "Heads that a model does not need",
    "edgewise.distributed": "Many ranks",
    "edgewise.training": "Training from recipes",
    "edgewise.viz": "Pictures",
}

PYNEURALOGIC = {  # its interface, with the names and signatures that it has
    "edgewise.neuralogic": "Templates, samples and seeds",
    "edgewise.neuralogic.core": "Functions and parts of templates",
    "edgewise.neuralogic.dataset": "Datasets: samples, files, databases, tensors",
    "edgewise.neuralogic.nn": "Modules, losses, initializers, optimisers and training",
    "edgewise.neuralogic.nn.optim.lr_scheduler": "Learning rates that decay from epoch to epoch",
    "edgewise.neuralogic.inference": "What holds, without values",
}

RESULTS = (  # made by functions of ours, never by their constructors
    *("Model", "Data", "Batch", "Batches", "Relation", "Growing", "Updating"),
    *("Solution", "Why", "Reach", "Counterexample", "Explanation", "Profile", "Picture"),
    *("Pretrained", "Run", "View", "AttentionGraph", "HeadSummary", "WeightedEdges"),
    *("HeadImportance", "Counterfactual"),
    "Communication",
)
INTERNAL = {  # methods that other modules of ours call
    "Data": (
        *("keep", "forget_changed", "live", "stated", "wanting", "part", "is_part", "watch"),
        *("facts_stand", "hiding", "numbers_of", "of_samples"),
    ),
    "numbers": ("on",),
    "Pretrained": (
        *("check_prompt", "decoder", "respond", "tokens", "inputs"),
        *("class_names", "problem"),
    ),
    "Dynamic": ("speed", "up_to"),
    "LongRope": ("speed", "up_to"),
    "RowSizes": ("shared", "key", "cell", "part", "rest"),
    "AttentionWeights": ("detach", "to"),
    "rows": (
        *("of", "of_any_precision", "in_precision"),
        *("with_own_keys", "renumbered", "tensors"),
    ),
    "Pattern": (
        *("parts", "residues", "compute_rows", "compute_rows_between", "rows_between"),
        *("trapezoids", "columns", "predicate", "is_arithmetic", "mask", "counts_twice"),
    ),
}


def page() -> str:
    """The page `reference/api.md`: the names of `edgewise`."""
    edgewise = import_module("edgewise")
    parts = [
        "# API",
        "Everything on this page and [the next](modules.md) is public: it changes only as "
        "[stability](stability.md) says. Every other module, class, function and method is "
        "internal. Examples run in the tests.",
    ]
    grouped = [name for names in GROUPS.values() for name in names]
    groups = {**GROUPS, "Others": tuple(n for n in edgewise.__all__ if n not in grouped)}
    for group, names in groups.items():
        known = [name for name in names if name in edgewise.__all__]
        if known:
            parts += [f"## {group}", contents("edgewise", known)]
            parts += [entry("edgewise", name, getattr(edgewise, name)) for name in known]
    return "\n\n".join(parts) + "\n"


def modules_page() -> str:
    """The page `reference/modules.md`: what else is public, module by module."""
    parts = ["# Modules", "What is public beside [the names of `edgewise`](api.md)."]
    for module, title in MODULES.items():
        parts += [f"## `{module}`", f"{title}.", *members(import_module(module))]
    return "\n\n".join(parts) + "\n"


def neuralogic_page() -> str:
    """The page `reference/neuralogic.md`: each thing once, where it is named first."""
    parts = [
        "# PyNeuraLogic's interface",
        "What `edgewise.neuralogic` has, named as in PyNeuraLogic 0.8 and earlier: its scripts "
        "run after one changed import. [Coming from PyNeuraLogic](../how-to/from-pyneuralogic.md) "
        "shows one, and says what differs.",
    ]
    known: dict[int, str] = {}
    for module, title in PYNEURALOGIC.items():
        found = {name: getattr(import_module(module), name) for name in names_in(module)}
        own = {}
        for name, thing in found.items():
            if id(thing) not in known:
                own[name], known[id(thing)] = thing, place_of(module, name, thing)
        links = " · ".join(f"[`{name}`](#{known[id(thing)]})" for name, thing in found.items())
        parts += [f"## `{module}`", f"{title}.", links]
        parts += [entry(module, name, thing) for name, thing in own.items()]
    return "\n\n".join(parts) + "\n"


def names_in(module: str) -> list[str]:
    """The public names of a module that are no modules themselves."""
    found = import_module(module)
    return [name for name in public_names(found) if not inspect.ismodule(getattr(found, name))]


def place_of(module: str, name: str, thing: Any) -> str:
    """Where mkdocstrings finds it: a second name, such as `Model`, is not described there."""
    if inspect.isclass(thing) and thing.__name__ != name:
        return f"{thing.__module__}.{thing.__qualname__}"
    return f"{module}.{name}"


def members(module: ModuleType) -> list[str]:
    """The public names of a module: a table of its submodules, then the rest one by one."""
    found = {name: getattr(module, name) for name in public_names(module)}
    inner = {name: thing for name, thing in found.items() if inspect.ismodule(thing)}
    table = ["| module | |", "| --- | --- |"]
    table += [f"| `{name}` | {_first_line(thing)} |" for name, thing in inner.items()]
    rest = [name for name in found if name not in inner]
    shown = ["\n".join(table)] if inner else []
    shown += [contents(module.__name__, rest)] if rest else []
    return shown + [entry(module.__name__, name, found[name]) for name in rest]


def contents(module: str, names: Sequence[str]) -> str:
    """Links to names on the page."""
    return " · ".join(f"[`{name}`](#{module}.{name})" for name in names)


def entry(module: str, name: str, thing: Any) -> str:
    """One name, for mkdocstrings; of a value, such as `R`, what its type says."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)):
        return f"### `{name}` {{ #{module}.{name} }}\n\n{described(thing)}"
    options = {"members": [method for method, _ in methods_of(thing)]}
    options["merge_init_into_class"] = name not in RESULTS and not _is_error(thing)
    lines = [f"::: {place_of(module, name, thing)}", "    options:"]
    if not place_of(module, name, thing).endswith(f".{name}"):
        options |= {"heading": name, "toc_label": name}
    lines += [f"      {option}: {json.dumps(value)}" for option, value in options.items()]
    return "\n".join(lines)


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or every public name that the module itself defines."""
    own = [n for n, t in vars(module).items() if getattr(t, "__module__", "") == module.__name__]
    return list(getattr(module, "__all__", [n for n in own if not n.startswith("_")]))


def methods_of(thing: Any) -> list[tuple[str, Any]]:
    """The public methods and properties of a class; those that all patterns have, once."""
    if not inspect.isclass(thing) or issubclass(thing, Exception):
        return []
    found: dict[str, Any] = {}
    bases = [base for base in thing.__mro__ if base.__module__.startswith("edgewise")]
    pattern = next((base for base in bases[1:] if base.__name__ == "Pattern"), None)
    known = dir(pattern) if pattern else [m for b in bases for m in INTERNAL.get(b.__name__, ())]
    for base in bases:
        for name, item in vars(base).items():
            function = getattr(item, "__func__", item)
            shown = inspect.isfunction(function) or isinstance(function, property)
            hidden = name.startswith("_") or name in known or not inspect.getdoc(function)
            if shown and not hidden:
                found.setdefault(name, function)
    return list(found.items())


def described(thing: object) -> str:
    """The docstring with its examples as code."""
    return with_code(inspect.getdoc(thing) or "")


def with_code(docstring: str) -> str:
    """A docstring with its examples as blocks of code.

    >>> with_code("Two.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['Two.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    lines, shown = docstring.splitlines(), []
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
