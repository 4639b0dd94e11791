"""Functions of values, and expressions over relations."""

from edgewise.neuralogic.core.constructs.function.enum import (
    Aggregation,
    Combination,
    F,
    Transformation,
)
from edgewise.neuralogic.core.constructs.function.function import Function
from edgewise.neuralogic.core.constructs.function.function_container import FContainer

__all__ = ["Aggregation", "Combination", "F", "FContainer", "Function", "Transformation"]
