"""A schedule as Python that makes it again: what a person would write, one directive after another.

Every directive is a call of the method that gives it, with every name that it makes spelled out; run, the text gives
equal directives. Calls that return their stage are chained.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from keyword import iskeyword
from textwrap import wrap

from schedules.directives import Auto, Directive, Fuse, Rewrite, Specialize, Split
from schedules.plan import Step, call_of, receiver_of
from schedules.written.text import CHANGED
from tedsl.lang.tensor import Tensor

__all__ = ["schedule_code"]

WIDTH = 96  # letters of a line, as of code on pages


def schedule_code(outputs: Sequence[Tensor], steps: Iterable[Step], name: str, regrouped: Iterable[str] = ()) -> str:
    """The text; the outputs are the variables of their names, or `outputs` where those are no variables' names.

    `regrouped`: stages whose terms are combined in another order, which a comment says.
    """
    lines = ["import tedsl as te", "", f"{name} = te.Schedule({_outputs(outputs)})"]
    lines += [f"# {stage}: {CHANGED}" for stage in regrouped]
    receiver = ""  # of the calls that the next one may be chained to
    for step in steps:
        directive = step.directive
        if isinstance(directive, Auto):
            lines.append(f"{name}.{_auto(directive)}")
            receiver = ""
            continue
        mine, call = f"{name}{receiver_of(directive)}", call_of(directive)
        if mine == receiver and len(lines[-1]) + len(call) < WIDTH:
            lines[-1] += f".{call}"
        else:
            lines.append(f"{mine}.{call}")
        receiver = mine if _returns_its_stage(directive) else ""
    return "\n".join(lines) + "\n"


def _returns_its_stage(directive: Directive) -> bool:
    return not isinstance(directive, (Split, Fuse, Rewrite, Specialize))


def _outputs(outputs: Sequence[Tensor]) -> str:
    counted = Counter(t.name for t in outputs)
    if any(not t.name.isidentifier() or iskeyword(t.name) or counted[t.name] > 1 for t in outputs):
        return "outputs"
    names = ", ".join(t.name for t in outputs)
    return names if len(outputs) == 1 else f"[{names}]"


def _auto(directive: Auto) -> str:
    """The call for an autoscheduler, or for the stages that the default schedule makes for a machine."""
    if directive.scheduler != "default":
        return f"auto({directive.scheduler!r})"
    figures = [f"{key}={value!r}" for key, value in directive.machine]
    loops = "" if directive.loops else "loops=False, "
    lines = wrap(", ".join(figures), WIDTH - 8, break_long_words=False, break_on_hyphens=False)
    inside = "\n".join(f"    {line}" for line in lines)
    return f"auto({loops}machine=dict(\n{inside}\n))"
