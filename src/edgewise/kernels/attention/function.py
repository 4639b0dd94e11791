"""From forward and backward passes to a differentiable operation."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from edgewise.kernels.attention.contract import Case, Implementation, Saved, Terms, wide


def attend(
    implementation: Implementation, case: Case, q: Tensor, k: Tensor, v: Tensor, terms: Terms
) -> tuple[Tensor, Tensor]:
    """The output (b, g, n, dv) and the log-sum-exp (b, g, n), which is -∞ in empty rows."""
    arguments = (q, k, v, terms.bias, terms.edge_bias, terms.keep, implementation, case)
    out, lse = _Attend.apply(*arguments)
    return out, lse


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        bias: Tensor | None,
        edge_bias: Tensor | None,
        keep: Tensor | None,
        implementation: Implementation,
        case: Case,
    ) -> tuple[Tensor, Tensor]:
        out, lse = implementation.forward(case, q, k, v, Terms(bias, edge_bias, keep))
        ctx.save_for_backward(q, k, v, bias, edge_bias, keep, out, lse)
        ctx.implementation, ctx.case = implementation, case
        ctx.set_materialize_grads(False)
        return out, lse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dout: Tensor | None, dlse: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, bias, edge_bias, keep, out, lse = ctx.saved_tensors
        if dout is None:
            dout = torch.zeros_like(out)
        case, terms = ctx.case, Terms(bias, edge_bias, keep)
        saved = Saved(q, k, v, terms, out, torch.where(lse == -torch.inf, torch.inf, lse))
        if dlse is None:
            grads = ctx.implementation.backward(case, saved, dout)
        else:
            grads = _with_lse(ctx.implementation, case, saved, dout, dlse)
        return grads.q, grads.k, grads.v, grads.bias, grads.edge_bias, None, None, None


def _with_lse(
    implementation: Implementation, case: Case, saved: Saved, dout: Tensor, dlse: Tensor
) -> Any:
    """The gradient of the log-sum-exp too, as that of one more value feature that is always 1.

    ds = p·(dout·v - dout·out + dlse): with v' = (v, 1), dout' = (dout, dlse), out' = (out, 0).
    """
    one = saved.v.new_ones(*saved.v.shape[:-1], 1)
    dlse = torch.where(saved.lse == torch.inf, 0, dlse)[..., None].to(dout.dtype)
    v, dout = torch.cat([saved.v, one], -1), torch.cat([dout, dlse], -1)
    out = torch.cat([saved.out, torch.zeros_like(dlse)], -1)
    wider = Case(**{**vars(case), "dv": case.dv + 1})
    grads = implementation.backward(
        wider, Saved(saved.q, saved.k, v, saved.terms, out, saved.lse), dout
    )
    return type(grads)(grads.q, grads.k, grads.v[..., :-1], grads.bias, grads.edge_bias)


def row_dots(a: Tensor, b: Tensor) -> Tensor:
    """Σ over features, in the wide precision."""
    kind = wide(a.dtype)
    return (a.to(kind) * b.to(kind)).sum(-1)
