"""Networks over structured data as weighted rules about relations, compiled to fast kernels."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the same names for type checkers, editors and the API page
    from edgewise.attention_graphs import attention_graph as attention_graph
    from edgewise.descent import training_step as training_step
    from edgewise.errors import EdgewiseError as EdgewiseError
    from edgewise.errors import EdgewiseWarning as EdgewiseWarning
    from edgewise.explain import Explanation as Explanation
    from edgewise.flow import Counterexample as Counterexample
    from edgewise.flow import Reach as Reach
    from edgewise.grow import Growing as Growing
    from edgewise.inputs.kinds import numbers as numbers
    from edgewise.inputs.kinds import ragged as ragged
    from edgewise.inputs.kinds import rows as rows
    from edgewise.kernels.attention import attention as attention
    from edgewise.language import C as C
    from edgewise.language import F as F
    from edgewise.language import Program as Program
    from edgewise.language import R as R
    from edgewise.language import V as V
    from edgewise.language import W as W
    from edgewise.language import repeat as repeat
    from edgewise.language import scope as scope
    from edgewise.module import Data as Data
    from edgewise.module import Model as Model
    from edgewise.module import Relation as Relation
    from edgewise.profile import Profile as Profile
    from edgewise.reference import Solution as Solution
    from edgewise.reference.why import Why as Why
    from edgewise.save import load as load
    from edgewise.update import Updating as Updating
    from edgewise.viewer import View as View
    from edgewise.viewer import view as view
    from edgewise.viz import Picture as Picture

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
