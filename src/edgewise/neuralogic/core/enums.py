"""Names of PyNeuraLogic's grounders."""

from edgewise.neuralogic.core.settings import Grounder

__all__ = ["Grounder"]
