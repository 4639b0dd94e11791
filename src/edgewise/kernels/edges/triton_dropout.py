"""Dropout's hash in Triton: what is dropped is what dropout.py drops."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,import-untyped,untyped-decorator"

import triton
import triton.language as tl


@triton.jit
def mixed(x):
    """A hash of 32 bits."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def survives(seed, least, h, i, j):
    """Which weights dropout leaves."""
    row = mixed(mixed((h + seed).to(tl.uint32)) ^ i.to(tl.uint32))
    return mixed(row ^ j.to(tl.uint32)).to(tl.int64) >= least
