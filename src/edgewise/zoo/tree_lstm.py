"""Child-sum Tree-LSTM over dependency trees: a word's state comes from those of its dependents.

    sᵢ = Σ_c h_c                                        over the dependents c of word i
    iᵢ, oᵢ = σ(W xᵢ + U sᵢ + b),  uᵢ = tanh(W xᵢ + U sᵢ + b)
    f_cᵢ = σ(W xᵢ + U h_c + b)
    cᵢ = iᵢ ⊙ uᵢ + Σ_c f_cᵢ ⊙ c_c,  hᵢ = oᵢ ⊙ tanh(cᵢ)

Words without dependents are the first level, the root is the last.

Paper: https://arxiv.org/abs/1503.00075. Parity: the equations in plain torch, word by word.

>>> import torch
>>> from edgewise import R, numbers, zoo
>>> config = zoo.tree_lstm.Config(words=50, size=8, outputs=2)
>>> model = zoo.tree_lstm.program(config).compile(R.logits, seed=0)
>>> model(token=numbers([7, 8, 9]), arc=[(0, 1), (2, 1)], root=[(1,)]).shape
torch.Size([2])
"""

from dataclasses import dataclass

from edgewise.language import F, Program, R, V, W
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo.parts import Statements, affine

GATES = {"input": F.sigmoid, "output": F.sigmoid, "update": F.tanh}


@dataclass(frozen=True)
class Config:
    """`words` of a vocabulary, vectors of `size`, `outputs` of a sentence."""

    words: int = 10_000
    size: int = 64
    outputs: int = 2


def cell(x: Atom, h: Atom, size: int) -> Statements:
    """States h(i) of x(i) along `arc(c, i)`: word c depends on word i."""
    name = h.relation
    total, forget, memory = (R[f"{name}_{part}"] for part in ("children", "forget", "memory"))
    child = R._arc(V.C, V.I)

    def own(gate: str) -> tuple[Expression, Expression]:
        return affine(x(V.I), f"{name}.{gate}.in", size, size)

    rules: Statements = [total(V.I) <= (h(V.C), child)]
    for gate, function in GATES.items():
        value = R[f"{name}_{gate}"]
        back = W[f"{name}.{gate}.back"][size, size]
        rules += [value(V.I) <= own(gate), value(V.I) <= total(V.I)[back], value / 1 | [function]]
    back = W[f"{name}.forget.back"][size, size]
    return [
        *rules,
        (forget(V.C, V.I) <= (*own("forget"), h(V.C)[back], child)) | [F.sigmoid],
        memory(V.I) <= R[f"{name}_input"](V.I) * R[f"{name}_update"](V.I),
        memory(V.I) <= forget(V.C, V.I) * memory(V.C),
        h(V.I) <= R[f"{name}_output"](V.I) * F.tanh(memory(V.I)),
    ]


def program(config: Config) -> Program:
    """Reads `token(i)`, `arc(c, i)` and `root(i)`; derives `logits` of the sentence."""
    table = W.word[config.words, config.size]
    return Program([
        R.x(V.I) <= F.lookup(table, R.token(V.I)),
        *cell(R.x, R.h, config.size),
        R.top <= (R.h(V.I), R._root(V.I)),
        R.logits <= affine(R.top, "logits", config.size, config.outputs),
    ])  # fmt: skip
