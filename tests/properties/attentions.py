"""`attention` along random graphs with random options, against loops over pairs in float64."""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from edgewise import EdgewiseError, attention
from edgewise.graphs import (
    blocks,
    causal,
    dilated,
    full,
    global_tokens,
    per_head,
    per_sample,
    strided,
    window,
)
from edgewise.kernels.attention import IMPLEMENTATIONS
from edgewise.scores import alibi, relative, softcap

Member = Callable[[int, int], bool]
WIDTH = 4


def random_graph(choices: random.Random, depth: int) -> tuple[Any, Member]:
    """A graph, and which pairs it has by its definition."""
    kind = choices.choice(["and", "or", "minus", "not", "turned"]) if depth else "leaf"
    if kind == "leaf":
        k, step = choices.randint(0, 4), choices.randint(1, 4)
        return choices.choice([
            (window(k), lambda i, j: abs(i - j) <= k),
            (causal(), lambda i, j: j <= i),
            (full(), lambda i, j: True),
            (dilated(k, step), lambda i, j: abs(i - j) <= k * step and (i - j) % step == 0),
            (strided(step), lambda i, j: (i - j) % step == 0),
            (global_tokens(k), lambda i, j: i < k or j < k),
            (blocks(step), lambda i, j: i // step == j // step),
        ])  # fmt: skip
    a, in_a = random_graph(choices, choices.randint(0, depth - 1))
    b, in_b = random_graph(choices, choices.randint(0, depth - 1))
    return {
        "and": (a & b, lambda i, j: in_a(i, j) and in_b(i, j)),
        "or": (a | b, lambda i, j: in_a(i, j) or in_b(i, j)),
        "minus": (a - b, lambda i, j: in_a(i, j) and not in_b(i, j)),
        "not": (~a, lambda i, j: not in_a(i, j)),
        "turned": (a.T, lambda i, j: in_a(j, i)),
    }[kind]


class Call:
    """A random call of `attention`, and what the definition says it gives."""

    def __init__(self, seed: int) -> None:
        self.choices = choices = random.Random(seed)
        self.draw = torch.Generator().manual_seed(seed)
        self.batch, self.key_heads = choices.randint(1, 3), choices.choice([1, 2])
        self.heads = self.key_heads * choices.choice([1, 2])
        self.n = choices.choice([1, 2, 5, 9, 17, 40])
        self.m = choices.choice([self.n, self.n, self.n, 3, 12])
        self.how = choices.choice(["one", "one", "heads", "samples"])
        count = {"one": 1, "heads": self.heads, "samples": self.batch}[self.how]
        self.made = [random_graph(choices, choices.randint(0, 3)) for _ in range(count)]
        self.graph = self.made[0][0]
        if self.how != "one":
            together = per_head if self.how == "heads" else per_sample
            self.graph = together(*(each for each, _ in self.made))
        self.offset = 0
        if self.how == "one" and self.m > self.n and choices.random() < 0.5:
            self.offset = self.m - self.n
        self.q = self.tensor(self.batch, self.heads, self.n, WIDTH)
        self.k = self.tensor(self.batch, self.key_heads, self.m, WIDTH)
        self.v = self.tensor(self.batch, self.key_heads, self.m, WIDTH)
        self.options: dict[str, Any] = {}
        self.inputs = [self.q, self.k, self.v]
        for option in (self._scale, self._bias, self._score, self._lengths, self._edges):
            if choices.random() < 0.4:
                option()

    def tensor(self, *shape: int) -> Tensor:
        """Of any strides."""
        x = torch.randn(shape, generator=self.draw).double()
        a, b = self.choices.choice([(0, 0), (0, 0), (0, -1), (-2, -1), (0, 1)])
        return x.transpose(a, b).contiguous().transpose(a, b).requires_grad_()

    def _scale(self) -> None:
        self.options["scale"] = 0.3

    def _bias(self) -> None:
        kind = self.choices.choice(["tensor", "alibi", "relative"])
        if kind == "alibi":
            self.options["bias"] = alibi([0.5**h for h in range(1, self.heads + 1)])
        elif kind == "relative":
            self.table = self.tensor(self.heads, 7)
            self.options["bias"] = relative(self.table)
            self.inputs.append(self.table)
        else:
            shape = (self.batch, self.heads, self.n, self.m)
            bias = self.tensor(*(s if self.choices.random() < 0.6 else 1 for s in shape))
            self.options["bias"] = bias
            self.inputs.append(bias)
        self.bias = kind

    def _score(self) -> None:
        self.options["score"] = softcap(2.0)

    def _lengths(self) -> None:
        if self.how != "samples":
            each = [self.choices.randint(0, self.m) for _ in range(self.batch)]
            self.options["lengths"] = torch.tensor(each)

    def _edges(self) -> None:
        if self.how == "one" and not self.offset:
            e = sum(self.member(0, 0, i, j) for i in range(self.n) for j in range(self.m))
            for name in self.choices.sample(
                ["edge_bias", "edge_scale"], self.choices.randint(1, 2)
            ):
                term = self.tensor(self.batch, self.heads, e)
                self.options[name] = term
                self.inputs.append(term)

    def member(self, b: int, h: int, i: int, j: int) -> bool:
        at = {"one": 0, "heads": h, "samples": b}[self.how]
        return self.made[at][1](i + self.offset, j)

    def expected(self) -> tuple[Tensor, Tensor]:
        """The output and the log-sum-exp of each row."""
        options, rows, sums = self.options, [], []
        scale = options.get("scale", WIDTH**-0.5)
        lengths = options.get("lengths", [self.m] * self.batch)
        for b in range(self.batch):
            for h in range(self.heads):
                edge, kh = 0, h * self.key_heads // self.heads
                for i in range(self.n):
                    keys, scores = [], []
                    for j in range(self.m):
                        if self.member(b, h, i, j):
                            if j < lengths[b]:
                                keys.append(j)
                                scores.append(self._pair(b, h, kh, i, j, edge, scale))
                            edge += 1
                    s = torch.stack(scores) if scores else self.q.new_zeros(0)
                    shares = s.softmax(0)
                    rows.append((shares[:, None] * self.v[b, kh, keys]).sum(0))
                    sums.append(s.logsumexp(0))
        shape = (self.batch, self.heads, self.n)
        return torch.stack(rows).reshape(*shape, WIDTH), torch.stack(sums).reshape(shape)

    def _pair(self, b: int, h: int, kh: int, i: int, j: int, edge: int, scale: float) -> Tensor:
        options, place = self.options, i + self.offset
        s = (self.q[b, h, i] * self.k[b, kh, j]).sum() * scale
        if "edge_scale" in options:
            s = s * options["edge_scale"][b, h, edge]
        if "score" in options:
            s = 2.0 * (s / 2.0).tanh()
        if "edge_bias" in options:
            s = s + options["edge_bias"][b, h, edge]
        if "bias" in options and self.bias == "alibi":
            s = s - 0.5 ** (h + 1) * abs(place - j)
        elif "bias" in options and self.bias == "relative":
            s = s + self.table[h, min(max(place - j + 3, 0), 6)]
        elif "bias" in options:
            at = zip(options["bias"].shape, (b, h, i, j), strict=True)
            s = s + options["bias"][tuple(0 if size == 1 else x for size, x in at)]
        return s

    def __repr__(self) -> str:
        shapes = f"q {tuple(self.q.shape)}, k {tuple(self.k.shape)}"
        options = {
            name: tuple(x.shape) if isinstance(x, Tensor) and x.requires_grad else x
            for name, x in self.options.items()
        }
        return f"attention along {self.graph!r}, {shapes}, offset {self.offset}, {options}"


def difference(seed: int) -> str | None:
    """Where a random call, by the kernel that is chosen and by another, leaves its definition."""
    call = Call(seed)
    wanted, sums = call.expected()
    mark = torch.randn(wanted.shape, generator=call.draw, dtype=torch.float64)
    theirs = _gradients((wanted * mark).sum(), call.inputs)
    kernels = [None, call.choices.choice(IMPLEMENTATIONS).name]
    for kernel in kernels:
        try:
            found, lse = attention(
                call.q, call.k, call.v, call.graph,
                **call.options, offset=call.offset, return_lse=True, kernel=kernel,
            )  # fmt: skip
        except EdgewiseError as error:
            if kernel is not None and error.code == "kernel-refuses":
                continue
            return f"{call!r}: error[{error.code}] {error.message}"
        for name, ours, right in (("values", found, wanted), ("log-sum-exp", lse, sums)):
            if not torch.allclose(ours, right, 1e-8, 1e-9):
                return f"{call!r} by {kernel}: {name} differ by {(ours - right).abs().max():.2g}"
        ours = _gradients((found * mark).sum(), call.inputs)
        for at, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if not torch.allclose(a, b, 1e-7, 1e-8):
                what = f"gradient {at} differs by {(a - b).abs().max():.2g}"
                return f"{call!r} by {kernel}: {what}"
    return None


def _gradients(total: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in inputs]
    return list(torch.autograd.grad(total, inputs, allow_unused=True, materialize_grads=True))
