"""Networks over structured data as weighted rules about relations, compiled to fast kernels."""

from importlib import import_module

_HOMES = {
    "R": "language",
    "V": "language",
    "C": "language",
    "F": "language",
    "W": "language",
    "Program": "language",
    "scope": "language",
    "repeat": "language",
    "rows": "inputs.kinds",
    "ragged": "inputs.kinds",
    "numbers": "inputs.kinds",
    "load": "save",
    "training_step": "descent",
    "attention": "kernels.attention",
    "attention_graph": "attention_graphs",
    "Model": "module",
    "Data": "module",
    "Relation": "module",
    "Solution": "reference",
    "Why": "reference.why",
    "Counterexample": "flow",
    "Reach": "flow",
    "Explanation": "explain",
    "Profile": "profile",
    "Picture": "viz",
    "View": "viewer",
    "view": "viewer",
    "Growing": "grow",
    "Updating": "update",
    "EdgewiseError": "errors",
    "EdgewiseWarning": "errors",
}

__all__ = list(_HOMES)
__version__ = "0.1.0"  # the one version number: pyproject.toml reads it


def __getattr__(name: str) -> object:
    """Public names are loaded when first used, so that the language needs no torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'edgewise' has no attribute '{name}'")
    return getattr(import_module(f"edgewise.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
