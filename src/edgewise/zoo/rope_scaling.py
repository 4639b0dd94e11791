"""Rotary positions in texts longer than those of training: the kinds of `rope_scaling`.

    linear    every frequency / factor
    llama3    low frequencies are divided by the factor, high ones kept, interpolated in between
    yarn      the same by a ramp over features, and a temperature: scores grow with log(factor)
    dynamic   a base that grows with the text once it is longer than those of training
    longrope  a factor for each frequency, one list for short texts and one for long ones

Papers: https://arxiv.org/abs/2306.15595 (linear), https://arxiv.org/abs/2309.00071 (yarn),
https://arxiv.org/abs/2402.13753 (longrope), https://arxiv.org/abs/2407.21783 (llama3).

>>> Linear(2.0).speeds((1.0, 0.5), 4, 10_000.0)
(0.5, 0.25)
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from edgewise.language import F, R, V, W
from edgewise.language.nodes import Atom, Expression
from edgewise.zoo.parts import Statements, rotary

__all__ = ["Dynamic", "Factors", "Linear", "Llama3", "LongRope", "Yarn"]

Speeds = tuple[float, ...]
MOST = 1e30


@dataclass(frozen=True)
class Linear:
    """All frequencies are divided by `factor`.

    >>> from edgewise import zoo
    >>> zoo.llama.Config(length=8192, scaling=Linear(4.0)).scaling
    Linear(factor=4.0)
    """

    factor: float
    amplitude: ClassVar[float] = 1.0

    def speeds(self, plain: Speeds, d: int, base: float) -> Speeds:
        return tuple(speed / self.factor for speed in plain)


@dataclass(frozen=True)
class Llama3:
    """Frequencies below `low` turns in `length` tokens are divided by `factor`, above `high` kept.

    >>> Llama3(factor=8.0, low=1.0, high=4.0, length=8192)
    Llama3(factor=8.0, low=1.0, high=4.0, length=8192)
    """

    factor: float
    low: float
    high: float
    length: float
    amplitude: ClassVar[float] = 1.0

    def speeds(self, plain: Speeds, d: int, base: float) -> Speeds:
        return tuple(map(self._slowed, plain))

    def _slowed(self, speed: float) -> float:
        turns = self.length * speed / (2 * math.pi)
        share = min(max((turns - self.low) / (self.high - self.low), 0.0), 1.0)
        return (1 - share) * speed / self.factor + share * speed


@dataclass(frozen=True)
class Yarn:
    """A ramp between the frequencies of `fast` and of `slow` turns in `length` tokens.

    Queries and keys are multiplied by `amplitude`; `truncate`: the ramp is between integers.

    >>> Yarn(factor=4.0, length=4096, amplitude=1.1)
    Yarn(factor=4.0, length=4096, amplitude=1.1, fast=32.0, slow=1.0, truncate=True)
    """

    factor: float
    length: float
    amplitude: float
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True

    def speeds(self, plain: Speeds, d: int, base: float) -> Speeds:
        low, high = self._feature(self.fast, d, base), self._feature(self.slow, d, base)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        width = high - low or 0.001
        slowed = [min(max((c - low) / width, 0.0), 1.0) for c in range(len(plain))]
        return tuple(
            speed * (share / self.factor + 1 - share)
            for speed, share in zip(plain, slowed, strict=True)
        )

    def _feature(self, turns: float, d: int, base: float) -> float:
        """The feature whose frequency is so many turns in `length` tokens."""
        return d * math.log(self.length / (turns * 2 * math.pi)) / (2 * math.log(base))


@dataclass(frozen=True)
class Factors:
    """Each frequency has a factor that divides it; queries and keys are multiplied by `amplitude`.

    >>> Factors((1.0, 2.0), amplitude=1.1)
    Factors(factors=(1.0, 2.0), amplitude=1.1)
    """

    factors: Speeds
    amplitude: float

    def speeds(self, plain: Speeds, d: int, base: float) -> Speeds:
        return tuple(s / factor for s, factor in zip(plain, self.factors, strict=True))


@dataclass(frozen=True)
class Dynamic:
    """The base is base · (factor · n / length − factor + 1)^(d / (d − 2)) for n > length tokens.

    >>> from edgewise import zoo
    >>> zoo.llama.Config(scaling=Dynamic(factor=2.0, length=2048)).scaling
    Dynamic(factor=2.0, length=2048)
    """

    factor: float
    length: float
    amplitude: ClassVar[float] = 1.0

    def up_to(self, count: int) -> "Scaling | None":
        """That of all texts of at most this many tokens, where it is the same for all."""
        return None if count <= self.length else self

    def speed(self, plain: Speeds, d: int, base: float, count: Expression) -> Expression:
        """Those of a text of `count` tokens: speed_c · growth^(−2c / (d − 2))."""
        growth = F.clamp(1, MOST)(count * (self.factor / self.length) + (1 - self.factor))
        powers = [-2 * c / max(d - 2, 1) for c in range(len(plain))]
        return W.speed[list(plain)].fixed() * F.exp(W.powers[powers].fixed() * F.log(growth))


@dataclass(frozen=True)
class LongRope:
    """Frequencies are divided by `long` in texts of more than `length` tokens, else by `short`.

    Queries and keys are multiplied by `amplitude`.

    >>> LongRope(short=(1.0, 1.0), long=(1.0, 4.0), length=4096, amplitude=1.2)
    LongRope(short=(1.0, 1.0), long=(1.0, 4.0), length=4096, amplitude=1.2)
    """

    short: Speeds
    long: Speeds
    length: float
    amplitude: float

    def up_to(self, count: int) -> "Scaling | None":
        """That of a text of this many tokens."""
        return Factors(self.short if count <= self.length else self.long, self.amplitude)

    def speed(self, plain: Speeds, d: int, base: float, count: Expression) -> Expression:
        """Those of a text of `count` tokens."""
        short, slow = (Factors(f, 1.0).speeds(plain, d, base) for f in (self.short, self.long))
        more = [b - a for a, b in zip(short, slow, strict=True)]
        is_long = F.clamp(0, 1)(count + -self.length)
        return W.short[list(short)].fixed() + W.more[more].fixed() * is_long


Scaling = Linear | Llama3 | Yarn | Factors | Dynamic | LongRope


def scaled_rotary(
    x: Atom, scaling: Scaling | None, plain: Speeds, d: int, base: float
) -> Statements:
    """The cos and sin of the angles of every position of x, for `d` rotated features."""
    match scaling:
        case None:
            return rotary(x, plain)
        case Linear() | Llama3() | Yarn() | Factors():
            return rotary(x, scaling.speeds(plain, d, base), amplitude=scaling.amplitude)
    one = W.one[1,].filled(1.0).fixed()
    speed = scaling.speed(plain, d, base, R.count)
    return [
        R.place(V.I) <= (one, R.hidden[x.relation](V.I)),
        R.count <= R.place(V.I),
        R.speed <= speed,
        *rotary(x, R.speed, amplitude=scaling.amplitude),
    ]
