"""Functions of the parameters written as text: `exp(log_tau)`, `mu + exp(log_tau) * eta[0]`, `x[0] ** 2`.

The text is parsed to a syntax tree and walked; a node that is not listed here is refused. Nothing is ever
compiled or executed.
"""

import ast
import difflib
import operator
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import scipy.special

from ..runtime.validation import InputError, listed


class Limits(NamedTuple):
    """Characters of an expression, levels of its nesting and size of an exponent, at most: its work stays bounded."""

    characters: int = 500
    levels: int = 40
    exponent: int = 100


LIMITS = Limits()

FUNCTIONS: dict[str, np.ufunc] = {
    **{f.__name__: f for f in (np.exp, np.log, np.sqrt, np.sin, np.cos, np.tan, np.tanh)},
    "abs": np.abs,
    **{f.__name__: f for f in (scipy.special.expit, scipy.special.logit, np.minimum, np.maximum)},
}
BINARY: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
COMPARISONS: dict[type, Callable] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
HELP = f"Allowed are numbers, parameters, + - * / **, comparisons (0 or 1), and {', '.join(FUNCTIONS)}."


def evaluate(text: str, columns: Mapping[str, np.ndarray]) -> np.ndarray:
    """The values of an expression over parameters: `columns` maps each name to its draws, all of one shape.

    A name that is no Python name is written in quotes: `"theta.1" + 1`.

    >>> evaluate("x[0] ** 2 + (y > 0)", {"x[0]": np.array([1.0, 2.0]), "y": np.array([-1.0, 1.0])})
    array([1., 5.])
    """
    walk = _Walk(text, columns)
    # Not finite is reported below with its numbers, better than NumPy's warnings can.
    with np.errstate(all="ignore"):
        values = walk(_parse(text), 0)
    if not walk.used:
        raise InputError(f"`{text}` uses no parameter. Known are {listed(walk.names, 12)}.")
    values = np.asarray(values, dtype=np.float64)
    bad = ~np.isfinite(values)
    if bad.any():
        first = tuple(int(i) for i in np.argwhere(bad)[0])
        where = ", ".join(f"{name} = {columns[name][first]:.4g}" for name in sorted(walk.used)[:4])
        raise InputError(
            f"`{text}` is not finite at {int(bad.sum())} of {bad.size} draws; at the first of them it is "
            f"{values[first]} where {where}."
        )
    return values


def _parse(text: str) -> ast.AST:
    if len(text) > LIMITS.characters:
        raise InputError(
            f"An expression may have {LIMITS.characters} characters, this one has {len(text)}: {text[:40]}..."
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # doubtful syntax such as `1if x` is an error here
            return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, SyntaxWarning, DeprecationWarning) as error:
        reason = getattr(error, "msg", None) or str(error)
        raise InputError(f"`{text}` cannot be read as an expression: {reason}. {HELP}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"`{text}` cannot be read as an expression. {HELP}") from error


class _Walk:
    """Evaluates a syntax tree, node by allowed node, and remembers which parameters it met."""

    def __init__(self, text: str, columns: Mapping[str, np.ndarray]):
        self.text, self.names = text, tuple(columns)
        known = {name: (name, column) for name, column in columns.items()}
        self.columns = {_key(name): entry for name, entry in known.items()} | known  # as it is written comes first
        self.used: set[str] = set()

    def __call__(self, node: ast.AST, depth: int) -> Any:
        if depth > LIMITS.levels:
            raise InputError(f"`{self.text}` is nested more than {LIMITS.levels} deep.")
        match node:
            case ast.Constant(value=bool() | complex() | bytes() | None):
                raise self._refuse(node)
            case ast.Constant(value=int() | float() as number):
                return self._number(number)
            case ast.Constant(value=str(name)):
                return self._parameter(name)
            case ast.Name(id=name):
                return self._parameter(name)
            case ast.Subscript(value=ast.Name(id=name), slice=index):
                return self._parameter(f"{name}[{','.join(self._indices(index))}]")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self(operand, depth + 1)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self(operand, depth + 1)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY:
                a, b = self(left, depth + 1), self(right, depth + 1)
                if isinstance(op, ast.Pow) and np.max(np.abs(b)) > LIMITS.exponent:
                    raise InputError(f"`{self.text}` has an exponent beyond {LIMITS.exponent}.")
                return BINARY[type(op)](a, b)
            case ast.Compare(left=left, ops=ops, comparators=rest) if all(type(op) in COMPARISONS for op in ops):
                terms = [self(term, depth + 1) for term in (left, *rest)]
                true = [COMPARISONS[type(op)](a, b) for op, a, b in zip(ops, terms, terms[1:], strict=False)]
                return np.float64(1.0) * np.logical_and.reduce(np.broadcast_arrays(*true))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self._call(name, [self(argument, depth + 1) for argument in arguments])
        raise self._refuse(node)

    def _number(self, number: int | float) -> np.float64:
        try:
            return np.float64(number)
        except OverflowError as error:
            raise InputError(f"`{self.text}` holds a number too large for a float.") from error

    def _indices(self, index: ast.AST) -> list[str]:
        entries = index.elts if isinstance(index, ast.Tuple) else [index]
        numbers = [e.value for e in entries if isinstance(e, ast.Constant) and type(e.value) is int]
        if len(numbers) != len(entries) or not numbers:
            raise InputError(f"`{self.text}`: an index must be a whole number, as in eta[0].")
        return [str(number) for number in numbers]

    def _parameter(self, name: str) -> np.ndarray:
        if (key := name if name in self.columns else _key(name)) in self.columns:
            known, column = self.columns[key]
            self.used.add(known)
            return column
        entries = [known for known in self.names if known.startswith(f"{name}[")]
        if entries:
            hint = f"it has {len(entries)} entries: write {entries[0]}"
            hint += f" to {entries[-1]}" if len(entries) > 1 else ""
        elif name in FUNCTIONS:
            hint = f"it is a function: write {name}(...)"
        else:
            close = difflib.get_close_matches(name, self.names, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]}? Known are" if close else "known are"
            hint += f" {listed(self.names, 12)}"
        raise InputError(f"`{self.text}`: there is no parameter `{name}`; {hint}.")

    def _call(self, name: str, arguments: list[Any]) -> Any:
        if name not in FUNCTIONS:
            close = difflib.get_close_matches(name, FUNCTIONS, n=1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise InputError(f"`{self.text}`: there is no function `{name}`; {hint}{HELP}")
        function = FUNCTIONS[name]
        if len(arguments) != function.nin:
            takes = "one argument" if function.nin == 1 else "two arguments"
            raise InputError(f"`{self.text}`: {name} takes {takes}, got {len(arguments)}.")
        return function(*arguments)

    def _refuse(self, node: ast.AST) -> InputError:
        what = ast.get_source_segment(self.text.strip(), node) or type(node).__name__
        return InputError(f"`{self.text}`: `{what}` is not allowed here. {HELP}")


def _key(name: str) -> str:
    """Names are looked up without spaces: `cov[1, 2]` and `cov[1,2]` are the same."""
    return name.replace(" ", "")
