"""The cells of grid_gpu.py: patterns as each implementation takes them, and sizes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import (
    Pattern,
    bigbird,
    causal,
    documents,
    full,
    global_tokens,
    grid,
    prefix,
    random_edges,
    strided,
    window,
)
from edgewise.scores import softcap

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32
SMALL = 160  # tokens of a check


@dataclass(frozen=True)
class Work:
    """A pattern as each implementation takes it: `mask` is FlexAttention's, `flash` what FA4's own
    function is called with, `sdpa` whether it is causal, where these can say it."""

    graph: Pattern
    mask: Callable[..., Tensor] | None = None
    flash: dict[str, Any] | None = None
    sdpa: bool | None = None
    score: Any = None
    score_mod: Callable[..., Tensor] | None = None


def near(left: int, right: int) -> Callable[..., Tensor]:
    return lambda b, h, i, j: (i - j <= left) & (j - i <= right)


def windowed(radius: int, n: int) -> Work:
    return Work(window(radius), near(radius, radius), {"window_size": (radius, radius)})


def past(size: int, n: int) -> Work:
    graph = window(size - 1) & causal()
    return Work(graph, near(size - 1, 0), {"window_size": (size - 1, 0), "causal": True})


def capped(n: int) -> Work:
    mod = lambda s, b, h, i, j: 50.0 * torch.tanh(s / 50.0)  # noqa: E731
    work = past(min(1024, n // 2), n)
    flash = {**(work.flash or {}), "softcap": 50.0}
    return replace(work, flash=flash, score=softcap(50.0), score_mod=mod)


def sloped(n: int) -> Work:
    return replace(past(min(1024, n // 2), n), flash=None)


def slopes(heads: int) -> Callable[..., Tensor]:
    def mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return s - torch.exp2(-8.0 / heads * (h + 1)) * (i - j).abs()

    return mod


def sinks(n: int) -> Work:
    size = min(1024, n // 2)
    mask = lambda b, h, i, j: (j <= i) & ((i - j < size) | (j < 4))  # noqa: E731
    return Work((window(size - 1) | global_tokens(4)) & causal(), mask)


def of_documents(n: int) -> Work:
    sizes = [n // 2, n // 4, n - n // 2 - n // 4]
    number = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    number = number.to("cuda" if torch.cuda.is_available() else "cpu")
    mask = lambda b, h, i, j: (j <= i) & (number[i] == number[j])  # noqa: E731
    return Work(documents(sizes) & causal(), mask)


def pixels(n: int) -> Work:
    side, radius = math.isqrt(n), 6 if n > SMALL else 2

    def mask(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        rows, columns = i // side - j // side, i % side - j % side
        return (rows.abs() <= radius) & (columns.abs() <= radius)

    return Work(grid(side, side)(window(radius), window(radius)), mask)


def prefixed(n: int) -> Work:
    size = min(2048, n // 4)
    return Work(prefix(size), lambda b, h, i, j: (j <= i) | (j < size))


def stepped(n: int) -> Work:
    step = 64 if n > SMALL else 5
    return Work(strided(step) & causal(), lambda b, h, i, j: (j <= i) & ((i - j) % step == 0))


PATTERNS: dict[str, Callable[[int], Work]] = {
    "full": lambda n: Work(full(), None, {}, False),
    "causal": lambda n: Work(causal(), near(1 << 30, 0), {"causal": True}, True),
    "window ±256": lambda n: windowed(min(256, n // 4), n),
    "causal window 256": lambda n: past(min(256, n // 2), n),
    "causal window 1,024": lambda n: past(min(1024, n // 2), n),
    "causal window 4,096": lambda n: past(min(4096, n // 2), n),
    "bigbird": lambda n: Work(bigbird(64 if n > SMALL else 8)),
    "strided 64": stepped,
    "documents": of_documents,
    "sinks": sinks,
    "prefix 2,048": prefixed,
    "softcap": capped,
    "alibi": sloped,
    "image 13×13": pixels,
    "random 64": lambda n: Work(random_edges(min(64, n // 8), seed=0)),
}


@dataclass(frozen=True)
class Cell:
    pattern: str
    n: int
    d: int = 64
    dtype: torch.dtype = BF16
    heads: int = 16
    keys: int = 16
    batch: int = 1
    queries: int | None = None  # the last ones, over a cache of n keys
    ragged: bool = False  # caches of different lengths

    @property
    def name(self) -> str:
        kind = str(self.dtype).removeprefix("torch.")
        parts = [self.pattern, f"{self.n:,}", f"d {self.d}", kind, f"{self.heads} on {self.keys}"]
        parts += [f"batch {self.batch}"] if self.batch > 1 else []
        parts += [f"{self.queries} last"] if self.queries else []
        return ", ".join(parts + ["ragged"] * self.ragged)

    def small(self) -> "Cell":
        """Its like, small enough for float64 and for an interpreter."""
        n = 144 if self.pattern == "image 13×13" else SMALL
        group = max(self.heads // self.keys, 1)
        return replace(self, n=n, heads=group, keys=1, batch=min(self.batch, 2))


def cells() -> list[Cell]:
    """Every row of the table that was measured first, then what lies between them."""
    wide = {"d": 128, "heads": 32, "keys": 8}
    few = {"n": 16384, "heads": 16, "keys": 16}
    found = [
        *(Cell("causal", 16384), Cell("causal", 8192, **wide), Cell("full", 16384)),
        *(Cell("window ±256", n) for n in (4096, 16384, 65536)),
        *(Cell("causal window 256", 65536), Cell("causal window 4,096", 32768, **wide)),
        *(Cell("bigbird", n) for n in (16384, 65536)),
        *(Cell("documents", 65536, d=128), Cell("sinks", 65536, **wide)),
        *(Cell("prefix 2,048", 16384), Cell("softcap", 16384, d=128), Cell("alibi", 16384)),
        *(Cell("image 13×13", 16384), Cell("random 64", 16384), Cell("strided 64", 65536)),
        *(Cell("full", 65536, queries=1, **wide), Cell("full", 8192, queries=1, batch=32, **wide)),
        *(Cell("causal window 1,024", 8192, d=d, heads=8, keys=8) for d in (192, 256)),
        *(Cell("window ±256", d=d, **few) for d in (32, 80, 96, 112, 128, 192, 256)),
        *(Cell("window ±256", d=d, dtype=F32, **few) for d in (64, 80, 128, 256)),
        *(Cell("window ±256", d=d, dtype=F16, **few) for d in (64, 128)),
        *(Cell("causal", 16384, d=d, heads=8, keys=8) for d in (80, 96, 192, 256)),
        *(Cell(name, 16384, **wide) for name in ("window ±256", "documents", "prefix 2,048")),
        *(Cell(name, 4096, batch=8) for name in ("causal", "window ±256", "bigbird", "sinks")),
        *(Cell(name, 1000, batch=8) for name in ("causal", "window ±256", "documents")),
        *(Cell(name, 333, batch=64) for name in ("full", "causal", "window ±256")),
        *(Cell("causal window 1,024", 65536, queries=q, **wide) for q in (1, 4)),
        *(Cell("causal", 65536, queries=q, **wide) for q in (1, 4, 8)),
        *(Cell("sinks", 65536, queries=1, **wide), Cell("strided 64", 65536, queries=1, **wide)),
        *(Cell(name, 8192, queries=1, batch=32, **wide) for name in ("causal window 1,024",)),
        *(Cell(name, 8192, queries=1, batch=32, ragged=True, **wide) for name in ("full",)),
        *(Cell(name, 16384, d=128) for name in ("alibi", "image 13×13", "random 64", "bigbird")),
        *(Cell(name, 16385) for name in ("causal", "window ±256")),
    ]
    assert len({cell.name for cell in found}) == len(found)
    return found
