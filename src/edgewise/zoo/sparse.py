"""The Sparse Transformer: two sparse halves of attention in turns.

    layers 0, 2, ...: i attends to the last `step` tokens (strided) or to those of its block (fixed)
    layers 1, 3, ...: to every `step`-th token before i, or to the last `width` of each block

A token of the fixed far half that attends to nothing is unchanged by attention.

Paper: https://arxiv.org/abs/1904.10509. Parity: `torch` written from the paper's equations in
tests/zoo/test_sparse.py.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.sparse.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2, step=3)
>>> model = zoo.sparse.program(config).compile(R.logits, seed=0)
>>> model(token=numbers(torch.arange(9))).shape
torch.Size([9, 50])
"""

from dataclasses import dataclass

from edgewise.graphs import per_layer, sparse_transformer
from edgewise.language import F, Program
from edgewise.language.nodes import Function
from edgewise.zoo import gpt2


@dataclass(frozen=True)
class Config(gpt2.Config):
    """`layers` is even: half of them are near, half far; a `graph` replaces both."""

    layers: int = 12
    activation: Function = F.gelu
    step: int = 32
    kind: str = "strided"
    width: int = 1

    def __post_init__(self) -> None:
        if self.graph is None:
            halves = sparse_transformer(self.step, self.kind, width=self.width).halves()
            object.__setattr__(self, "graph", per_layer(*halves))
        super().__post_init__()


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`."""
    return gpt2.program(config)
