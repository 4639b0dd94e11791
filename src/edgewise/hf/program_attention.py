"""A rule program as the attention of a model."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from edgewise.compile import compile
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.hf.errors import BadProgram, UnsupportedArgument
from edgewise.hf.graph_attention import ScoreOptions, without_unfilled_cache
from edgewise.hf.masks import ModelMask, attend_in_runs
from edgewise.kernels.attention.contract import default_scale
from edgewise.language import R
from edgewise.language.program import Program
from edgewise.module import Model

INPUTS = {"q", "k", "v", "bias"}
PROBED_QUERIES = 16


def compile_attention(program: Program, model: nn.Module) -> ProgramAttention:
    """The program as a module, in the precision and on the device of the model."""
    made = compile(program, R.out)
    for name in made.inputs:
        if name not in INPUTS:
            raise BadProgram(
                f"the program reads `{name}`, which attention has no input for",
                caller(),
                "read `q(H, I)`, `k(H, J)`, `v(H, J)`, and `bias(H, I, J)` where there is a bias",
            )
    like = next(model.parameters())
    return ProgramAttention(made.to(like.device, like.dtype))


class ProgramAttention(nn.Module):
    """The compiled program of one layer; its weights are parameters of the model."""

    def __init__(self, program: Model) -> None:
        super().__init__()
        self.program = program
        self._checked: dict[Pattern, int] = {}  # per mask the length up to which it was checked

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: ModelMask, options: ScoreOptions
    ) -> Tensor:
        """q (batch, heads, n, d), k and v (batch, key heads, m, d) → (batch, heads, n, d)."""
        if mask.first_query or mask.first_key:
            raise _refused("a cache", "it computes all tokens", "use_cache=False")
        if options.dropout:
            raise _refused("dropout", "its rules define their own", "F.dropout(0.1) in a rule")
        k, v, mask, options = without_unfilled_cache(q, k, v, mask, options)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        q = q * (default_scale(q.shape[-1]) if options.scale is None else options.scale)
        self._check(q, v, mask.allowed)
        if mask.runs is None:
            return self._call(q, k, v, options.bias)
        if mask.runs.holes is not None:
            raise _refused(
                "padding between tokens", "it attends to all of them", "a contiguous mask"
            )
        parts = mask.runs.by_length()  # runs of equal length are one batch
        return attend_in_runs(q, k, v, options.bias, parts, lambda *inputs: self._call(*inputs[:4]))

    def _call(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        inputs = {"q": q, "k": k, "v": v}
        if bias is not None:
            if "bias" not in self.program.inputs:
                raise _refused("a score bias", "it reads none", "R.bias(V.H, V.I, V.J)")
            pairs = bias.expand(*q.shape[:-1], k.shape[-2]).to(q.dtype)
            inputs["bias"] = pairs[..., None]  # batch, three keys and a value
        return _output(self.program, inputs)

    def _check(self, q: Tensor, v: Tensor, allowed: Pattern) -> None:
        """Refuse a program that attends to keys the model masks, found by gradients.

        Checked for the next power of two, so that a growing text is rarely checked again.
        """
        n = q.shape[-2]
        if allowed == full() or n <= self._checked.get(allowed, 0):
            return
        more = 1 << (n - 1).bit_length()
        try:
            self._probe(q, v, allowed, more)
        except BadProgram:
            raise
        except EdgewiseError:  # its weights may be for n positions only
            more = n
            self._probe(q, v, allowed, n)
        self._checked[allowed] = more

    def _probe(self, q: Tensor, v: Tensor, allowed: Pattern, n: int) -> None:
        probe = copy.deepcopy(self.program).eval()
        generator = torch.Generator().manual_seed(0)
        shapes = [(1, q.shape[1], n, x.shape[-1]) for x in (q, q, v)]
        every = torch.arange(n)
        with torch.enable_grad():
            leaves = [torch.randn(s, generator=generator).to(q).requires_grad_() for s in shapes]
            named = dict(zip("qkv", leaves, strict=True))
            if "bias" in probe.inputs:
                named["bias"] = torch.zeros(1, q.shape[1], n, n, 1).to(q)
            out = _output(probe, named)
            for i in torch.linspace(0, n - 1, min(n, PROBED_QUERIES)).long().tolist():
                rows = torch.autograd.grad(
                    out[0, :, i].sum(), leaves[1:], retain_graph=True, allow_unused=True
                )
                effect = sum(g[0].abs().sum((0, 2)).cpu() for g in rows if g is not None)
                wrong = torch.as_tensor(effect > 0) & ~allowed.contains(torch.tensor(i), every, n)
                if bool(wrong.any()):
                    raise BadProgram(
                        f"query {i} attends to key {int(wrong.nonzero()[0])}, outside the mask "
                        f"`{allowed!r}`",
                        caller(),
                        "add the condition to the score, such as `R.special.leq(V.J, V.I)`",
                    )


def _output(program: Model, inputs: dict[str, Tensor]) -> Tensor:
    """The output of a program for q, k and v: a row for every query."""
    out = program(**{name: t for name, t in inputs.items() if name in program.inputs})
    wanted = (*inputs["q"].shape[:-1], inputs["v"].shape[-1])
    if not isinstance(out, Tensor) or out.shape != wanted:
        shown = tuple(out.shape) if isinstance(out, Tensor) else "rows"
        raise BadProgram(
            f"`out` is {shown}, the model expects {wanted}",
            caller(),
            "derive `R.out(V.H, V.I)` for every query: a vector for each head and token",
        )
    return out


def _refused(what: str, why: str, instead: str) -> UnsupportedArgument:
    return UnsupportedArgument(
        f"a program does not support {what}: {why}", caller(), f"write `{instead}`"
    )
