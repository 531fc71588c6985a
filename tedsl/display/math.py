"""Formulas as a small tree, and two ways to write it: LaTeX, and MathML, which a browser sets without a script.

Pages of notebooks that nobody vouches for lose their styles and MathML's tags, and the text between these is left. So
that text is a formula, too: what MathML says by places, such as `[`, `/` and `^`, is there, and no style shows it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from tedsl.lang.dataclass import dataclass

__all__ = [
    "Big",
    "Cases",
    "Fenced",
    "Fraction",
    "Line",
    "Math",
    "Name",
    "Operator",
    "Root",
    "Row",
    "Script",
    "Table",
    "Word",
]

GREEK = {
    "alpha": "α", "beta": "β", "gamma": "γ", "delta": "δ", "epsilon": "ε", "zeta": "ζ", "eta": "η", "theta": "θ",
    "kappa": "κ", "lambda": "λ", "mu": "μ", "nu": "ν", "xi": "ξ", "pi": "π", "rho": "ρ", "sigma": "σ", "tau": "τ",
    "phi": "φ", "chi": "χ", "psi": "ψ", "omega": "ω",
}  # fmt: skip
# Character -> LaTeX, for the operators that formulas use.
LATEX = {
    "·": r"\cdot ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ", "∧": r"\wedge ", "∨": r"\vee ", "¬": r"\neg ",
    "∑": r"\sum", "∏": r"\prod", "⋁": r"\bigvee", "⋀": r"\bigwedge", "⌊": r"\lfloor ", "⌋": r"\rfloor ",
    "⌈": r"\lceil ", "⌉": r"\rceil ", "∞": r"\infty ", "−": "-", "|": r"\lvert ", "&": r"\mathbin{\&}", "~": r"{\sim}",
    "≪": r"\ll ", "≫": r"\gg ", "⊕": r"\oplus ", "%": r"\bmod ", "←": r"\leftarrow ", "∣": r"\mathbin{|}",
    " ": r"\;", ",": r",\,", "{": r"\{", "}": r"\}",
}  # fmt: skip
RIGHT = {"|": r"\rvert "}


def _unset(text: str) -> str:
    """What is read only where formulas are not set."""
    return f'<mtext class="te-unset">{html.escape(text).replace(" ", "&#160;")}</mtext>'


class Math:
    """A part of a formula."""

    def latex(self) -> str:
        raise NotImplementedError

    def mathml(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True)
class Name(Math):
    """A variable: one letter is italic, a Greek name is its letter, a word is upright; `x_1` has a subscript."""

    text: str

    def latex(self) -> str:
        stem, _, sub = self.text.partition("_") if _is_numbered(self.text) else (self.text, "", "")
        if stem in GREEK:
            set_as = f"\\{stem}"
        elif len(stem) == 1 and stem.isalpha():
            set_as = stem
        else:
            set_as = f"\\mathrm{{{stem.translate(_ESCAPED)}}}" if stem.isidentifier() else _text(stem)
        return f"{set_as}_{{{sub}}}" if sub else set_as

    def mathml(self) -> str:
        stem, _, sub = self.text.partition("_") if _is_numbered(self.text) else (self.text, "", "")
        letter = f"<mi>{html.escape(GREEK.get(stem, stem))}</mi>"
        return f"<msub>{letter}<mn>{sub}</mn></msub>" if sub else letter


def _is_numbered(text: str) -> bool:
    """Whether a letter has a number; that of a word stays where it is, since words have indices of their own."""
    stem, _, sub = text.partition("_")
    return (len(stem) == 1 or stem in GREEK) and sub.isdigit()


@dataclass(frozen=True)
class Word(Math):
    """A number, or plain text in a formula."""

    text: str

    def latex(self) -> str:
        if _is_number(self.text):
            return self.text
        return _text(self.text)

    def mathml(self) -> str:
        tag = "mn" if _is_number(self.text) else "mtext"
        return f"<{tag}>{html.escape(self.text).replace(' ', '&#160;')}</{tag}>"


# What means something in LaTeX -> how it is written in a formula; not all programs know these within text.
_SPECIAL = {c: f"\\{c}" for c in "_#$%&{}"} | {"\\": r"\backslash ", "^": r"{\wedge}", "~": r"{\sim}"}
_ESCAPED = str.maketrans(_SPECIAL)


def _text(text: str) -> str:
    """Plain text in LaTeX, line ends as spaces."""
    parts = re.findall(r"[_#$%&{}\\^~]|[^_#$%&{}\\^~]+", re.sub(r"\s", " ", text))
    made = "".join(_SPECIAL.get(p, f"\\text{{{p}}}") for p in parts)
    return made if len(parts) == 1 else f"{{{made}}}"


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


@dataclass(frozen=True)
class Operator(Math):
    """A sign between or before operands; a word is an operator such as max."""

    text: str
    spaced: bool = False

    def latex(self) -> str:
        known = LATEX.get(self.text, self.text)
        if len(self.text) > 1 and self.text.isalnum():
            known = (
                f"\\operatorname{{{self.text}}}"
                if self.text.isalpha()
                else f"\\operatorname{{\\mathrm{{{self.text}}}}}"
            )
        return f"\\;{known}\\;" if self.spaced else known

    def mathml(self) -> str:
        if len(self.text) > 1 and self.text.isalnum():
            return f"<mi>{html.escape(self.text)}</mi><mo>&#8289;</mo>"
        space = ' lspace="0.4em" rspace="0.4em"' if self.spaced else ""
        text = "mod" if self.text == "%" else html.escape(self.text)
        space = ' lspace="0.3em" rspace="0.3em"' if text == "mod" else space
        if self.text == ",":
            return '<mo separator="true" lspace="0" rspace="0.25em">,</mo>'
        if self.text == " ":
            return '<mspace width="0.17em"/>' + _unset("·")
        return f"<mo{space}>{text}</mo>"


@dataclass(frozen=True)
class Row(Math):
    """Parts side by side."""

    parts: tuple[Math, ...]

    def latex(self) -> str:
        made = ""
        for part in self.parts:
            text = part.latex()
            # A control word needs a space before a letter.
            made += " " * (made[-1:].isalpha() and "\\" in made[-12:] and text[:1].isalnum()) + text
        return made

    def mathml(self) -> str:
        """Blanks between elements are nothing to MathML, and part the signs of a text."""
        made = ""
        for k, part in enumerate(self.parts):
            sign = part.text if isinstance(part, Operator) else None
            is_infix = sign is not None and k > 0 and sign not in ",)"
            made += f"{' ' * is_infix}{part.mathml()}{' ' * (is_infix or sign == ',')}"
        return f"<mrow>{made}</mrow>"


@dataclass(frozen=True)
class Fenced(Math):
    """A part between brackets."""

    inner: Math
    left: str = "("
    right: str = ")"

    def latex(self) -> str:
        left, right = LATEX.get(self.left, self.left), RIGHT.get(self.right) or LATEX.get(self.right, self.right)
        return f"\\left{left.strip()} {self.inner.latex()} \\right{right.strip()}"

    def mathml(self) -> str:
        return f"<mrow><mo>{self.left}</mo>{self.inner.mathml()}<mo>{self.right}</mo></mrow>"


@dataclass(frozen=True)
class Fraction(Math):
    """One part over another."""

    above: Math
    below: Math

    def latex(self) -> str:
        return f"\\frac{{{self.above.latex()}}}{{{self.below.latex()}}}"

    def mathml(self) -> str:
        return f"<mfrac>{_closed(self.above)} {_closed(self.below, before='/ ')}</mfrac>"


def _closed(part: Math, before: str = "") -> str:
    """A part of which a text does not see where it ends, in brackets there."""
    is_one = isinstance(part, (Name, Word, Fenced, Root)) or (isinstance(part, Script) and before != "^")
    left, right = ("", "") if is_one else ("(", ")")
    opening, closing = (_unset(text) if text else "" for text in (before + left, right))
    return f"<mrow>{opening}{part.mathml()}{closing}</mrow>"


@dataclass(frozen=True)
class Root(Math):
    """A square root."""

    inner: Math

    def latex(self) -> str:
        return f"\\sqrt{{{self.inner.latex()}}}"

    def mathml(self) -> str:
        return f"<msqrt>{_unset('√(')}{self.inner.mathml()}{_unset(')')}</msqrt>"


@dataclass(frozen=True)
class Script(Math):
    """A base with a subscript, a superscript, or both."""

    base: Math
    below: Math | None = None
    above: Math | None = None

    def latex(self) -> str:
        sub = f"_{{{self.below.latex()}}}" if self.below is not None else ""
        sup = f"^{{{self.above.latex()}}}" if self.above is not None else ""
        base = self.base.latex()
        return ("{" + base + "}" if sub and "_{" in base else base) + sub + sup

    def mathml(self) -> str:
        below = f"<mrow>{_unset('[')}{self.below.mathml()}{_unset(']')}</mrow>" if self.below is not None else ""
        above = _closed(self.above, before="^") if self.above is not None else ""
        tag = "msubsup" if below and above else "msub" if below else "msup"
        return f"<{tag}>{self.base.mathml()}{below}{above}</{tag}>"


@dataclass(frozen=True)
class Big(Math):
    """A large operator with what it ranges over, and its operand."""

    sign: str
    below: tuple[Math, ...]
    above: Math | None
    operand: Math

    def latex(self) -> str:
        known = LATEX.get(self.sign) or f"\\operatorname*{{{self.sign.translate(_ESCAPED)}}}"
        lines = [line.latex() for line in self.below]
        stacked = " \\\\ ".join(lines)
        below = stacked if len(lines) == 1 else f"\\substack{{{stacked}}}"
        above = f"^{{{self.above.latex()}}}" if self.above is not None else ""
        return f"{known}_{{{below}}}{above} {self.operand.latex()}"

    def mathml(self) -> str:
        sign = html.escape(self.sign)
        big = self.sign in LATEX
        head = f'<mo largeop="true" movablelimits="false">{sign}</mo>' if big else f"<mi>{sign}</mi>"
        rows = [line.mathml() for line in self.below]
        below = rows[0]
        if len(rows) > 1:
            rows[:-1] = [f"<mrow>{row}{_unset(', ')}</mrow>" for row in rows[:-1]]
            below = f"<mtable>{''.join(f'<mtr><mtd>{row}</mtd></mtr>' for row in rows)}</mtable>"
        end = _unset("]")
        if self.above is None:
            limits = f"<munder>{head}<mrow>{_unset('[')}{below}{end}</mrow></munder>"
        else:
            above = f"<mrow>{_unset(' .. ')}{self.above.mathml()}{end}</mrow>"
            limits = f"<munderover>{head}<mrow>{_unset('[')}{below}</mrow>{above}</munderover>"
        return f'<mrow>{limits} <mspace width="0.17em"/>{self.operand.mathml()}</mrow>'


@dataclass(frozen=True)
class Cases(Math):
    """Values and the conditions under which each is taken."""

    rows: tuple[tuple[Math, Math], ...]

    def latex(self) -> str:
        rows = r" \\ ".join(f"{value.latex()} & {condition.latex()}" for value, condition in self.rows)
        return f"\\begin{{cases}} {rows} \\end{{cases}}"

    def mathml(self) -> str:
        ends = [*[_unset("; ")] * (len(self.rows) - 1), _unset(" }")]
        rows = "".join(
            f'<mtr><mtd class="te-l">{v.mathml()}</mtd> '
            f'<mtd class="te-l te-gap"><mrow>{c.mathml()}{end}</mrow></mtd></mtr>'
            for (v, c), end in zip(self.rows, ends, strict=True)
        )
        return f'<mrow><mo stretchy="true">{{</mo> <mtable>{rows}</mtable></mrow>'


@dataclass(frozen=True)
class Line:
    """A definition: left side, sign, right side, and a remark such as the ranges."""

    left: Math
    right: Math
    remark: Math | None = None
    sign: str = "="


@dataclass(frozen=True)
class Table(Math):
    """Lines, aligned at their signs."""

    lines: Sequence[Line]

    def latex(self) -> str:
        lines = []
        for x in self.lines:
            sign = LATEX.get(x.sign, x.sign) if len(x.sign) <= 1 else f"\\mathrel{{{_text(x.sign)}}}"
            remark = f" && {x.remark.latex()}" if x.remark is not None else ""
            lines.append(f"{x.left.latex()} &{sign} {x.right.latex()}{remark}")
        return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"

    def mathml(self) -> str:
        rows = "\n".join(
            f'<mtr><mtd class="te-r">{x.left.mathml()}</mtd> <mtd><mo>{x.sign}</mo></mtd> '
            f'<mtd class="te-l">{x.right.mathml()}</mtd>   '
            f'<mtd class="te-l te-remark">{x.remark.mathml() if x.remark is not None else ""}</mtd></mtr>'
            for x in self.lines
        )
        return f'<math displaystyle="true"><mtable displaystyle="true">{rows}</mtable></math>'
