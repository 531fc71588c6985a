"""What dark mode does to a plot: lines, bars and text are turned around, photographs are dimmed."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

BRIGHT = 0.85  # mean brightness from which a plot is lines and text on a card
FLAT = 0.9  # share of pixels of two colors, the card's and a bar's, from which it has nothing but areas


def is_drawn(plot: Image) -> bool:
    """Whether a plot is lines, areas and text on a card, not a photograph."""
    from PIL import ImageStat  # matplotlib made the plot, and needs it

    counts = sorted((count for count, _ in plot.convert("RGB").getcolors(plot.width * plot.height)), reverse=True)
    brightness = ImageStat.Stat(plot.convert("L")).mean[0] / 255
    return bool(brightness >= BRIGHT or sum(counts[:2]) >= FLAT * plot.width * plot.height)
