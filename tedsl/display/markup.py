"""The pieces of every page: escaped text, tables, badges, and one style that reads well on light and on dark.

A page carries its style, loads nothing and runs nothing. Colors are named by what they mean; those of dark mode follow
the notebook's theme where it tells, else the reader's system.
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

__all__ = [
    "MOST_BYTES",
    "badge",
    "code",
    "count",
    "details",
    "escape",
    "fits",
    "page",
    "section",
    "size",
    "svg",
    "table",
]

# Beyond this a page is cut, with a note: notebooks are kept in files.
MOST_BYTES = 100_000
MOST_ROWS = 60
LEGIBLE = 0.75  # a picture wider than the page shrinks to this, and scrolls beyond


@functools.cache
def style(name: str = "style.css") -> str:
    """A style sheet, without what only its writers need."""
    text = resources.files("tedsl.display").joinpath(name).read_text("utf-8")
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"\s*([{};,])\s*", r"\1", re.sub(r"\s+", " ", text)).strip()


def escape(text: object) -> str:
    """Text that HTML takes as text."""
    return html.escape(str(text))


def page(parts: Iterable[str], text: str) -> str:
    """A complete piece of HTML: parts that no longer fit are left out, which the last line then says.

    Sites that show notebooks take styles, formulas and pictures out of outputs, and what is left of a page says
    nothing. So a page without its style is hidden, and `text` is shown, which the style hides.
    """
    made = [_opening(text)]
    room = _room(text)
    left_out = 0
    for part in parts:
        room -= len(part.encode())
        if room < 0:
            left_out += 1
        else:
            made.append(part)
    if left_out:
        made.append(f'<p class="te-mute">{left_out} more parts do not fit here; print() shows them all</p>')
    return "".join([*made, "</div></div>"])


def fits(part: str, text: str) -> bool:
    """Whether a page of one part would be shown."""
    return len(part.encode()) <= _room(text)


def _room(text: str) -> int:
    return MOST_BYTES - len(_opening(text).encode()) - 200


def _opening(text: str) -> str:
    lines = text.split("\n")
    if left_out := len(lines[MOST_ROWS:]):
        lines[MOST_ROWS:] = [f"... and {left_out} more lines: run the cell to see them"]
    text = escape("\n".join(lines))
    plain = f'<pre class="te-text"><code>{text}</code></pre>'
    return f'<div class="te"><style>{style()}</style>{plain}<div class="te-page" hidden style="display:none">'


def section(title: str, *marks: str) -> str:
    """The head of a page: a title, marked up by the caller, and what goes beside it."""
    return f'<div class="te-head">{" ".join([title, *marks])}</div>'


def svg(width: float, height: float, title: str, inside: str) -> str:
    """An SVG, which stands in something that scrolls; its words stay apart where a site takes the tags out."""
    inside = inside.replace("</text>", "</text> ").replace("</title>", "</title> ")
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="min-width:{LEGIBLE * width:.0f}px" role="img" aria-label="{escape(title)}">{inside}</svg>'
    )


def badge(text: object, color: str = "") -> str:
    return f'<span class="te-badge{f" te-{color}" if color else ""}">{escape(text)}</span>'


def code(text: object, color: str = "") -> str:
    return f"<code{f' class=te-{color}' if color else ''}>{escape(text)}</code>"


def details(summary: str, body: str, is_open: bool = False) -> str:
    """A part that the reader opens."""
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}</summary>{body}</details>"


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Iterable[int] = (),
    below: Mapping[int, str] | None = None,
) -> str:
    """A table of cells that are marked up already: `numbers` are columns of them, `below` has details of rows."""
    right = set(numbers)
    classes = [' class="te-num"' if k in right else "" for k in range(len(head))]
    made = ["<tr>" + "".join(f"<th{c}>{escape(h)}</th>" for h, c in zip(head, classes, strict=True)) + "</tr>"]
    for k, row in enumerate(rows[:MOST_ROWS]):
        cells = "".join(f"<td{c}>{cell}</td>" for cell, c in zip(row, classes, strict=True))
        detail = (below or {}).get(k, "")
        made.append(f"<tr{' class=te-upper' if detail else ''}>{cells}</tr>")
        if detail:
            made.append(f'<tr class="te-lower"><td colspan="{len(head)}"><div>{detail}</div></td></tr>')
    more = f'<p class="te-mute">and {len(rows) - MOST_ROWS} more rows</p>' if len(rows) > MOST_ROWS else ""
    wide = " class=te-full" if below else ""
    return f'<div class="te-wide"><table{wide}>{"".join(made)}</table></div>{more}'


def count(n: float) -> str:
    """12 345 as it is, more in millions: 1.23 M."""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(n) >= unit:
            return f"{n / unit:.3g}&#8239;{name}"
    return f"{n:,.0f}".replace(",", "&#8239;")


def size(n: float) -> str:
    """Bytes in the unit that fits."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(n) >= unit:
            return f"{n / unit:.3g}&#8239;{name}"
    return f"{n:.0f}&#8239;B"
