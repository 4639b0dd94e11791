"""The one table of functions and aggregations, with their definitions and laws.

Language, checks, reference, passes, kernels and steps ask it; to add a function, add its entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from edgewise.functions.aggregations import AGGREGATIONS
from edgewise.functions.combinations import COMBINATIONS
from edgewise.functions.definition import AGGREGATION as AGGREGATION
from edgewise.functions.definition import COMBINATION as COMBINATION
from edgewise.functions.definition import REQUIRED as REQUIRED
from edgewise.functions.definition import TRANSFORMATION as TRANSFORMATION
from edgewise.functions.definition import Definition as Definition
from edgewise.functions.definition import Law as Law
from edgewise.functions.elementwise import ELEMENTWISE
from edgewise.functions.rowwise import ROWWISE

DEFINITIONS: Mapping[str, Definition] = MappingProxyType(
    {d.name: d for d in (*ELEMENTWISE, *ROWWISE, *COMBINATIONS, *AGGREGATIONS)}
)
