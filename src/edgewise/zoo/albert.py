"""ALBERT: BERT with small embeddings, whose layers share their weights.

Layer i has the weights of group ⌊i · groups / layers⌋; `inner` layers of a group are its own.

Paper: https://arxiv.org/abs/1909.11942. Parity: `transformers.AlbertModel`.
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V
from edgewise.language.blocks import defined, rename
from edgewise.language.nodes import Atom, Function, Statement
from edgewise.zoo import bert
from edgewise.zoo.parts import penalty


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


def shared(x: Atom, config: Config, at: str, weights: str) -> list[Statement]:
    """A layer whose relations are in the scope `at`, its weights in the scope `weights`."""
    rules = bert.layer(x, config)
    relations = {name: f"{at}.{name}" for name in defined(rules)}
    return [rename(rule, relations, f"{weights}.") for rule in rules]


def stacked(config: Config) -> tuple[list[Statement], Atom]:
    rules: list[Statement] = []
    x = R.x
    for i in range(config.layers):
        group = i * config.groups // config.layers
        for k in range(config.inner):
            rules += shared(x, config, f"layer.{i}.{k}", f"group.{group}.{k}")
            x = R[f"layer.{i}.{k}.norm2"]
    return rules, x


def program(config: Config) -> Program:
    """Reads and derives what `zoo.bert` does; `follows` says whether sentences are in order."""
    layers, last = stacked(config)
    rules = [
        *bert.embeddings(R.x, config),
        *penalty(R.mask, R.penalty),
        *layers,
        R.out(V.I) <= last(V.I),
        *bert.readouts(config),
    ]
    return Program(rules, domains={V.H: config.heads, V.P: config.length})
