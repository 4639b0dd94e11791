"""Measures of a graph: hops, mixing, clustering, cost; computed from rows, never n×n."""

from edgewise.measures.quotient import cell_size, density_map
from edgewise.measures.stats import DegreeRange, Stats, measured

__all__ = ["DegreeRange", "Stats", "cell_size", "density_map", "measured"]
