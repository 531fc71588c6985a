"""The pointwise operations and Python's operators for them, shared by scalar expressions and whole tensors."""

from __future__ import annotations

import enum
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from tedsl.lang.errors import user_location
from tedsl.lang.names import instead_of, of_three, title_of

__all__ = ["MIRRORED", "NEGATED", "UFUNCS", "Fn", "Operators"]


class Fn(enum.Enum):
    """The pointwise operations. The value is the name by which tables (evaluation, lowering, derivatives) list it."""

    ADD = "add"
    SUB = "sub"
    MUL = "mul"
    DIV = "div"
    FLOORDIV = "floordiv"
    MOD = "mod"
    NEG = "neg"
    POW = "pow"
    ABS = "abs"
    SIGN = "sign"
    MINIMUM = "minimum"
    MAXIMUM = "maximum"
    CLIP = "clip"
    RELU = "relu"
    EQ = "eq"
    NE = "ne"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"
    AND = "and"
    OR = "or"
    NOT = "not"
    BITAND = "bitand"
    BITOR = "bitor"
    BITXOR = "bitxor"
    INVERT = "invert"
    LSHIFT = "lshift"
    RSHIFT = "rshift"
    SELECT = "select"
    CAST = "cast"
    TERM = "term"  # a product that is added with one rounding, as those of `te.sum` are; else what it is given
    ROUNDED = "rounded"  # a product that is rounded before it is added, as one is that a stage of its own computes
    STOP = "stop_gradient"  # what it is given, through which no derivative flows
    EXP = "exp"
    EXP2 = "exp2"
    EXPM1 = "expm1"
    LOG = "log"
    LOG1P = "log1p"
    LOG2 = "log2"
    LOG10 = "log10"
    SQRT = "sqrt"
    RSQRT = "rsqrt"
    CBRT = "cbrt"
    SIN = "sin"
    COS = "cos"
    TAN = "tan"
    ASIN = "asin"
    ACOS = "acos"
    ATAN = "atan"
    ATAN2 = "atan2"
    SINH = "sinh"
    COSH = "cosh"
    TANH = "tanh"
    ASINH = "asinh"
    ACOSH = "acosh"
    ATANH = "atanh"
    ERF = "erf"
    ERFC = "erfc"
    SIGMOID = "sigmoid"
    HYPOT = "hypot"
    COPYSIGN = "copysign"
    FLOOR = "floor"
    CEIL = "ceil"
    ROUND = "round"
    TRUNC = "trunc"
    ISNAN = "isnan"
    ISINF = "isinf"
    ISFINITE = "isfinite"

    # Identity hash: members are keys of hot tables.
    __hash__ = object.__hash__


# The functions of NumPy that are one of ours.
UFUNCS = {
    np.add: Fn.ADD, np.subtract: Fn.SUB, np.multiply: Fn.MUL, np.divide: Fn.DIV, np.floor_divide: Fn.FLOORDIV,
    np.remainder: Fn.MOD, np.negative: Fn.NEG, np.power: Fn.POW, np.absolute: Fn.ABS, np.sign: Fn.SIGN,
    np.minimum: Fn.MINIMUM, np.maximum: Fn.MAXIMUM, np.equal: Fn.EQ, np.not_equal: Fn.NE, np.less: Fn.LT,
    np.less_equal: Fn.LE, np.greater: Fn.GT, np.greater_equal: Fn.GE, np.logical_and: Fn.AND, np.logical_or: Fn.OR,
    np.logical_not: Fn.NOT, np.bitwise_and: Fn.BITAND, np.bitwise_or: Fn.BITOR, np.bitwise_xor: Fn.BITXOR,
    np.invert: Fn.INVERT, np.left_shift: Fn.LSHIFT, np.right_shift: Fn.RSHIFT, np.exp: Fn.EXP, np.exp2: Fn.EXP2,
    np.expm1: Fn.EXPM1, np.log: Fn.LOG, np.log1p: Fn.LOG1P, np.log2: Fn.LOG2, np.log10: Fn.LOG10, np.sqrt: Fn.SQRT,
    np.cbrt: Fn.CBRT, np.sin: Fn.SIN, np.cos: Fn.COS, np.tan: Fn.TAN, np.arcsin: Fn.ASIN, np.arccos: Fn.ACOS,
    np.arctan: Fn.ATAN, np.arctan2: Fn.ATAN2, np.sinh: Fn.SINH, np.cosh: Fn.COSH, np.tanh: Fn.TANH, np.hypot: Fn.HYPOT,
    np.arcsinh: Fn.ASINH, np.arccosh: Fn.ACOSH, np.arctanh: Fn.ATANH,
    np.copysign: Fn.COPYSIGN, np.floor: Fn.FLOOR, np.ceil: Fn.CEIL, np.rint: Fn.ROUND, np.trunc: Fn.TRUNC,
    np.isnan: Fn.ISNAN, np.isinf: Fn.ISINF, np.isfinite: Fn.ISFINITE,
}  # fmt: skip

# The comparison that holds where another does not, and the one with the sides of another exchanged.
NEGATED = {Fn.LT: Fn.GE, Fn.LE: Fn.GT, Fn.GT: Fn.LE, Fn.GE: Fn.LT, Fn.EQ: Fn.NE, Fn.NE: Fn.EQ}
MIRRORED = {Fn.LT: Fn.GT, Fn.LE: Fn.GE, Fn.GT: Fn.LT, Fn.GE: Fn.LE, Fn.EQ: Fn.EQ, Fn.NE: Fn.NE}

# What says how a product is added, and is else what it is given.
HOW_ADDED = frozenset({Fn.TERM, Fn.ROUNDED})

NAMES = frozenset(u.__name__ for u in UFUNCS)


R = TypeVar("R", covariant=True)


class Operators(Generic[R]):
    """Python's operators, each one call of `_apply(fn, *operands)`, which the two users of this class define."""

    __slots__ = ()
    # A static method, attached by tedsl.lang.functions and tedsl.lang.arrays, which lie above.
    _apply: ClassVar[Callable[..., Any]]
    _ufuncs: ClassVar[dict[str, Callable[..., Any]]] = {}  # functions of NumPy that are made of others here

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """np.exp(x), np.maximum(x, y); NumPy's scalars and arrays on the left of an operator come here as well."""
        if method == "__call__" and not options:
            if ufunc in UFUNCS:
                return self._apply(UFUNCS[ufunc], *inputs)
            if (rule := self._ufuncs.get(ufunc.__name__)) is not None:
                return rule(*inputs)
            if ufunc is np.matmul and hasattr(inputs[1], "__rmatmul__"):
                return inputs[1].__rmatmul__(inputs[0])
        title = title_of(ufunc)
        name = title if method == "__call__" else f"{title}.{method}"
        told = f" with {', '.join(options)}=" if options else ""
        own = of_three(ufunc.__name__) if isinstance(options.get("out", (None,))[0], Operators) else ""
        raise TypeError(
            f"{name}{told} at {user_location()}: takes arrays, found {self!r:.60}; {own or instead_of(title, method)}"
        )

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """torch.exp(x): PyTorch's functions take its tensors, but for those that do no more than call methods."""
        try:
            with sys.modules["torch"]._C.DisableTorchFunction():
                return function(*args, **(kwargs or {}))
        except TypeError as error:
            name = function.__name__
            own = next((repr(a) for a in (*args, *(kwargs or {}).values()) if isinstance(a, cls)), "a tensor of tedsl")
            known = name in NAMES or name in getattr(cls, "_numpy", ())
            told = f"write te.{name}(x)" if known else instead_of(name)
            raise TypeError(
                f"torch's {name} at {user_location()}: takes tensors of PyTorch, found {own:.60}; {told}"
            ) from error

    def __add__(self, other: Any) -> R:
        return self._apply(Fn.ADD, self, other)

    def __radd__(self, other: Any) -> R:
        return self._apply(Fn.ADD, other, self)

    def __sub__(self, other: Any) -> R:
        return self._apply(Fn.SUB, self, other)

    def __rsub__(self, other: Any) -> R:
        return self._apply(Fn.SUB, other, self)

    def __mul__(self, other: Any) -> R:
        return self._apply(Fn.MUL, self, other)

    def __rmul__(self, other: Any) -> R:
        return self._apply(Fn.MUL, other, self)

    def __truediv__(self, other: Any) -> R:
        return self._apply(Fn.DIV, self, other)

    def __rtruediv__(self, other: Any) -> R:
        return self._apply(Fn.DIV, other, self)

    def __floordiv__(self, other: Any) -> R:
        return self._apply(Fn.FLOORDIV, self, other)

    def __rfloordiv__(self, other: Any) -> R:
        return self._apply(Fn.FLOORDIV, other, self)

    def __mod__(self, other: Any) -> R:
        return self._apply(Fn.MOD, self, other)

    def __rmod__(self, other: Any) -> R:
        return self._apply(Fn.MOD, other, self)

    def __pow__(self, other: Any) -> R:
        return self._apply(Fn.POW, self, other)

    def __rpow__(self, other: Any) -> R:
        return self._apply(Fn.POW, other, self)

    def __and__(self, other: Any) -> R:
        return self._apply(Fn.BITAND, self, other)

    def __rand__(self, other: Any) -> R:
        return self._apply(Fn.BITAND, other, self)

    def __or__(self, other: Any) -> R:
        return self._apply(Fn.BITOR, self, other)

    def __ror__(self, other: Any) -> R:
        return self._apply(Fn.BITOR, other, self)

    def __xor__(self, other: Any) -> R:
        return self._apply(Fn.BITXOR, self, other)

    def __rxor__(self, other: Any) -> R:
        return self._apply(Fn.BITXOR, other, self)

    def __lshift__(self, other: Any) -> R:
        return self._apply(Fn.LSHIFT, self, other)

    def __rlshift__(self, other: Any) -> R:
        return self._apply(Fn.LSHIFT, other, self)

    def __rshift__(self, other: Any) -> R:
        return self._apply(Fn.RSHIFT, self, other)

    def __rrshift__(self, other: Any) -> R:
        return self._apply(Fn.RSHIFT, other, self)

    def __eq__(self, other: Any) -> R:  # type: ignore[override]
        return self._apply(Fn.EQ, self, other)

    def __ne__(self, other: Any) -> R:  # type: ignore[override]
        return self._apply(Fn.NE, self, other)

    def __lt__(self, other: Any) -> R:
        return self._apply(Fn.LT, self, other)

    def __le__(self, other: Any) -> R:
        return self._apply(Fn.LE, self, other)

    def __gt__(self, other: Any) -> R:
        return self._apply(Fn.GT, self, other)

    def __ge__(self, other: Any) -> R:
        return self._apply(Fn.GE, self, other)

    def __divmod__(self, other: Any) -> tuple[R, R]:
        return self // other, self % other

    def __neg__(self) -> R:
        return self._apply(Fn.NEG, self)

    def __abs__(self) -> R:
        return self._apply(Fn.ABS, self)

    def __round__(self, digits: int | None = None) -> R:
        return self._ufuncs["round"](self, digits or 0)

    def __invert__(self) -> R:
        return self._apply(Fn.INVERT, self)

    def __pos__(self) -> R:
        return self  # type: ignore[return-value]

    def __format__(self, spec: str) -> str:
        try:
            return format(str(self), spec)
        except ValueError:
            raise TypeError(
                f"{self!r:.80} has no number that {spec!r} would format: it is a formula; te.evaluate computes it"
            ) from None

    # By identity, and in C: nodes are the keys of every pass.
    __hash__ = object.__hash__
