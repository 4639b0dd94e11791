"""What loops compiled by numba share: asking for memory before it is read. Imported with them."""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,import-untyped"

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

# Sums may be reordered so that they vectorise; infinities keep their meaning.
FAST = {"reassoc", "contract", "arcp", "nsz"}
AHEAD = 8  # entries between asking for a row and using it
LINE = 64  # bytes that memory sends together


@intrinsic
def ask_for(typing, array, place):
    """Have element `place` of a contiguous array, counted flat, brought into the cache.

    Rows are read in random order, so most of the time of such loops was waiting for memory.
    """

    def generate(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [pointer, i32(0), i32(3), i32(1)])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


@njit(nogil=True, cache=True, inline="always")
def ahead(array, rows, e):
    """Have the row of a matrix that a later entry reads brought into the cache."""
    width = array.shape[1]
    far = rows[min(e + AHEAD, len(rows) - 1)]
    for x in range(0, width, LINE // array.itemsize):
        ask_for(array, far * width + x)
