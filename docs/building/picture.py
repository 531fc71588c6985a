"""The picture of the README: what a notebook shows of the gradient of a strided convolution, on light and on dark.

`python docs/building/picture.py` writes it with a headless Chromium and Pillow, after a change of `tedsl.display`.
"""

from __future__ import annotations

import html
import re
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

import tedsl as te

FOLDER = Path(__file__).resolve().parents[1] / "pictures"
SIZE = "820,612"
GROUND = {"light": "#ffffff", "dark": "#0d1117"}
TEXT = "Description"  # the entry of a PNG that says what is on it


def shown() -> str:
    """The table of adjoints."""
    x = te.placeholder((64, 64), name="x")
    w = te.placeholder((3, 3), name="w")
    y = te.compute((31, 31), lambda i, j: te.sum(lambda p, q: x[2 * i + p, 2 * j + q] * w[p, q]), name="y")
    head = te.placeholder((31, 31), name="g")
    return te.display.html(te.differentiate([y], [x, w], head=[head]))


def text_of(page: str) -> str:
    """What a page says, without its style, what stands in its place, and what is folded, which names files."""
    unseen = r'<style>.*?</style>|<pre class="te-text">.*?</pre>|<details>.*?</details>|<[^>]*>'
    return " ".join(html.unescape(re.sub(unseen, " ", page, flags=re.DOTALL)).split())


def main() -> None:
    body = shown()
    FOLDER.mkdir(exist_ok=True)
    for theme, ground in GROUND.items():
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            page.write_text(
                f'<!doctype html><meta charset="utf-8"><body data-theme="{theme}" '
                f'style="background:{ground};margin:18px 24px">{body}'
            )
            flags = [
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
                "--force-device-scale-factor=2",
            ]
            target = FOLDER / f"gradient-{theme}.png"
            command = ["chromium", *flags, f"--window-size={SIZE}", f"--screenshot={target}", page.as_uri()]
            subprocess.run(command, check=True, capture_output=True)
            about = PngInfo()
            about.add_text(TEXT, text_of(body))  # a test compares it with what is shown now
            Image.open(target).convert("RGB").quantize(48).save(target, optimize=True, pnginfo=about)


if __name__ == "__main__":
    main()
