"""Machine code of small tapes: every number that a sample computes is a value of LLVM's.

Instructions of a few numbers take longer to read than to compute. Here nothing is read: each
sample is a function of the array of numbers, without loops; what only moves numbers is no code at
all. Compiling takes some 50 µs for a number, so that short training keeps to the instructions.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped,no-untyped-call"

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numba.core.compiler_lock import global_compiler_lock

from edgewise.kernels.simd_rows import FAST
from edgewise.kernels.tape.instructions import AGGREGATIONS, BINARY, MOVES, OPS, PRODUCTS, UNARY

EXACT = ("contract",)
REORDERED = tuple(sorted(FAST))  # the terms of a sum
NAMES = tuple(OPS)
COMPARED = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "eq": "=="}
ARITHMETIC = ("add", "sub", "mul", "div")


class SampleWriter:
    """The code of one sample: the value at each address, as far as it was read or written."""

    def __init__(self, function: Any, number: Any, constants: dict[int, float]) -> None:
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.work, self.number, self.constants = function.args[0], number, constants
        self.values: dict[int, Any] = {}
        self.written: set[int] = set()

    def one(self, value: float) -> Any:
        return ir.Constant(self.number, float(value))

    def read(self, at: int) -> Any:
        if at not in self.values:
            known = self.constants.get(at)
            self.values[at] = (
                self.builder.load(self._place(at)) if known is None else self.one(known)
            )
        return self.values[at]

    def put(self, at: int, value: Any) -> None:
        self.values[at] = value
        self.written.add(at)

    def store(self, addresses: Iterable[int]) -> None:
        """Write those that the sample has computed, and end."""
        for at in addresses:
            if at in self.written:
                self.builder.store(self.values[at], self._place(at))
        self.builder.ret_void()

    def _place(self, at: int) -> Any:
        return self.builder.gep(self.work, [ir.Constant(ir.IntType(64), at)])

    def call(self, name: str, *x: Any) -> Any:
        """A function of the C library."""
        name = name if isinstance(self.number, ir.DoubleType) else f"{name}f"
        kind = ir.FunctionType(self.number, [self.number] * len(x))
        return self.builder.call(
            cgutils.get_or_insert_function(self.builder.module, kind, name), list(x)
        )

    def intrinsic(self, name: str, x: Any) -> Any:
        return self.builder.call(
            self.builder.module.declare_intrinsic(f"llvm.{name}", [self.number]), [x]
        )

    def add(self, a: Any, b: Any) -> Any:
        return self.builder.fadd(a, b, flags=EXACT)

    def sub(self, a: Any, b: Any) -> Any:
        return self.builder.fsub(a, b, flags=EXACT)

    def mul(self, a: Any, b: Any) -> Any:
        return self.builder.fmul(a, b, flags=EXACT)

    def div(self, a: Any, b: Any) -> Any:
        return self.builder.fdiv(a, b, flags=EXACT)

    def sum(self, terms: Sequence[Any]) -> Any:
        total = terms[0]
        for term in terms[1:]:
            total = self.builder.fadd(total, term, flags=REORDERED)
        return total

    def if_(self, condition: Any, a: Any, b: Any) -> Any:
        return self.builder.select(condition, a, b)

    def is_(self, a: Any, comparison: str, b: Any) -> Any:
        return self.builder.fcmp_ordered(comparison, a, b)

    def flag(self, condition: Any) -> Any:
        return self.if_(condition, self.one(1), self.one(0))

    def is_nonzero(self, x: Any) -> Any:
        return self.builder.fcmp_unordered("!=", x, self.one(0))

    def extreme(self, comparison: str, x: Any, y: Any) -> Any:
        """x where it is more extreme, or not a number; else y."""
        builder = self.builder
        nan = builder.fcmp_unordered("uno", x, x)
        return self.if_(builder.or_(nan, self.is_(x, comparison, y)), x, y)

    def sign(self, x: Any) -> Any:
        zero = self.one(0)
        below = self.if_(self.is_(x, "<", zero), self.one(-1), x)
        return self.if_(self.is_(x, ">", zero), self.one(1), below)

    def unary(self, name: str, x: Any) -> Any:
        one, zero = self.one(1), self.one(0)
        match name:
            case "copy":
                return x
            case "neg":
                return self.builder.fneg(x)
            case "sqrt":
                return self.intrinsic("sqrt", x)
            case "abs":
                return self.intrinsic("fabs", x)
            case "reciprocal":
                return self.div(one, x)
            case "sigmoid":
                return self.div(one, self.add(one, self.call("exp", self.builder.fneg(x))))
            case "relu":
                return self.if_(self.builder.fcmp_unordered(">", x, zero), x, zero)
            case "sign":
                return self.sign(x)
            case "logical_not":
                return self.flag(self.is_(x, "==", zero))
            case _:
                return self.call(name, x)

    def binary(self, name: str, x: Any, y: Any) -> Any:
        builder = self.builder
        if name in ARITHMETIC:
            return getattr(self, name)(x, y)
        if name in COMPARED:
            return self.flag(self.is_(x, COMPARED[name], y))
        match name:
            case "ne":
                return self.flag(builder.fcmp_unordered("!=", x, y))
            case "maximum":
                return self.extreme(">=", x, y)
            case "minimum":
                return self.extreme("<=", x, y)
            case "logical_and":
                return self.flag(builder.and_(self.is_nonzero(x), self.is_nonzero(y)))
            case "logical_or":
                return self.flag(builder.or_(self.is_nonzero(x), self.is_nonzero(y)))
            case _:
                return self.call("pow", x, y)

    def slope(self, name: str, x: Any) -> Any:
        """The derivative of a function, of its result or its argument, as `SLOPES` says."""
        one = self.one(1)
        match name:
            case "tanh":
                return self.sub(one, self.mul(x, x))
            case "sigmoid":
                return self.mul(x, self.sub(one, x))
            case "relu":
                return self.flag(self.is_(x, ">", self.one(0)))
            case "exp":
                return x
            case "sqrt":
                return self.div(self.one(0.5), x)
            case "sin":
                return self.call("cos", x)
            case "cos":
                return self.builder.fneg(self.call("sin", x))
            case "abs":
                return self.sign(x)
            case _:  # log
                return self.div(one, x)

    def step(self, line: Sequence[int], low: int, high: int, index: Sequence[int]) -> None:
        name = NAMES[line[0]]
        for i in range(low, high):
            if name in MOVES:
                self._move(name, line, i, index[line[15] + i])
            elif name in PRODUCTS or name in AGGREGATIONS:
                self._reduce(name, line, i)
            else:
                self._elementwise(name, line, i)

    def _move(self, name: str, line: Sequence[int], i: int, k: int) -> None:
        """A row from one that a list names, or to it."""
        to, source = (i, k) if name in ("gather", "gather_add") else (k, i)
        p, q = line[3] + to * line[4], line[6] + source * line[7]
        for f in range(line[2]):
            at, x = p + f * line[5], self.read(q + f * line[8])
            if name in ("gather_add", "scatter_add"):
                x = self.add(self.read(at), x)
            elif name in ("scatter_max", "scatter_min"):
                x = self.extreme(">=" if name == "scatter_max" else "<=", self.read(at), x)
            self.put(at, x)

    def _reduce(self, name: str, line: Sequence[int], i: int) -> None:
        """A row of a matrix product, or one number of a row."""
        (o, so, to), (a, sa, ta), (b, sb, tb) = line[3:6], line[6:9], line[9:12]
        n, row, out = line[2], a + i * sa, o + i * so
        if name in AGGREGATIONS:
            found = [self.read(row + f * ta) for f in range(n)]
            self.put(out, self._aggregated(name, found))
        elif name == "dot_add":
            pairs = [(row + f * ta, b + i * sb + f * tb) for f in range(n)]
            self.put(out, self._dot(pairs, [self.read(out)]))
        else:
            found = []
            for j in range(n):
                pairs = [(row + k * ta, b + k * sb + j * tb) for k in range(line[12])]
                start = [self.read(out + j * to)] if name == "product_add" else []
                found.append(self._dot(pairs, start))
            for j, value in enumerate(found):
                self.put(out + j * to, value)

    def _aggregated(self, name: str, values: Sequence[Any]) -> Any:
        if name == "sum":
            return self.sum(values)
        total = values[0]
        for x in values[1:]:
            total = self.extreme(">" if name == "largest" else "<", x, total)
        return total

    def _dot(self, pairs: Sequence[tuple[int, int]], start: Sequence[Any]) -> Any:
        terms = [self.mul(self.read(p), self.read(q)) for p, q in pairs]
        return self.sum([*start, *terms] or [self.one(0)])

    def _elementwise(self, name: str, line: Sequence[int], i: int) -> None:
        starts = [line[at] + i * line[at + 1] for at in (3, 6, 9, 12)]
        function = NAMES[line[15]]
        for f in range(line[2]):
            at, p, q, r = (
                start + f * line[k] for start, k in zip(starts, (5, 8, 11, 14), strict=True)
            )
            x = self.read(p)
            if name in UNARY:
                value = self.unary(name, x)
            elif name in BINARY:
                value = self.binary(name, x, self.read(q))
            elif name == "where":
                value = self.if_(self.is_nonzero(x), self.read(q), self.read(r))
            elif name == "multiply_add":
                value = self.add(self.read(at), self.mul(x, self.read(q)))
            else:
                value = self.mul(x, self.slope(function, self.read(q)))
                value = self.add(self.read(at), value) if name == "slope_add" else value
            self.put(at, value)


class MachineCode:
    """`addresses` are those of the functions of samples; they live as long as this object."""

    def __init__(
        self,
        tape: tuple[np.ndarray, np.ndarray, np.ndarray],
        starts: np.ndarray,
        constants: dict[int, float],
        outputs: Sequence[Iterable[int]],
        dtype: np.dtype,
    ) -> None:
        from numba.core.registry import cpu_target

        number = ir.DoubleType() if dtype == np.float64 else ir.FloatType()
        self.library = cpu_target.target_context.codegen().create_library("tape")
        module = self.library.create_ir_module("tape")
        kind = ir.FunctionType(ir.VoidType(), [number.as_pointer()])
        lines, steps, index = (part.tolist() for part in tape)
        names = [f"sample_{at}" for at in range(len(outputs))]
        for at, name in enumerate(names):
            writer = SampleWriter(ir.Function(module, kind, name), number, constants)
            for which, low, high in steps[starts[at, 0] : starts[at + 1, 0]]:
                writer.step(lines[which], low, high, index)
            writer.store(outputs[at])
        with global_compiler_lock:
            self.library.add_ir_module(module)
            self.library.finalize()
        pointers = [self.library.get_pointer_to_function(name) for name in names]
        self.addresses = np.array(pointers, np.int64)
