"""Arguments: NumPy's names, a message for PyTorch's, and for those that a function does not take."""

from __future__ import annotations

from collections.abc import Callable, Collection
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, signature
from types import FunctionType
from typing import Any, TypeVar

from tedsl.lang.errors import user_location
from tedsl.lang.names import of_three

__all__ = ["check_arguments", "own_arguments", "own_keyword", "spoken"]

_OTHERS = {
    "dim": "axis", "dims": "axis axes", "axes": "axis", "keepdim": "keepdims", "correction": "ddof", "unbiased": "ddof",
    "size": "shape", "shifts": "shift", "condition": "cond", "a_min": "min", "a_max": "max", "rng": "key",
    "minval": "low", "maxval": "high", "loc": "mean", "scale": "std", "indices": "index", "repeats": "counts",
    "steps": "num",
}  # fmt: skip
_VALUES: dict[str, Callable[[Any], Any]] = {
    "unbiased": lambda unbiased: int(bool(unbiased))
}  # what is said otherwise, too
_ELSEWHERE = {  # what NumPy's functions take, and here another place says
    "out": "what a kernel writes to is said in its call: kernel(x, out=array)",
    "dtype": "x.astype(dtype) converts, before it or after it",
    "where": "te.where(cond, a, b) chooses",
    **dict.fromkeys(
        ("cval", "constant_values", "fill", "fill_value"),
        "beyond a border there is 0, or another number by te.pad(x, width, constant_values=v), or by "
        'te.select(inside, x.at(i, mode="zero"), v)',
    ),
}
_HOMES = {"tedsl.random": "te.random"}  # where what is defined in a module is found, if not in te

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def own_arguments(title: str = "", hint: str = "", is_method: bool = False) -> Callable[[F], F]:
    """The function; called with other arguments than it takes, it says how it is called, or by `hint` what is meant.

    `title` is what it is called as, te.name if nothing is said; `hint` is for keywords that it does not have.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def checked(*args: Any, **given: Any) -> Any:
            try:
                return function(*args, **given)
            except TypeError:
                check_arguments(function, args, given, title, hint, is_method)
                raise

        return checked  # type: ignore[return-value]

    return decorated


def spoken(title: str, made: str = "") -> Callable[[type[T]], type[T]]:
    """The class, each public method of which says how it is called where its arguments do not fit.

    So does the class itself, where it is `made` by this name.
    """

    def decorated(cls: type[T]) -> type[T]:
        for name, method in vars(cls).copy().items():
            if isinstance(method, FunctionType) and (name == "__call__" or not name.startswith("_")):
                called = title if name == "__call__" else f"{title}.{name}"
                setattr(cls, name, own_arguments(called, is_method=True)(method))
        if made:
            cls.__init__ = own_arguments(made, is_method=True)(cls.__init__)  # type: ignore[method-assign]
        return cls

    return decorated


def own_keyword(other: str, names: Collection[str]) -> str:
    """What a keyword of another library is called among some of ours; nothing where it is not there."""
    return next((own for own in _OTHERS.get(other, "").split() if own in names), "")


def check_arguments(
    function: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any], title: str = "", hint: str = "",
    is_method: bool = False,
) -> None:  # fmt: skip
    """TypeError, in place of Python's own, where a function does not take the arguments of a call."""
    name = title or f"{_HOMES.get(function.__module__, 'te')}.{function.__name__}"
    if found := _unfit(function, args, given, name, hint, is_method):
        raise TypeError(f"{name} at {user_location()}: {found}") from None


def _unfit(
    function: Callable[..., Any], args: tuple[Any, ...], given: dict[str, Any], name: str, hint: str, is_method: bool
) -> str:
    """Which arguments do not fit, and how the function, known as `name`, is called; nothing where they do."""
    whole = signature(function)
    try:
        whole.bind(*args, **given)
    except TypeError:
        pass
    else:
        return ""
    taken = [p.replace(annotation=p.empty) for p in whole.parameters.values()][is_method:]
    names = [p.name for p in taken]
    if any(p.kind is p.VAR_POSITIONAL and p.name in given for p in taken):
        return f"expected {name}{Signature(taken)}, found {', '.join(f'{n}=' for n in given)}"
    if unknown := next((n for n in given if n not in names), None):
        close = get_close_matches(unknown, names, 1)
        if own := own_keyword(unknown, names):
            value = f"{_VALUES[unknown](given[unknown])}" if unknown in _VALUES else ""
            return f"found {unknown}=, expected {own}={value}"
        has = f"it has {', '.join(names)}" if names else "it takes none"
        meant = f"did you mean {close[0]}=?" if close else hint or _ELSEWHERE.get(unknown, has)
        return f"found {unknown}=; {meant}"
    count = len(args) - is_method
    placed = [p for p in taken if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    rest = placed[count:] + [p for p in taken if p.kind is p.KEYWORD_ONLY]
    missing = [p.name for p in rest if p.default is p.empty and p.name not in given]
    found = f"no {', '.join(missing)}" if missing else f"{count} arguments"
    told = f"; {told}" if count == 3 and (told := of_three(name)) else ""
    return f"expected {name}{Signature(taken)}, found {found}{told}"
