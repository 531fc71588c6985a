"""What fits a phone: where names in tables may go on in another line, and how wide plots are shown."""

from __future__ import annotations

import re

FIRST, LAST = 3, 2  # letters that stay with what is beside them, such as `te.` and `)`
WIDE, BROAD = 640, 800  # pixels from which the labels of a plot are too small on a phone, so that it scrolls there


def words(text: str, marks: str) -> list[str]:
    """The parts of a name between which a line may end, each with the marks behind it."""
    parts = re.findall(f"[{marks}]*[^{marks}]+[{marks}]*|[{marks}]+", text)
    if len(parts) > 1 and len(parts[0]) <= FIRST:
        parts[:2] = ["".join(parts[:2])]
    if len(parts) > 1 and len(parts[-1]) <= LAST:
        parts[-2:] = ["".join(parts[-2:])]
    return parts


def class_of_plot(pixels: int) -> list[str]:
    """The class of a plot that scrolls on a phone; none for one whose labels are legible on all of it."""
    return ["broad"] if pixels >= BROAD else ["wide"] if pixels >= WIDE else []
