"""What a graph is like: hops, mixing, clustering, cost. Rows in, numbers out, never n×n."""

from edgewise.measures.density import density_map
from edgewise.measures.measure import measured
from edgewise.measures.stats import Spread, Stats

__all__ = ["Spread", "Stats", "density_map", "measured"]
