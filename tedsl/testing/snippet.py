"""A failing case as a program that can be pasted and run."""

from __future__ import annotations

from tedsl.testing.arguments import SampledCall
from tedsl.testing.sources import Listing, array_text
from tedsl.testing.traced import Rules

__all__ = ["snippet"]


def snippet(rules: Rules, case: SampledCall, check: str) -> str:
    """Imports, the functions that cannot be imported, arrays, and the call of `check_case` that fails."""
    listing = Listing(case.arrays)
    arguments = [listing.tell(rules.op, "op"), f"{{{', '.join(f'{name!r}: {name}' for name in case.arrays)}}}"]
    if case.static:
        arguments.append(f"static={listing.tell(dict(case.static), 'static')}")
    given = {"vjp": rules.vjp, "jvp": rules.jvp}
    arguments += [f"{key}={listing.tell(rule, key)}" for key, rule in given.items() if rule is not None]
    arguments += [f"dtype={case.dtype!r}", f"seed={case.seed}", f"checks=({check!r},)"]
    lines = [*listing.lines(), ""]
    lines += [f"{name} = {array_text(value)}" for name, value in case.arrays.items()]
    lines.append(f"te.testing.check_case({', '.join(arguments)})")
    return "\n".join(lines)
