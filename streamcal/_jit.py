"""The only import of numba: how a plain loop becomes a compiled kernel.

A kernel is compiled at its first call, kept in numba's cache, and lets go of the interpreter lock.
With ``NUMBA_DISABLE_JIT=1`` every kernel is the plain Python function it was written as.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

JIT: bool = not numba.config.DISABLE_JIT


def kernel(function: F) -> F:
    """Compile ``function`` lazily, cached where a cache can be written, without the interpreter lock."""
    try:
        return cast(F, numba.njit(cache=True, nogil=True)(function))
    except RuntimeError:  # neither the package's folder nor a cache home is writable
        return cast(F, numba.njit(nogil=True)(function))


def _float_bits(x: float) -> int:
    """The 64 bits of a double read as a signed integer (plain Python twin of the intrinsic below)."""
    return int(np.float64(x).view(np.int64))


def _add_four(sums: Any, i: int, a: float, b: float, c: float, d: float) -> None:
    """``sums[i : i + 4] += (a, b, c, d)`` (plain Python twin of the intrinsic below)."""
    sums[int(i) : int(i) + 4] += (a, b, c, d)


if JIT:
    from llvmlite import ir
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def float_bits(typing_context: Any, x: Any) -> Any:
        """Reinterpret a double as an int64: one move instruction, no memory."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ir.IntType(64))

        return numba.int64(numba.float64), codegen

    @intrinsic  # type: ignore[untyped-decorator]
    def add_four(typing_context: Any, sums: Any, i: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Add four doubles to four neighbours of a flat array as one vector: a third of the time of four additions."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, args[0])
            four = ir.VectorType(ir.DoubleType(), 4)
            place = builder.bitcast(builder.gep(array.data, [args[1]]), four.as_pointer())
            new = ir.Constant(four, ir.Undefined)
            for lane in range(4):
                new = builder.insert_element(new, args[2 + lane], ir.Constant(ir.IntType(32), lane))
            builder.store(builder.fadd(builder.load(place, align=8), new), place, align=8)
            return context.get_dummy_value()

        return numba.void(sums, numba.uint64, *[numba.float64] * 4), codegen

else:
    float_bits, add_four = _float_bits, _add_four


def _converting(function: F) -> F:
    """A kernel that reads its scalars like ``float()`` does, as its compiled entry would."""

    def careful(buffer: Any, *scalars: Any) -> Any:
        return function(buffer, *(float(s) for s in scalars))

    return cast(F, careful)


def entry(function: F, *sample: Any) -> F:
    """The compiled entry of a kernel, past numba's dispatcher: half the cost of a call.

    The entry converts its scalars (all floats) like ``float()`` does but takes arrays on trust, so it may only
    be given our own contiguous, writable float64 buffers. ``sample`` (buffer first) is run through both doors
    on copies; if they differ in any bit, or numba has moved the entry, the documented door is returned.
    """
    expected, seen = sample[0].copy(), sample[0].copy()
    result = function(expected, *sample[1:])
    try:
        direct = next(iter(function.overloads.values())).entry_point  # type: ignore[attr-defined]
        same = direct(seen, *sample[1:]) == result and seen.tobytes() == expected.tobytes()
    except Exception:  # any surprise here means: no short cut
        same = False
    return cast(F, direct) if same else _converting(function)
