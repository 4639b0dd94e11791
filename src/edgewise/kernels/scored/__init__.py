"""Attention along edges whose score is not a dot product: GAT, GATv2, Exphormer, given scores."""

from edgewise.kernels.scored.contract import KINDS
from edgewise.kernels.scored.operators import IMPLEMENTATIONS, choose, scored

__all__ = ["IMPLEMENTATIONS", "KINDS", "choose", "scored"]
