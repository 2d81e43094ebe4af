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

JIT: bool = not cast(Any, numba).config.DISABLE_JIT
float_bits: Callable[[float], int]
add_four: Any
add_four_exactly: Any


def kernel(function: F) -> F:
    """Compile ``function`` lazily, cached where a cache can be written, without the interpreter lock."""
    return _compiled(function)


def brief(function: F) -> F:
    """A kernel for one event: it keeps the interpreter lock, since letting go costs more than the event."""
    return _compiled(function, nogil=False)


def inlined(function: F) -> F:
    """A small kernel that becomes part of every kernel that calls it."""
    return _compiled(function, forceinline=True)


def _compiled(function: F, **options: Any) -> F:
    options = {"nogil": True, "error_model": "numpy", **options}
    try:
        return cast(F, numba.njit(cache=True, **options)(function))
    except RuntimeError:  # neither the package's folder nor a cache home is writable
        return cast(F, numba.njit(**options)(function))


def _float_bits(x: float) -> int:
    """The 64 bits of a double read as a signed integer (plain Python twin of the intrinsic below)."""
    return int(np.float64(x).view(np.int64))


def _add_four(sums: Any, i: int, a: float, b: float, c: float, d: float) -> None:
    """``sums[i : i + 4] += (a, b, c, d)`` (plain Python twin of the intrinsic below)."""
    sums[int(i) : int(i) + 4] += (a, b, c, d)


def _add_four_exactly(sums: Any, i: int, e: int, a: float, b: float, c: float, d: float) -> None:
    """The same with the rounding errors kept in ``sums[e : e + 4]`` (plain Python twin of the intrinsic below)."""
    for lane, x in enumerate((a, b, c, d)):
        old = sums[int(i) + lane]
        total = old + x
        back = total - old
        lost = (old - (total - back)) + (x - back) + sums[int(e) + lane]
        sums[int(i) + lane] = total + lost
        sums[int(e) + lane] = lost - (sums[int(i) + lane] - total)


if JIT:
    from llvmlite import ir
    from numba.extending import intrinsic

    FOUR = ir.VectorType(ir.DoubleType(), 4)

    @intrinsic
    def _fast_float_bits(typing_context: Any, x: Any) -> Any:
        """Reinterpret a double as an int64: one move instruction, no memory."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.bitcast(args[0], ir.IntType(64))

        return numba.int64(numba.float64), codegen

    def _place(context: Any, builder: Any, array_type: Any, array: Any, i: Any) -> Any:
        """Where four neighbours of a flat array begin."""
        data = context.make_array(array_type)(context, builder, array).data
        return builder.bitcast(builder.gep(data, [i]), FOUR.as_pointer())

    def _vector(builder: Any, lanes: Any) -> Any:
        vector = ir.Constant(FOUR, ir.Undefined)
        for lane, value in enumerate(lanes):
            vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
        return vector

    @intrinsic
    def _fast_add_four(typing_context: Any, sums: Any, i: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        """Add four doubles to four neighbours of a flat array as one vector: a third of the time of four additions."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _place(context, builder, signature.args[0], args[0], args[1])
            new = builder.fadd(builder.load(place, align=8), _vector(builder, args[2:]))
            builder.store(new, place, align=8)
            return context.get_dummy_value()

        return numba.void(sums, numba.uint64, *[numba.float64] * 4), codegen

    @intrinsic
    def _fast_add_four_exactly(typing_context: Any, sums: Any, i: Any, e: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        """The same, keeping what rounding lost of each sum in four other neighbours (Knuth's TwoSum): 106 bits."""

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            place = _place(context, builder, signature.args[0], args[0], args[1])
            error = _place(context, builder, signature.args[0], args[0], args[2])
            old, x = builder.load(place, align=8), _vector(builder, args[3:])
            total = builder.fadd(old, x)
            back = builder.fsub(total, old)
            lost = builder.fadd(builder.fsub(old, builder.fsub(total, back)), builder.fsub(x, back))
            lost = builder.fadd(lost, builder.load(error, align=8))
            new = builder.fadd(total, lost)
            builder.store(new, place, align=8)
            builder.store(builder.fsub(lost, builder.fsub(new, total)), error, align=8)
            return context.get_dummy_value()

        return numba.void(sums, numba.uint64, numba.uint64, *[numba.float64] * 4), codegen

    float_bits, add_four, add_four_exactly = cast(Any, (_fast_float_bits, _fast_add_four, _fast_add_four_exactly))
else:
    float_bits, add_four, add_four_exactly = _float_bits, _add_four, _add_four_exactly


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


def lazily(
    owner: type[Any], name: str, function: Callable[..., Any], *scalars: float, sample: Callable[[], Any] | None = None
) -> None:
    """Give a class the kernel ``function`` as ``name``: compiled at its first call, and from then on called by its entry.

    The test of :func:`entry` is made with ``scalars`` on the buffer that ``sample`` makes, by default that of the first call.
    """

    def first(buf: Any, *event: Any) -> Any:
        bound = entry(function, buf if sample is None else sample(), *scalars)
        setattr(owner, name, staticmethod(bound))
        return bound(buf, *event)

    setattr(owner, name, staticmethod(first))
