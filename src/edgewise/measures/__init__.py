"""Measures of a graph: hops, mixing, clustering, cost; computed from rows, never n×n."""

from edgewise.measures.density import density_map
from edgewise.measures.measure import measured
from edgewise.measures.stats import DegreeRange, Stats

__all__ = ["DegreeRange", "Stats", "density_map", "measured"]
