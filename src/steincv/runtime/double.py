"""A user's function as a program in double precision, whatever the precision of the session around it.

Or in single, where that is asked for. JAX remembers what it made of an array of NumPy that a function closes over, as
long as anything holds on to that, and hands it out again in the other precision, where it is wrong: single in our
traces after a run of the user's, double in the user's own code after ours. What holds on to it are traces, the user's
and ours, in the caches of JAX. A compiled program does not: programs are compiled ahead of time, and traces given up.
"""

import gc
import hashlib
import traceback
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import PyTree

from .compile_cache import compile_cache
from .validation import InputError

# What f raises if JAX cannot trace it, in whatever precision.
UNTRACEABLE = (jax.errors.TracerArrayConversionError, jax.errors.ConcretizationTypeError)


class Kept(NamedTuple):
    """How many compiled programs are kept, and bytes of arrays that a function may close over for its text to be read.

    A text has two letters a byte: one who keeps a program has no need of it.
    """

    programs: int = 256
    read: int = 1 << 24


KEPT = Kept()
# The latest compiled programs, by what they compute.
_programs: OrderedDict[tuple[str, ...], Callable] = OrderedDict()


# The types of numbers by whether they are double.
NUMBERS = {
    False: (np.float32, np.int32, np.uint32, np.complex64),
    True: (np.float64, np.int64, np.uint64, np.complex128),
}


class _Traced(NamedTuple):
    key: tuple[str, ...] | None  # without one it is compiled anew
    traced: Any
    lowered: Any
    held: list[np.ndarray]  # the arrays of NumPy that f closes over, as JAX holds them

    def has(self, double: bool) -> bool:
        """Whether an array is in this precision: it may be the user's, or what is left of another trace."""
        return any(array.dtype in NUMBERS[double] for array in self.held)


def program(f: Callable, *arguments: PyTree, once: bool = False, double: bool = True) -> Callable[..., PyTree]:
    """Return f as a program for arguments of these shapes and types; call it `in_double`.

    f is traced each time, and the program found by its text: what f closes over may have changed since. `once` says
    that the program is kept by who asks for it; without `double` f's own arrays are in single precision.
    """
    return _safely(f, arguments, lambda found: _compiled(found.key, found.lowered, double), once, double)


def shapes(f: Callable, *arguments: PyTree, double: bool = True) -> PyTree:
    """Return the shapes of what f gives, without computing it."""
    return _safely(f, arguments, lambda found: found.lowered.out_info, True, double)


def look(f: Callable, see: Callable[[Any], PyTree], *arguments: PyTree) -> PyTree:
    """Return what `see` says of f as JAX traces it; nothing of the trace may be in that."""
    return _safely(f, arguments, lambda found: see(found.traced.jaxpr.jaxpr), True, True)


def in_double(compiled: Callable[..., PyTree], *arguments: PyTree, double: bool = True) -> PyTree:
    """Call a program, and return arrays of NumPy; `double` as it was made."""
    wanted = jax.config.jax_debug_nans  # type: ignore[attr-defined]
    with jax.enable_x64(double), jax.debug_nans(False):
        found = jax.tree.map(np.asarray, compiled(*arguments))
    if wanted and any(a.dtype.kind in "fc" and np.isnan(a).any() for a in jax.tree.leaves(found)):
        raise FloatingPointError("a value is not a number")
    return found


def _trace(f: Callable, arguments: Sequence[PyTree], once: bool, double: bool) -> _Traced:
    with jax.enable_x64(double):
        # unused parameters stay arguments: the text must say which of them f looks at
        traced = jax.jit(f, keep_unused=True).trace(*arguments)
        lowered = traced.lower()
    constants, key = _constants(traced.jaxpr), None
    if not once or sum(getattr(array, "nbytes", 0) for array in constants) < KEPT.read:
        text = hashlib.sha256(lowered.as_text().encode()).hexdigest()
        where = str(jax.config.jax_default_device)  # type: ignore[attr-defined]
        key = text, str(lowered.in_tree), str(lowered.out_tree), where
    return _Traced(key, traced, lowered, [array for array in constants if isinstance(array, np.ndarray)])


def _constants(program: Any) -> list[Any]:
    """Return the arrays that a traced program, and those inside it, close over."""
    seen: set[int] = set()
    found: list[Any] = []
    waiting = [program]
    while waiting:
        each = waiting.pop()
        if isinstance(each, tuple | list):
            waiting.extend(each)
        elif (hasattr(each, "jaxpr") or hasattr(each, "eqns")) and id(each) not in seen:
            seen.add(id(each))
            found.extend(getattr(each, "consts", ()))
            for equation in getattr(each, "eqns", ()):
                waiting.extend(equation.params.values())
    return found


def _compiled(key: tuple[str, ...] | None, lowered: Any, double: bool) -> Callable:
    if key is not None and key in _programs:
        _programs.move_to_end(key)
        return _programs[key]
    with jax.enable_x64(double), compile_cache():
        made = lowered.compile()
    if key is not None:
        _programs[key] = made
        while len(_programs) > KEPT.programs:
            _programs.popitem(last=False)
    return made


def _safely(f: Callable, arguments: Sequence[PyTree], use: Callable[[_Traced], Any], once: bool, double: bool) -> Any:
    """Trace, again with JAX's caches emptied where arrays may be those of another trace; leave none of ours behind."""
    other, left = jax.config.jax_enable_x64 != double, None  # type: ignore[attr-defined]

    def trace() -> _Traced:
        return _trace(f, arguments, once, double)

    try:
        traced = _tried(trace)
        if traced is None or (other and traced.has(not double) and traced.key not in _programs):
            held = traced and [weakref.ref(array) for array in traced.held]
            traced = None
            _forget(held)
            traced = trace()
        left = [weakref.ref(array) for array in traced.held if array.dtype in NUMBERS[double]]
        found = use(traced)
        traced = None
        return found
    except Exception as error:
        if other:
            _empty(error)
        raise
    finally:
        # in its own precision the user's code wants what ours does
        if other and (_any(double) if left is None else _alive(left)):
            _forget(left)


def _tried(trace: Callable[[], _Traced]) -> _Traced | None:
    """Return the trace, or None where it failed and might not again: its exception would keep arrays alive."""
    try:
        return trace()
    except (*UNTRACEABLE, InputError):
        raise
    except Exception:
        return None


def _alive(arrays: Sequence[weakref.ref]) -> bool:
    return any(array() is not None for array in arrays)


def _forget(arrays: Sequence[weakref.ref] | None) -> None:
    """Empty JAX's caches, and look for cycles where that leaves any of these arrays, or if it is not known which."""
    jax.clear_caches()
    if arrays is None or _alive(arrays):
        # a trace that ended in an exception is kept by the finalizers of its constants
        for each in list(getattr(weakref.finalize, "_registry", ())):
            if any(getattr(part, "__name__", "") == "finalize_const" for part in each.peek() or ()):
                each.detach()
        gc.collect()


def _empty(error: BaseException | None) -> None:
    """Let go of what the functions that an error passed through had at hand: their traces keep arrays alive."""
    while error is not None:
        for frame, _ in traceback.walk_tb(error.__traceback__):
            caller: FrameType | None = frame  # JAX hides its own functions, but they are there as callers
            with suppress(RuntimeError):  # this one still runs, and so do all that called it
                while caller is not None:
                    caller.clear()
                    caller = caller.f_back
        error = error.__cause__ or error.__context__


def _any(double: bool) -> bool:
    """Return whether JAX holds any array of NumPy in this precision."""
    ours = (a for a in gc.get_objects() if issubclass(type(a), np.ndarray) and type(a).__module__.startswith("jax"))
    return any(array.dtype in NUMBERS[double] for array in ours)
