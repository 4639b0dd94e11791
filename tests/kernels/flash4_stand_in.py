"""What `flash_attn.cute.interface` does, in plain torch on a CPU: its conventions as assertions.

Tensors are (batch, tokens, heads, features) of 16 bits. Query i sees the keys at most `left` before
and `right` behind i + keys - queries; None is without an end. `compile_cache` holds one compiled
function for each variant, which is called as the package calls it on a Hopper GPU.
"""

import sys
from types import ModuleType

import pytest
import torch

from edgewise.graphs import cache
from edgewise.kernels.attention import flash4


class Stood(ModuleType):
    """The module, which counts what was called."""

    def __init__(self):
        super().__init__("flash_attn.cute.interface")
        self.calls = []
        self._flash_attn_fwd = Forward(self.calls)
        self._flash_attn_bwd = self.backward

    def backward(
        self, q, k, v, out, dout, lse, softmax_scale=None, causal=False, softcap=0.0,
        window_size_left=None, window_size_right=None, *, deterministic=False, dlse=None,
    ):  # fmt: skip
        check(q, k, v, out, dout, lse)
        self.calls.append(("backward", deterministic, dlse is not None))
        window = (window_size_left, window_size_right)
        dlse = torch.zeros_like(lse) if dlse is None else dlse
        assert dlse.dtype == torch.float32
        assert dlse.is_contiguous()
        s, keys, values = scores(q, k, v, softmax_scale, softcap, window)
        p = torch.exp(s - lse.double()[..., None])  # of the given log-sum-exp
        g, o, rows = (x.double().transpose(1, 2) for x in (dout, out, q))
        ds = p * (g @ values.mT - ((g * o).sum(-1) - dlse)[..., None])
        if softcap:
            ds = ds * torch.where(p > 0, 1 - (s / softcap) ** 2, 0.0)
        of_heads = (ds @ keys, ds.mT @ rows, p.mT @ g)
        shared = [x.unflatten(1, (k.shape[2], -1)).sum(2) for x in of_heads[1:]]
        dq, dk, dv = (x.transpose(1, 2) for x in (of_heads[0], *shared))
        grads = (dq * softmax_scale, dk * softmax_scale, dv)
        return tuple(
            torch.empty_like(x).copy_(grad) for x, grad in zip((q, k, v), grads, strict=True)
        )


class Forward:
    """`_flash_attn_fwd`."""

    def __init__(self, calls):
        self.calls, self.compile_cache = calls, {}

    def __call__(
        self, q, k, v, *, softmax_scale=None, causal=False, softcap=None, window_size_left=None,
        window_size_right=None, return_lse=False, out=None, lse=None,
    ):  # fmt: skip
        self.calls.append("looked up")
        check(q, k, v, out, out, lse)
        taken = [x.detach() if x.data_ptr() % 16 == 0 else x.detach().clone() for x in (q, k, v)]
        rest = (softmax_scale, *[None] * 5, window_size_left, window_size_right, None)
        key = (q.dtype, q.shape[-1], softcap)
        if key not in self.compile_cache:
            self.compile_cache[key] = Compiled(self.calls, softcap)
        self.compile_cache[key](*taken, out, lse, *rest, None, (None, None), None, None)
        return out, lse, None, None, None


class Compiled:
    def __init__(self, calls, softcap):
        self.calls, self.softcap = calls, softcap

    def __call__(self, q, k, v, out, lse, scale, *rest):
        check(q, k, v, out, out, lse)
        assert not any(x.requires_grad for x in (q, k, v, out, lse))
        self.calls.append("launched")
        assert rest[:5] == (None,) * 5
        s, _, values = scores(q, k, v, scale, self.softcap, rest[5:7])
        out.copy_((s.softmax(-1) @ values).transpose(1, 2))
        lse.copy_(s.logsumexp(-1))


def scores(q, k, v, scale, softcap, window):
    """(batch, heads, queries, keys), -∞ outside of the window, and keys and values of all heads."""
    (n, m), (left, right) = (q.shape[1], k.shape[1]), window
    assert not (left is not None and left < 0)
    assert not (right is not None and right < 0)
    times = q.shape[2] // k.shape[2]
    keys, values = (x.double().transpose(1, 2).repeat_interleave(times, 1) for x in (k, v))
    s = q.double().transpose(1, 2) @ keys.mT * scale
    s = softcap * torch.tanh(s / softcap) if softcap else s
    away = torch.arange(m) - torch.arange(n)[:, None] - (m - n)
    far = torch.zeros(n, m, dtype=torch.bool)
    far = far if left is None else far | (away < -left)
    far = far if right is None else far | (away > right)
    return s.masked_fill(far, -torch.inf), keys, values


def check(q, k, v, out, dout, lse):
    (batch, n, heads, d), (_, m, keys, dv) = q.shape, v.shape
    assert heads % keys == 0
    assert k.shape == (batch, m, keys, d)
    assert out.shape == dout.shape == (batch, n, heads, dv)
    assert lse.shape == (batch, heads, n)
    assert lse.dtype == torch.float32
    assert lse.is_contiguous()
    assert d % 8 == dv % 8 == 0
    assert 0 not in dout.stride()
    assert {x.dtype for x in (q, k, v, out, dout)} in ({torch.float16}, {torch.bfloat16})


@pytest.fixture
def stand_in(monkeypatch):
    """The calls of the stand-in, on a machine that has the package."""
    module = Stood()
    package = ModuleType("flash_attn.cute")
    package.interface = module
    for name, of_name in (("flash_attn", ModuleType("flash_attn")), ("flash_attn.cute", package)):
        monkeypatch.setitem(sys.modules, name, of_name)
    monkeypatch.setattr(flash4, "no_flash4", lambda device: None)
    monkeypatch.setattr(flash4, "SIZES", flash4.SIZES | {(8, 8 * n) for n in range(9)} | {(16, 8)})
    flash4._package.cache_clear()
    cache.clear()
    yield module.calls
    flash4._package.cache_clear()
    cache.clear()
