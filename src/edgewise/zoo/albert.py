"""ALBERT: BERT with small embeddings, whose layers share their weights.

Layer i has the weights of group ⌊i · groups / layers⌋; `inner` layers of a group are its own.

Paper: https://arxiv.org/abs/1909.11942. Parity: `transformers.AlbertModel`.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.albert.Config(vocabulary=50, size=16, heads=2, hidden=32, layers=2, embedding=8)
>>> model = zoo.albert.program(config).compile(R.out, seed=0)
>>> model(
...     token=numbers(torch.arange(9)), mask=torch.ones(9), segment=numbers(torch.zeros(9).long())
... ).shape
torch.Size([9, 16])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R
from edgewise.language.blocks import defined, rename
from edgewise.language.nodes import Atom, Function, Statement
from edgewise.zoo import bert, block, layers
from edgewise.zoo.block import Edges
from edgewise.zoo.parts import present


@dataclass(frozen=True)
class Config(bert.Config):
    vocabulary: int = 30_000
    size: int = 4096
    heads: int = 64
    hidden: int = 16_384
    activation: Function = F.gelu_tanh
    dropout: float = 0.0
    embedding: int | None = 128
    groups: int = 1
    inner: int = 1


def shared(
    x: Atom, config: Config, edges: Edges, at: str, weights: str
) -> tuple[list[Statement], Atom]:
    """A layer whose relations are in the scope `at`, its weights in the scope `weights`."""
    rules = bert.layer(x, config, edges)
    relations = {name: f"{at}.{name}" for name in defined(rules)}
    out = R[f"{at}.{block.last(rules).relation}"]
    return [rename(rule, relations, f"{weights}.") for rule in rules], out


def stacked(config: Config) -> tuple[list[Statement], Atom]:
    made: list[Statement] = []
    x = R.x
    for i, edges in enumerate(block.edges(config, config.layers)):
        group = i * config.groups // config.layers
        for k in range(config.inner):
            rules, x = shared(x, config, edges, f"layer.{i}.{k}", f"group.{group}.{k}")
            made += rules
    return made, x


def program(config: Config) -> Program:
    """Reads and derives what `zoo.bert` does; `follows` says whether sentences are in order."""
    stack, last = stacked(config)
    rules = [
        *bert.embeddings(R.x, config),
        *present(R.mask, R.present),
        *layers.positions(R.x, config),
        *stack,
        *layers.ended(last, R.out, config),
        *bert.readouts(config),
    ]
    return Program(rules, domains=bert.domains(config))
