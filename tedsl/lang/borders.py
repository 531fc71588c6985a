"""What lies beyond a border: one name for each meaning, and the words that other libraries have for it.

A word is accepted where every library that has it means the same. So "mirror" is not: what it repeats differs from
library to library. "symmetric" is one of te.pad's alone, which is NumPy's.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from tedsl.lang.errors import user_location

__all__ = ["BORDERS", "SYNONYMS", "border_of"]

SYNONYMS: dict[str, tuple[str, ...]] = {
    "zero": ("zeros", "constant"),
    "clamp": ("edge", "replicate"),
    "reflect": (),
    "wrap": ("circular", "periodic"),
}
BORDERS = tuple(SYNONYMS)

_CANONICAL = {word: name for name, words in SYNONYMS.items() for word in (name, *words)}
# Words of other libraries with a meaning that is not ours in each of them: what to think of.
_NEAR = {"mirror": "reflect", "nearest": "clamp", "border": "clamp", "repeat": "wrap"}
_SYMMETRIC = (
    "; 'reflect' has the last element once, 'symmetric' twice: te.pad(x, width, mode='symmetric') has it, or mirror "
    "the index by k = te.maximum(i, -1 - i), and read x[te.minimum(k, 2 * n - 1 - k)]"
)
_SEVERAL = "; one word holds for all axes here, x.at(i, j, mode=('reflect', 'wrap')) takes one for each index"


def border_of(word: object, what: str, name: str = "mode", allowed: Sequence[str] = BORDERS) -> str:
    """The border that `word` stands for: one of `allowed`, or a synonym of one."""
    if isinstance(word, str):
        found = word if word in allowed else _CANONICAL.get(word, "")
        if found in allowed:
            return found
    told = f"; did you mean {near!r}?" if (near := _nearest(word, allowed)) else ""
    if isinstance(word, (tuple, list)):
        told = _SEVERAL
    elif isinstance(word, str) and word == "symmetric" and "reflect" in allowed:
        told = _SYMMETRIC
    others = {a: [w for w in SYNONYMS.get(a, ()) if w not in allowed] for a in allowed}
    listed = ", ".join(f"{a} ({', '.join(words)})" if words else a for a, words in others.items())
    raise ValueError(f"{what} at {user_location()}: {name} must be one of {listed}; found {word!r:.40}{told}")


def _nearest(word: object, allowed: Sequence[str]) -> str | None:
    """The border whose name, or one of whose synonyms, is nearly `word`."""
    if not isinstance(word, str):
        return None
    near = _NEAR.get(word.lower(), "")
    words = {w: c for w, c in {**_CANONICAL, **{a: a for a in allowed}}.items() if c in allowed}
    close = get_close_matches(word.lower(), words, 1, 0.7)
    return near if near in allowed else words[close[0]] if close else None
