"""A loop nest as an indented tree: names, extents and marks in color, guides that show what is inside what.

It is made from the text of the nest, the library's or Halide's, so that the two can never differ.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tedsl.backend.halide_text.forms import LOOP, LOOP_KINDS, PART
from tedsl.display.markup import badge, escape

__all__ = ["nest_tree"]

INDENT = 2
INDENTED = " style='padding-left:1em'"  # inline: what is left where a notebook that is not trusted loses its style
MARK = {
    "parallel": "amber", "vectorized": "violet", "unrolled": "teal", "gpu block": "green", "gpu thread": "green",
    "gpu_block": "green", "gpu_thread": "green",
}  # fmt: skip
OURS = re.compile(rf"for (?P<name>\S+) < (?P<extent>.+?)(?:, (?P<mark>{LOOP_KINDS}))?:$")
STATEMENT = re.compile(r"(?P<head>[\w.]+(?:\[.*?\]|\(\.\.\.\))?(?:, [\w.]+\[.*?\])*) (?P<sign>[-+*|&]?=) (?P<rest>.*)$")


def nest_tree(text: str) -> str:
    """The tree of an indented text."""
    made: list[str] = []
    depth = 0
    for line in text.splitlines():
        body = line.lstrip(" ")
        level = (len(line) - len(body)) // INDENT
        made += [f"<div{INDENTED}>"] * (level - depth) + ["</div>"] * (depth - level)
        depth = level
        indent = f'<span class="te-unset">{"&#160;" * INDENT * level}</span>' if level else ""
        made.append(f"{indent}<span>{_line(body)}</span><br>")
    return f'<div class="te-nest"><div>{"".join(made)}{"</div>" * depth}</div></div>'.replace("<br></div>", "</div>")


def _line(text: str) -> str:
    for pattern, rule in _RULES:
        found = pattern.match(text)
        if found is not None:
            return rule(found)
    return f'<span class="te-mute">{escape(text)}</span>'


def _our_loop(found: re.Match[str]) -> str:
    mark = found["mark"]
    return _loop(found["name"], f" &lt; <b>{escape(found['extent'])}</b>", mark)


def _halides_loop(found: re.Match[str]) -> str:
    mark = "" if found["mark"] == "for" else found["mark"]
    if found["high"] is None:
        return _loop(found["name"], "", mark)
    low, high = found["low"], found["high"]
    if low.isdigit() and high.isdigit():
        extent = f" &lt; <b>{int(high) + 1}</b>"
        return _loop(found["name"], extent if low == "0" else f" from {low}{extent}", mark)
    return _loop(found["name"], f" in [{escape(low)}, {escape(high)}]", mark)


def _loop(name: str, extent: str, mark: str | None) -> str:
    tail = " " + badge(mark.replace("_", " "), MARK[mark]) if mark else ""
    return f'<span class="te-mute">for</span> <span class="te-blue">{escape(name)}</span>{extent}{tail}'


def _part(found: re.Match[str]) -> str:
    return f'<span class="te-mute">{found["verb"]}</span> <b class="te-teal">{escape(found["name"])}</b>'


def _statement(found: re.Match[str]) -> str:
    return (
        f'<b>{escape(found["head"])}</b> <span class="te-mute">{escape(found["sign"])}</span> {escape(found["rest"])}'
    )


_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (OURS, _our_loop), (LOOP, _halides_loop), (PART, _part), (STATEMENT, _statement),
)  # fmt: skip
