"""A rule program as the attention of a model."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from edgewise.compile import compile
from edgewise.errors import EdgewiseError, caller
from edgewise.graphs import full
from edgewise.graphs.pattern import Pattern
from edgewise.hf.attend import Options, shortened
from edgewise.hf.errors import BadProgram, UnsupportedArgument
from edgewise.hf.mask import Mask, Runs
from edgewise.language import R
from edgewise.language.program import Program
from edgewise.module import Model

READS = {"q", "k", "v", "bias"}
QUERIES = 16  # that are asked whom they hear


def compiled(program: Program, model: nn.Module) -> ProgramAttention:
    """The program as a module, in the precision and on the device of the model."""
    made = compile(program, R.out)
    for name in made.inputs:
        if name not in READS:
            raise BadProgram(
                f"the program reads `{name}`, which no model gives",
                caller(),
                "read `q(H, I)`, `k(H, J)`, `v(H, J)`, and `bias(H, I, J)` where there is one",
            )
    like = next(model.parameters())
    return ProgramAttention(made.to(like.device, like.dtype))


class ProgramAttention(nn.Module):
    """The compiled program of one layer; its weights are parameters of the model."""

    def __init__(self, program: Model) -> None:
        super().__init__()
        self.program = program
        self._met: dict[Pattern, int] = {}  # the length up to which it hears no others

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, options: Options) -> Tensor:
        """q (batch, heads, n, d), k and v (batch, key heads, m, d) → (batch, heads, n, d)."""
        if mask.first_query or mask.first_key:
            raise _refused("a cache", "it computes all tokens at once", "use_cache=False")
        if options.dropout:
            raise _refused("dropout", "it says itself what it drops", "F.dropout(0.1) in a rule")
        k, v, mask, options = shortened(q, k, v, mask, options)
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
        q = q * (q.shape[-1] ** -0.5 if options.scale is None else options.scale)
        self._check(q, v, mask.allowed)
        if mask.runs is None:
            return self._call(q, k, v, options.bias)
        return self._in_runs(q, k, v, mask.runs, options.bias)

    def _call(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        given = {"q": q, "k": k, "v": v}
        if bias is not None:
            if "bias" not in self.program.inputs:
                raise _refused("a bias of scores", "it reads none", "R.bias(V.H, V.I, V.J)")
            pairs = bias.expand(*q.shape[:-1], k.shape[-2]).to(q.dtype)
            given["bias"] = pairs[..., None]  # batch, three keys and a value
        return _answer(self.program, given)

    def _in_runs(self, q: Tensor, k: Tensor, v: Tensor, runs: Runs, bias: Tensor | None) -> Tensor:
        """Runs of one length are one batch."""
        if runs.holes is not None:
            raise _refused("padding between tokens", "it hears all of a text", "an unbroken mask")
        batch, heads, n = q.shape[:3]
        flat = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
        out = flat[2].new_zeros(batch * n, heads, v.shape[-1])
        for index in (one.index for one in runs.by_length()):
            part = None if bias is None else _bias(bias.expand(batch, -1, n, n), index, n)
            a, b, c = (x[index].transpose(1, 2) for x in flat)
            found = self._call(a, b, c, part)
            out = out.index_copy(0, index.flatten(), found.transpose(1, 2).flatten(0, 1))
        return out.unflatten(0, (batch, n)).transpose(1, 2)

    def _check(self, q: Tensor, v: Tensor, allowed: Pattern) -> None:
        """Refuse a program that hears what the model does not allow: by gradients, once a length.

        Asked for a power of two, so that a text that grows is seldom asked for again.
        """
        n = q.shape[-2]
        if allowed == full() or n <= self._met.get(allowed, 0):
            return
        more = 1 << (n - 1).bit_length()
        try:
            self._probe(q, v, allowed, more)
        except BadProgram:
            raise
        except EdgewiseError:  # it may have weights for so many places, and no more
            more = n
            self._probe(q, v, allowed, n)
        self._met[allowed] = more

    def _probe(self, q: Tensor, v: Tensor, allowed: Pattern, n: int) -> None:
        probe = copy.deepcopy(self.program).eval()
        drawn = torch.Generator().manual_seed(0)
        shapes = [(1, q.shape[1], n, x.shape[-1]) for x in (q, q, v)]
        every = torch.arange(n)
        with torch.enable_grad():
            given = [torch.randn(s, generator=drawn).to(q).requires_grad_() for s in shapes]
            named = dict(zip("qkv", given, strict=True))
            if "bias" in probe.inputs:
                named["bias"] = torch.zeros(1, q.shape[1], n, n, 1).to(q)
            out = _answer(probe, named)
            for i in torch.linspace(0, n - 1, min(n, QUERIES)).long().tolist():
                rows = torch.autograd.grad(
                    out[0, :, i].sum(), given[1:], retain_graph=True, allow_unused=True
                )
                felt = sum(g[0].abs().sum((0, 2)).cpu() for g in rows if g is not None)
                wrong = torch.as_tensor(felt > 0) & ~allowed.contains(torch.tensor(i), every, n)
                if bool(wrong.any()):
                    raise BadProgram(
                        f"query {i} hears key {int(wrong.nonzero()[0])}, which the model does not "
                        f"allow: {allowed!r}",
                        caller(),
                        "add the condition to the score, such as `R.special.leq(V.J, V.I)`",
                    )


def _answer(program: Model, given: dict[str, Tensor]) -> Tensor:
    """What a program makes of q, k and v: a row for every query."""
    out = program(**{name: t for name, t in given.items() if name in program.inputs})
    wanted = (*given["q"].shape[:-1], given["v"].shape[-1])
    if not isinstance(out, Tensor) or out.shape != wanted:
        shown = tuple(out.shape) if isinstance(out, Tensor) else "rows"
        raise BadProgram(
            f"`out` is {shown}, the model goes on with {wanted}",
            caller(),
            "derive `R.out(V.H, V.I)` for every query: a vector for each head and token",
        )
    return out


def _bias(bias: Tensor, index: Tensor, n: int) -> Tensor:
    row, at = index[:, :1] // n, index % n
    return bias[row[:, :, None], :, at[:, :, None], at[:, None, :]].permute(0, 3, 1, 2)


def _refused(what: str, why: str, instead: str) -> UnsupportedArgument:
    return UnsupportedArgument(
        f"the program is asked for {what}: {why}", caller(), f"write `{instead}`"
    )
