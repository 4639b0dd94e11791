"""The Sparse Transformer: two sparse halves of attention in turns.

    layers 0, 2, ...: i attends to the last `step` tokens (strided) or to those of its block (fixed)
    layers 1, 3, ...: to every `step`-th token before i, or to the last `width` of each block

Paper: https://arxiv.org/abs/1904.10509. Parity: `torch` written from the paper's equations in
tests/zoo/test_sparse.py.
"""

from dataclasses import dataclass

from edgewise.graphs import sparse_transformer
from edgewise.language import F, Program, R, V, repeat
from edgewise.language.nodes import Atom, Function
from edgewise.zoo import gpt2
from edgewise.zoo.parts import Statements


@dataclass(frozen=True)
class Config(gpt2.Config):
    """`layers` is even: half of them are near, half far."""

    layers: int = 12
    activation: Function = F.gelu
    step: int = 32
    kind: str = "strided"
    width: int = 1


def two_layers(x: Atom, config: Config) -> Statements:
    """The near half, then the far one."""
    all_ = config.kind == "strided"  # in the fixed far half the first tokens attend to nothing
    near, far = sparse_transformer(config.step, config.kind, width=config.width).halves()
    halves = [
        repeat(lambda u: gpt2.layer(u, config, (near(V.I, V.J),)), 1, name="near"),
        repeat(lambda u: gpt2.layer(u, config, (far(V.I, V.J),), everywhere=all_), 1, name="far"),
    ]
    first = halves[0](x)
    second = halves[1](first.out)
    return [first, second, R.both(V.I) <= second.out(V.I)]


def program(config: Config) -> Program:
    """Reads `token(i)`, derives `out(i)` and `logits(i)`."""
    stack = repeat(lambda x: two_layers(x, config), config.layers // 2, name="pair")(R.x)
    return Program(
        [*gpt2.embeddings(R.x, config), stack, *gpt2.readout(stack.out, config)],
        domains={V.H: config.heads, V.I: config.length},
    )
