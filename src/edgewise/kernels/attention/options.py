"""The options and the further tensors of a call of attention."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from edgewise.scores.nodes import Node, S

EdgeTerm = Tensor | Sequence["EdgeTerm"]  # where graphs differ, a list with one for each


@dataclass(frozen=True)
class Options:
    """What is decided before a call; the seed of dropout is drawn at each."""

    scale: float
    score: Node  # without a default: a trace of torch 2.11 cannot make one
    dropout: float = 0.0
    offset: int = 0
    lse: bool = False
    weights: bool = False
    kernel: str | None = None


class TermInputs(NamedTuple):
    """The tensors of a call beyond q, k and v; `tables` are those of the score."""

    bias: Tensor | None = None
    edge_bias: EdgeTerm | None = None
    edge_scale: EdgeTerm | None = None
    edge_key: EdgeTerm | None = None
    edge_value: EdgeTerm | None = None
    lengths: Tensor | None = None
    tables: tuple[Tensor, ...] = ()


NO_INPUTS = TermInputs()


def changes_scores(options: Options, inputs: TermInputs) -> bool:
    """Whether a low score may become another one: then padding is masked by a bias of -∞."""
    terms = (inputs.bias, inputs.edge_bias, inputs.edge_scale, inputs.edge_key)
    return options.score != S or any(term is not None for term in terms)
