"""Which tokens a program reads, found by gradients of its output for random inputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import caller
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import BadProgram, UnsupportedArgument
from edgewise.hf.relations import BatchRelation
from edgewise.inputs.kinds import ragged
from edgewise.module import Model

QUERIES = 16  # of a probe of the pairs that a program attends to
PAIRED_TOKENS = 64  # at most, where relations hold for all their pairs


@dataclass(frozen=True, eq=False)
class Probe:
    """A program and what its inputs look like; `relations` are those of a batch."""

    program: Model
    q: Tensor
    v: Tensor
    relations: Mapping[str, BatchRelation]

    def check_pairs(self, allowed: Pattern, n: int) -> None:
        """Refuse a program that attends to keys outside `allowed` in a text of n tokens.

        Relations hold for all tokens, then for a random half.
        """
        n = min(n, PAIRED_TOKENS) if self.relations else n
        for chance in (1.0, 0.5) if self.relations else (1.0,):
            out, (_, *keys_and_values) = self._sampled(n, chance)
            for i in torch.linspace(0, n - 1, min(n, QUERIES)).long().tolist():
                effect = _effect(out, i, keys_and_values)
                wrong = (effect > 0) & ~allowed.contains(torch.tensor(i), torch.arange(n), n)
                if bool(wrong.any()):
                    raise BadProgram(
                        f"query {i} attends to key {int(wrong.nonzero()[0])}, outside the mask "
                        f"`{allowed!r}`",
                        caller(),
                        "add the condition to the score, such as `R.special.leq(V.J, V.I)`",
                    )

    def check_queries(self) -> None:
        """Refuse a cache for a program in which a token reads the query of another."""
        out, (queries, *_) = self._sampled(QUERIES, 1.0)
        for i in range(QUERIES):
            effect = _effect(out, i, [queries])
            effect[i] = 0
            if bool(effect.any()):
                raise UnsupportedArgument(
                    "a program does not support a cache: it reads queries of other tokens",
                    caller(),
                    "write `use_cache=False`",
                )

    def _sampled(self, n: int, chance: float) -> tuple[Tensor, list[Tensor]]:
        """The output for random q, k and v of n tokens, and these."""
        program = copy.deepcopy(self.program).eval()
        generator = torch.Generator().manual_seed(0)
        heads = self.q.shape[1]
        with torch.enable_grad():
            leaves = [
                torch.randn(1, heads, n, x.shape[-1], generator=generator).to(x).requires_grad_()
                for x in (self.q, self.q, self.v)
            ]
            named: dict[str, Any] = dict(zip("qkv", leaves, strict=True))
            if "bias" in program.inputs:
                named["bias"] = torch.zeros(1, heads, n, n, 1).to(self.q)
            for name, one in self.relations.items():
                sizes = (n,) * one.arity
                if one.dense is None:
                    holds = torch.rand(sizes, generator=generator) < chance
                    named[name] = ragged([holds.nonzero().T.contiguous()])
                else:
                    sizes = (1, *sizes, *one.dense.shape[1 + one.arity :])
                    named[name] = torch.randn(sizes, generator=generator).to(self.q)
            return output(program, named), leaves


def _effect(out: Tensor, i: int, leaves: list[Tensor]) -> Tensor:
    """How much each token of `leaves` changes row i of the output: (tokens,)."""
    with torch.enable_grad():
        row = out[0, :, i].sum()
    none = torch.zeros(leaves[0].shape[-2])
    if not row.requires_grad:
        return none
    grads = torch.autograd.grad(row, leaves, retain_graph=True, allow_unused=True)
    return sum((g[0].abs().sum((0, 2)).cpu() for g in grads if g is not None), none)


def output(program: Model, inputs: Mapping[str, Any], data: Any = None) -> Tensor:
    """The output of a program for q, k and v: a row for every query."""
    read = {name: item for name, item in inputs.items() if name in program.inputs}
    out = program(**read) if data is None else program(data, **read)
    wanted = (*inputs["q"].shape[:-1], inputs["v"].shape[-1])
    if not isinstance(out, Tensor) or out.shape != wanted:
        shown = tuple(out.shape) if isinstance(out, Tensor) else "rows"
        raise BadProgram(
            f"`out` is {shown}, the model expects {wanted}",
            caller(),
            "derive `R.out(V.H, V.I)` for every query: a vector for each head and token",
        )
    return out
