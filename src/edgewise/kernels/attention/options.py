"""What is asked of a call of attention beyond q, k, v and the graph."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from edgewise.scores.nodes import Node, S

EdgeTerm = Tensor | Sequence["EdgeTerm"]  # where graphs differ, a list with one for each


@dataclass(frozen=True, eq=False)
class Options:
    """As the user gave it."""

    scale: float
    score: Node  # without a default: a trace of torch 2.11 cannot make one
    bias: Tensor | None = None
    edge_bias: EdgeTerm | None = None
    edge_scale: EdgeTerm | None = None
    edge_key: EdgeTerm | None = None
    edge_value: EdgeTerm | None = None
    tables: tuple[Tensor, ...] = ()
    dropout: float = 0.0
    seed: int = 0
    lengths: Tensor | None = None
    offset: int = 0
    lse: bool = False
    kernel: str | None = None

    @property
    def has_terms(self) -> bool:
        """Whether a score that is low enough may become another, or others as low: then keys that
        do not exist are masked by a bias."""
        terms = (self.bias, self.edge_bias, self.edge_scale, self.edge_key)
        return self.score != S or any(term is not None for term in terms)
