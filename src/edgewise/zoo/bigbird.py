"""BigBird: window, global and random blocks of attention.

Blocks of tokens attend to the blocks next to them, to the first and the last one (which attend to
all), and to `random` others. In evaluation Hugging Face takes block 0 for each of the random ones:
keys of block 0 then count 1 + random times, which is log(1 + random) in the score.

Paper: https://arxiv.org/abs/2007.14062. Parity: `transformers.BigBirdModel`, in evaluation.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.bigbird.Config(
...     vocabulary=50, size=16, heads=2, hidden=32, layers=2, block=2, random=1
... )
>>> model = zoo.bigbird.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

import math
from dataclasses import dataclass

from edgewise.errors import caller
from edgewise.graphs import Pattern, bigbird, full
from edgewise.language import F, Program, R, V
from edgewise.language.nodes import Atom, Expression, Function
from edgewise.zoo import bert, layers
from edgewise.zoo.block import BadConfig, Edges
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config(bert.Config):
    """`variant`: `uniform` draws random blocks with `seed`, `hf_eval` repeats block 0.

    A `graph` replaces the blocks.
    """

    vocabulary: int = 50_358
    length: int = 4096
    activation: Function = F.gelu_tanh
    block: int = 64
    random: int = 3
    variant: str = "uniform"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant == "hf_eval" and (self.graph is not None or self.aggregation != "softmax"):
            raise BadConfig(
                "`variant='hf_eval'` repeats keys of BigBird's own blocks, in their scores",
                caller(),
                "write `variant='uniform'` with another graph or aggregation",
            )

    @property
    def pattern(self) -> Pattern:
        """BigBird's set of pairs; rules give their multiplicity."""
        return bigbird(self.block, self.random, variant=self.variant, seed=self.seed) & full()


def repeated_keys(x: Atom, config: Config) -> Statements:
    """counted(J) · sparse(I) is what is added to the score of a key that counts several times.

    It counts for rows of blocks between the first and the last, unless the text is so short
    that attention is dense.
    """
    block, rows = config.block, R.hidden[x.relation]
    after = R.special.next(V.B, V.C), R._begins(V.C)  # there is a block after it
    long = rows((5 + 2 * config.random) * block)
    times = math.log(1 + config.random)
    return [
        R.begins(V.B) <= (rows(V.I), R.special.mul(V.B, block, V.I)),
        (R.sparse(V.I) <= rows(V.I)) | [F.reverse],
        R.sparse(V.I)
        <= (rows(V.I), R.special.geq(V.I, block), R.special.div(V.I, block, V.B), *after, long),
        (R.counted(V.J) <= rows(V.J)) | [F.reverse],
        R.counted(V.J)[times].fixed() <= (rows(V.J), R.special.lt(V.J, block)),
    ]


def layer(x: Atom, config: Config, edges: Edges) -> Statements:
    scores: tuple[Expression, ...] = layers.REAL
    if config.variant == "hf_eval":
        scores += (R.counted(V.J).T @ R.sparse(V.I),)
    return layers.layer(
        x, lambda read: layers.attention(read, R.heads, config, edges, scores=scores), config
    )


def program(config: Config) -> Program:
    """Reads `token(i)`, `mask(i)` (0 where padded) and `segment(i)`; derives `out(i)`, `pooled`."""
    counts = repeated_keys(R.token, config) if config.variant == "hf_eval" else []
    own = (config.pattern(V.I, V.J),)
    rules = [*bert.encoder(config, layer, bert.embeddings, *counts, own=own), bert.pooled(config)]
    return Program(rules, domains=bert.domains(config))
