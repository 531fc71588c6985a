"""Names in C: of exported functions, which must be free there, and of their parameters, which may be made to be.

A header is read by compilers of C and C++, after others; so names are neither keywords of either, nor what the standard
headers define. Functions share their names with all that is linked: the C library, Halide's runtime, the kernels.
"""

from __future__ import annotations

import ctypes
import errno
import keyword
import re
import signal
import sys
from collections.abc import Collection, Iterable

from tedsl.backend.lowering.names import LONGEST

__all__ = ["function_name", "parameter_names"]

_OF_C = """
    alignas alignof auto bool break case char const constexpr continue default do double else enum extern false float
    for goto if inline int long nullptr register restrict return short signed sizeof static static_assert struct switch
    thread_local true typedef typeof typeof_unqual union unsigned void volatile while
    """
_OF_CPP = """
    and and_eq asm bitand bitor catch char8_t char16_t char32_t class co_await co_return co_yield compl concept
    consteval constinit const_cast decltype delete dynamic_cast explicit export final friend import module mutable
    namespace new noexcept not not_eq operator or or_eq override private protected public reinterpret_cast requires
    static_cast std template this throw try typeid typename using virtual wchar_t xor xor_eq
    """
_KEYWORDS = frozenset(f"{_OF_C} {_OF_CPP}".split())

# What the standard headers define as macros and types; `linux` and `unix` are defined by compilers on such systems.
_TYPES_AND_MACROS = """
    NULL EOF NAN INFINITY I complex imaginary errno stdin stdout stderr assert offsetof setjmp linux unix i386 main
    va_start va_arg va_end va_copy va_list jmp_buf FILE isnan isinf isfinite isnormal signbit fpclassify isgreater
    isless isunordered isgreaterequal islessequal islessgreater noreturn BUFSIZ CLOCKS_PER_SEC HUGE_VAL atexit
    at_quick_exit kill_dependency math_errhandling
    """
_DEFINED = frozenset([*_TYPES_AND_MACROS.split(), *errno.errorcode.values(), *(s.name for s in signal.Signals)])
_PATTERN = re.compile("|".join((
    r"u?int(_least|_fast)?(8|16|32|64)_t|atomic_[a-z]\w+",
    r"(u?intmax|u?intptr|s?size|ptrdiff|max_align|time|clock|sig_atomic|wint|mbstate|wctype|wctrans|fpos|float|double)_t",
    r"(div|ldiv|lldiv|imaxdiv|fenv|fexcept|cnd|mtx|thrd|thrd_start|tss|tss_dtor|off|pid|uid|gid|mode)_t",
    r"(U?(INT|LONG|LLONG|CHAR|SHRT)|U?INT(_LEAST|_FAST)?(8|16|32|64)|U?INTMAX|U?INTPTR|SCHAR|BOOL|SIZE|PTRDIFF|WCHAR|WINT"
    r"|SIG_ATOMIC|RAND|FOPEN|FILENAME|TMP|MB_LEN|MB_CUR)_(MAX|MIN|WIDTH|C|BIT)|ONCE_FLAG_INIT|TSS_DTOR_ITERATIONS",
    r"(FLT|DBL|LDBL|SEEK|FE|FP|LC|M|MATH|ATOMIC|SIG|EXIT|TIME)_[A-Z0-9_]+|(PRI|SCN)[diouxX](LEAST|FAST|MAX|PTR)?\d*",
    r"WEOF|HUGE_VAL[FL]|CMPLX[FL]?|L_tmpnam",
)))  # fmt: skip
_MATH = """
    acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax
    fmin fmod frexp gamma hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf
    nan nearbyint nextafter nexttoward pow remainder remquo rint round scalb scalbn scalbln sin sinh sqrt tan tanh
    tgamma trunc y0 y1 yn
    """
_FUNCTIONS = frozenset(f"{name}{kind}" for name in _MATH.split() for kind in ("", "f", "l"))
_IN_MODULE = frozenset(("INPUTS", "OUTPUTS"))  # the names of the Python module that goes with the library


def function_name(name: str, linked: Collection[str] = ()) -> str:
    """The name of the function for a kernel; ValueError, which says why, where it cannot have it.

    `linked` are the names of all that is linked with it.
    """
    text = _identifier(name)
    text = text if text[:1].isalpha() else f"k{text}"
    reason = "it has halves of characters" if _is_broken(name) else _reason(text, linked)
    if reason is None:
        return text
    made = "" if text == name or len(text) > LONGEST else f", which is {text} in C"
    raise ValueError(
        f"kernel {name!a:.60}: export: expected a name for a C function, found {name!a:.60}{made}: {reason}; give the "
        f"kernel another name, as in te.build(..., name='my_{text[:20]}')"
    )


def _is_broken(name: str) -> bool:
    """Whether it cannot be encoded."""
    return any("\ud800" <= character <= "\udfff" for character in name)


def _reason(text: str, linked: Collection[str]) -> str | None:
    if len(text) > LONGEST:
        return f"it has {len(text)} characters, at most {LONGEST} are possible"
    if text in _KEYWORDS:
        return "it is a keyword of C or C++"
    if keyword.iskeyword(text):
        return "it is a keyword of Python, whose module has a function of that name"
    if text in _IN_MODULE:
        return "the Python module of the library has another object of that name"
    if text == "numpy" or text in sys.stdlib_module_names:
        return f"the Python module of the library would hide that called {text}"
    if text in _DEFINED or _PATTERN.fullmatch(text):
        return "the headers of the C library define it"
    if text.startswith("halide_"):
        return "names that begin so belong to Halide's runtime"
    for symbol in (text, f"{text}_error"):
        if symbol in linked:
            return f"what is linked with it has a function {symbol}"
        if symbol in _FUNCTIONS or hasattr(ctypes.CDLL(None), symbol):
            return f"the C library has a function {symbol}"
    return None


def parameter_names(labels: Iterable[str]) -> list[str]:
    """Names of parameters for tensors, which may be called anything: each its own."""
    found: list[str] = []
    for label in labels:
        text = _identifier(label)[:LONGEST]
        base = text if text[:1].isalpha() else f"t{text}"
        if base in _KEYWORDS or keyword.iskeyword(base) or base in _DEFINED or _PATTERN.fullmatch(base):
            base += "_"
        found.append(next(n for n in (base, *(f"{base}_{k}" for k in range(1, len(found) + 2))) if n not in found))
    return found


def _identifier(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)
