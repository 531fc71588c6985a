"""The compiler's texts with names that do not tell what was compiled before.

Halide numbers its temporaries through a process, `t1203`, and its functions where a name was used before, `C$3`. In a
text the numbers begin anew, in the order in which the names appear, so that one program has one text: in every process,
from a cold cache or a warm one. Different names stay different.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import halide as hl

__all__ = ["numbered_anew", "numbered_func"]

_IN_C = r"(?<![\w.$%#=])([a-z]|_[a-z]?)\d+(?![\w$])"
_TEMPORARY = {  # a letter and a number, in OpenCL's C an underscore before it
    "stmt": _IN_C,
    "html": _IN_C,
    "opencl": _IN_C,
    "llvm": r'(?:(?<=%)|(?<=%"))([a-z])\d+(?![\w$])',
}
_NAME = re.compile(r"(?<![\w.$])\w+(?:\$\w+)?(?:\.\w+(?:\$\w+)?)*")  # parts with dots between
_PART = re.compile(r"(\w+?)(?:\$\d+)?")
_MARKED = re.compile(r"(?<![\w$])(\w+)\$\d+(?![\w$])")
# `C$3` is `C_3` in symbols, and in some names that are made like its own; the number of its definition follows.
_SYMBOL = re.compile(r"(?:(?<=_par_for_)|(?<=kernel_))(\w+?)__?(\d+)(?=_s\d)")
_LIKE_ITS_OWN = re.compile(r"(?<![\w.$])(\w+?)_(\d+)(?=\.s\d)")
_COPY = re.compile(r"(?<!\w)(\w+?)__\d+(?=(?:_param_\d+)?(?!\w))")  # no name of the program has two underscores
_WITHIN = re.compile(r"(?<![^\W_])(\w+?)__\d+(?=_(?!param_))")  # `C$3.x` in code for GPUs
_SIZE_OF_KERNELS = re.compile(r"(_initialize_kernels\(.*, )\d+\)")  # of their text, whose names have numbers
_LLVM_STRING = re.compile(r'\[\d+ x i8\] c"((?:[^"\\]|\\..)*)"')
_ASM_STRING = re.compile(
    r'^(\.Lstr[.\d]*):\n\t\.asciz\t"((?:[^"\\\n]|\\[0-7]{3}|\\.)*)"\n\t\.size\t\1, \d+$', re.MULTILINE
)
_HTML_STRING = re.compile(r"^(\.Lstr[.\d]*):\n\t\.asciz\t&quot;(.*)&quot;\n\t\.size\t\1, \d+$", re.MULTILINE)
_COMMENT = re.compile(r"^(\S+:)[ \t]+((?:;|#|//) (?:preds|[@%]))", re.MULTILINE)
_COLUMN = {"llvm": 50, "asm": 40, "html": 40}  # of comments behind labels


def numbered_func(name: str) -> hl.Func:
    """A function of Halide's with a number behind its name, also where it is the first one of that name.

    What Halide and LLVM make of names depends on whether they have a number, but not on which.
    """
    hl.Func(name)
    return hl.Func(name)


def numbered_anew(text: str, kind: str, names: Collection[str]) -> str:
    """A text of a kind of `objects.OUTPUT_KINDS`; `names` are what the program calls its parts, which stay."""
    if kind == "html":
        text = text.replace(r"\$", "$")
    if kind in _TEMPORARY:
        text = _renumbered(text, _TEMPORARY[kind], names)
    text = _copies(_unmarked(_SIZE_OF_KERNELS.sub(r"\1bytes)", text)))
    if kind not in ("asm", "llvm"):
        within = _Numbers()
        text = _WITHIN.sub(lambda m: f"{m[1]}{'__' * bool(k := within.of(m[1], m[0]))}{k or ''}", text)
    if kind in _COLUMN:
        text = _COMMENT.sub(lambda m: f"{m[1]:<{_COLUMN[kind] - 1}} {m[2]}", text)
    if kind == "llvm":
        return _LLVM_STRING.sub(lambda m: f'[{_length(m[1], 2)} x i8] c"{m[1]}"', text)
    if kind == "html":  # where the assembly stands beside the program
        from html import unescape  # slow to load, and seldom needed

        return _HTML_STRING.sub(
            lambda m: f"{m[1]}:\n\t.asciz\t&quot;{m[2]}&quot;\n\t.size\t{m[1]}, {_length(unescape(m[2]), 3) + 1}", text
        )
    if kind == "asm":
        return _ASM_STRING.sub(lambda m: f'{m[1]}:\n\t.asciz\t"{m[2]}"\n\t.size\t{m[1]}, {_length(m[2], 3) + 1}', text)
    return text


class _Numbers:
    """For each base the names that have it, numbered in the order in which they were met."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, int]] = {}

    def of(self, base: str, name: str) -> int:
        known = self._known.setdefault(base, {})
        return known.setdefault(name, len(known))


def _length(escaped: str, digits: int) -> int:
    """Bytes of a string in which others than letters are written with so many digits, or one letter."""
    return len(re.sub(rf"\\(?:[0-9A-Fa-f]{{{digits}}}|.)", "x", escaped))


def _renumbered(text: str, temporary: str, names: Collection[str]) -> str:
    """Temporaries as t0, t1, ... less what the program itself calls so."""
    numbers, taken = _Numbers(), set(names)

    def renamed(match: re.Match[str]) -> str:
        name, letter = match[0], match[1]
        if name in taken:
            return name
        number = numbers.of(letter, name)
        below = sorted(int(n[1:]) for n in taken if re.fullmatch(rf"{letter}\d+", n))
        for other in below:
            number += other <= number
        return f"{letter}{number}"

    return re.sub(temporary, renamed, text)


def _unmarked(text: str) -> str:
    """Functions of one name told apart by their order in the text; the first one has no number.

    So are parts of names that Halide makes of others, each within the names in which it stands.
    """
    text = _LIKE_ITS_OWN.sub(r"\1$\2", text)
    numbers = _Numbers()
    bases = {m[1] for m in _MARKED.finditer(text)} | {m[1] for m in _SYMBOL.finditer(text)}

    def marked(before: str, part: str) -> str:
        match = _PART.fullmatch(part)
        if match is None or match[1] not in bases:
            return part
        number = numbers.of(f"{before}.{match[1]}", part)
        return f"{match[1]}${number}" if number else match[1]

    def renamed(match: re.Match[str]) -> str:
        made = ""
        for part in match[0].split("."):
            made += f"{'.' if made else ''}{marked(made, part)}"
        return made

    if not bases:
        return text
    text = _NAME.sub(renamed, text)
    return _SYMBOL.sub(lambda m: marked("", f"{m[1]}${m[2]}").replace("$", "_"), text)


def _copies(text: str) -> str:
    """Functions that Halide makes of loops, and kernels, likewise: `f__4`."""
    bases = {m[1] for m in _COPY.finditer(text)}
    if not bases:
        return text
    numbers = _Numbers()

    def renamed(match: re.Match[str]) -> str:
        number = numbers.of(match[1], match[0])
        return f"{match[1]}__{number}" if number else match[1]

    listed = "|".join(sorted(map(re.escape, bases), key=len, reverse=True))
    return re.sub(rf"(?<!\w)({listed})(?:__\d+)?(?=(?:_param_\d+)?(?!\w))", renamed, text)
