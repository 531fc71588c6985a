"""The reference: a page per area that lists every public name; Sphinx takes signatures and docstrings from the code.

Docstrings here are prose with code in single backticks; `as_rst` makes them what Sphinx reads.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import tedsl as te
from docs.building import examples, introductions, results
from schedules.stage_view import StageView

# Page -> its title, and the modules whose public names stand on it.
AREAS = {
    "language": ("Language", tuple(
        f"tedsl.lang.{name}" for name in ("compute", "constants", "axes", "reducers", "scan", "scatter", "assume")
    )),
    "tensors": ("Tensors and expressions", ("tedsl.lang.tensor", "tedsl.lang.expr")),
    "functions": ("Functions of scalars and tensors", ("tedsl.lang.functions", "tedsl.lang.elementary")),
    "arrays": ("Whole tensors", tuple(
        f"tedsl.lang.{name}" for name in ("arrays", "sorting", "quantiles", "rearranging", "summaries")
    )),
    "derivatives": ("Derivatives", ("autodiff", "tedsl.ops.transforms.checking")),
    "scheduling": ("Schedules", ("tedsl.backend.build.Schedule", "tedsl.backend.tune")),
    "running": ("Building and running", (
        "tedsl.backend", "tedsl.reference", "tedsl.blocks", "tedsl.analysis.arrays", "tedsl.analysis.checked",
    )),
    "cost": ("Cost", ("tedsl.analysis",)),
    "mutation": ("Mutation", ("tedsl.mutation",)),
    "operators": ("Operators and transformations", ("tedsl.ops", "tedsl.bridges")),
    "errors": ("Errors", ("tedsl.lang.errors",)),
}  # fmt: skip
PACKAGES = {
    "ops": "Operator catalog: te.ops", "ops.optim": "Training: te.ops.optim", "random": "Random numbers: te.random",
    "testing": "Testing: te.testing", "dask": "Arrays larger than memory: te.dask",
    "display": "Display: te.display", "display.plot": "Plots: te.display.plot",
}  # fmt: skip
CLASSES: dict[type, str] = {  # whose methods are listed under them -> as people write them
    te.Schedule: "te.Schedule", te.Tensor: "te.Tensor", te.Tuned: "te.Tuned",
    **{getattr(te.ops.optim, n): f"te.ops.optim.{n}" for n in (
        "SGD", "Adam", "State", "FunctionStep", "TrainStep",
    )},
    te.testing.CheckReport: "te.testing.CheckReport",
    **{getattr(te.display, n): f"te.display.{n}" for n in ("WatchedLoop", "WatchedTuning")},
}  # fmt: skip
RETURNED = (  # by functions: how they are made tells readers nothing
    te.Axis, te.Tensor, te.Tuned, StageView, te.ops.optim.FunctionStep,
    *(getattr(te.display, n) for n in ("ScheduleTrace", "Shown", "Slider", "WatchedLoop", "WatchedTuning")),
)  # fmt: skip
# Packages that are imported by their own names: page -> its title, and the functions.
OTHERS = {
    "autodiff": ("The algebra behind gradients: autodiff", ("autodiff.invert", "autodiff.vjp")),
    "strategies": ("Random programs: autodiff.strategies", tuple(f"autodiff.strategies.{name}" for name in (
        "programs", "tensors", "index_maps", "patterns", "values_for", "Program",
    ))),
}  # fmt: skip

# In docstrings, beside what stands in backticks: names of other libraries, calls of them, and arguments by name.
CODE = r"\b(?:torch|numpy|np|scipy|jax|skimage|cv2|te)(?:\.\w+)+(?:\((?:[^()]|\([^()]*\))*\))?|" \
       r"\b\w+=(?:\"[^\"]*\"|True|False|None)(?!\w)"  # fmt: skip


class Broken(Exception):
    """Something that a reader would stumble over."""


def areas() -> dict[str, list[str]]:
    """Area -> the names on its page; Broken if a public name is in none."""
    homes, found = dict(te._HOME), {}
    for area, (_, modules) in AREAS.items():
        found[area] = [n for n in sorted(homes) if any(f"{homes[n]}.{n}".startswith(m) for m in modules)]
        for name in found[area]:
            del homes[name]
    if homes:
        raise Broken(f"public names in no area of the reference: {', '.join(sorted(homes))}")
    return found


def members(package: str) -> list[str]:
    """The public functions and classes of `te.ops` and the like."""
    module = functools.reduce(getattr, package.split("."), te)
    return [name for name in sorted(module.__all__) if _is_told(getattr(module, name))]


def _is_told(value: Any) -> bool:
    return inspect.isfunction(value) or inspect.isclass(value) or hasattr(value, "__wrapped__")


def is_made_elsewhere(value: Any) -> bool:
    """Whether it is a class that readers meet and do not call: a protocol, say, or one with fields of its own use."""
    if not inspect.isclass(value):
        return False
    if value in RETURNED:
        return True
    return getattr(value, "_is_protocol", False) or any(name.startswith("_") for name in _fields(value))


def _fields(value: type) -> Iterable[str]:
    return getattr(value, "__dataclass_fields__", {})


def methods(owner: type) -> list[str]:
    """Public methods and properties of a class of ours, without functions that it has as methods, too."""
    return [
        n
        for n, v in vars(owner).items()
        if not n.startswith("_")
        and (inspect.isfunction(v) or isinstance(v, property | classmethod))
        and not _is_function(owner, n, v)
    ]


def _is_function(owner: type, name: str, value: Any) -> bool:
    """Whether a method is `te.name`, which has an entry of its own."""
    return name in te.__all__ and not getattr(value, "__qualname__", owner.__name__).startswith(owner.__name__)


def named() -> Iterator[str]:
    """Everything that the reference tells of, as people write it: te.compute, te.ops.conv2d, Schedule.auto, split."""
    for names in areas().values():
        yield from (f"te.{name}" for name in names)
    for package in PACKAGES:
        yield from (f"te.{package}.{name}" for name in members(package))
    for owner, written in CLASSES.items():
        yield from (f"{written}.{name}" for name in methods(owner))
    yield from (f"StageView.{name}" for name in methods(StageView))
    for _, others in OTHERS.values():
        yield from others
    for given in results.CLASSES:
        yield given.__name__
        yield from (f"{given.__name__}.{name}" for name in results.methods(given))


def key_of(name: str) -> str:
    """What people call a thing whose full name is `name`: te.compute, Kernel.source, split."""
    owner, _, member = name.rpartition(".")
    if name in results.SHORT:
        return results.SHORT[name]
    if owner in results.SHORT:
        return f"{results.SHORT[owner]}.{member}"
    return name.replace("tedsl.", "te.", 1).replace("schedules.stage_view.", "")


def write(folder: Path) -> None:
    """The pages, as sources for Sphinx; a page that says what it said is left alone."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {"index": _index()}
    pages |= {page: _page(page, title, names) for page, (title, names) in OTHERS.items()}
    pages |= {page: _page_of_results(*told) for page, told in results.PAGES.items()}
    for area, names in areas().items():
        title, _ = AREAS[area]
        pages[area] = _page(area, title, (f"tedsl.{name}" for name in names))
    pages["scheduling"] += _stage()
    for package, title in PACKAGES.items():
        inside = (f"tedsl.{package}.{n}" for n in members(package))
        pages[package.replace(".", "_")] = _page(package, title, inside)
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _index() -> str:
    """The pages, each with links to the names that stand on it."""
    listed = {page: (title, [f"tedsl.{n}" for n in areas()[page]]) for page, (title, _) in AREAS.items()}
    listed["scheduling"][1].extend(f"{_full_name(StageView)}.{n}" for n in methods(StageView))
    listed |= {page: (title, [_full_name(c) for c in classes]) for page, (title, _, classes) in results.PAGES.items()}
    listed |= {p.replace(".", "_"): (t, [f"tedsl.{p}.{n}" for n in members(p)]) for p, t in PACKAGES.items()}
    listed |= {page: (title, list(names)) for page, (title, names) in OTHERS.items()}
    told = [f"- :doc:`{title} <{page}>`: {', '.join(map(_link, names))}" for page, (title, names) in listed.items()]
    tree = [".. toctree::", "   :hidden:", "   :maxdepth: 1", "", *(f"   {page}" for page in listed), ""]
    first = "Every public name, under ``import tedsl as te``, with an example. The :ref:`genindex` has methods, too."
    return "\n".join([*_title("Reference"), first, "", *told, "", *tree])


def _full_name(value: type) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _link(name: str) -> str:
    return f":py:obj:`{name.rpartition('.')[2]} <{name}>`"


def _title(text: str) -> list[str]:
    return [text, "=" * len(text), ""]


def _page(page: str, title: str, names: Iterable[str]) -> str:
    names = list(names)
    lines = [*_title(title), introductions.FIRST[page], "", *(_catalog() if page == "ops" else ())]
    lines += _scenes({told for name in names for told in (key_of(name), *_members_of(name))})
    return "\n".join([*lines, *(line for name in names for line in _entry(name))])


def _catalog() -> list[str]:
    """The operators by what they are for, each a link."""
    groups = introductions.groups().items()
    return [*(f"- {told}: {', '.join(_link(f'tedsl.ops.{name}') for name in names)}" for told, names in groups), ""]


def _page_of_results(title: str, text: str, classes: Iterable[type]) -> str:
    lines = [*_title(title), text, ""]
    lines += _scenes({key for c in classes for key in (c.__name__, *(f"{c.__name__}.{m}" for m in results.methods(c)))})
    for owner in classes:
        lines += [f".. autoclass:: {_full_name(owner)}"]
        lines += [f"   :members: {', '.join(results.methods(owner))}"] if results.methods(owner) else []
        lines.append("")
    return "\n".join(lines)


def _members_of(name: str) -> list[str]:
    value = _value(name)
    return [f"{key_of(name)}.{m}" for m in methods(value)] if value in CLASSES else []


def _value(name: str) -> Any:
    package, *rest = name.split(".")
    return functools.reduce(getattr, rest, importlib.import_module(package))


def _scenes(names: Collection[str]) -> list[str]:
    """What the examples of a page begin with."""
    found = sorted(examples.scenes(names), key=lambda scene: -len(scene[1]))
    lines = []
    for k, (code, own) in enumerate(found):
        told = ", ".join(f"``{name.removeprefix('te.')}``" for name in dict.fromkeys(own))
        of = f"Those of {told}" if k else "The examples on this page"
        lines += [f"{of} begin with:", "", ".. code-block:: python", "", *_indented(code), ""]
    return lines


def _indented(text: str) -> list[str]:
    return ["   " + line for line in text.splitlines()]


def _entry(name: str) -> list[str]:
    value = _value(name)
    kind = "function"
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, Exception) else "class"
    lines = [f".. auto{kind}:: {name}"]
    if value in CLASSES or getattr(value, "_is_protocol", False):
        lines.append(f"   :members: {', '.join(methods(value))}")
    return [*lines, ""]


def _stage() -> str:
    title = "Directives: s[tensor]"
    lines = [title, "-" * len(title), "", ".. autoclass:: schedules.stage_view.StageView"]
    return "\n".join(["", *lines, f"   :members: {', '.join(methods(StageView))}", ""])


def as_rst(docstring: list[str]) -> list[str]:
    """Lines of a docstring as reStructuredText: code in backticks is that, a star is a star, terms are terms."""
    lines = []
    for part in "\n".join(docstring).strip("\n").split("\n\n"):
        if re.search(r"\S {2,}-> {2,}\S", part):  # loops before a directive and after it
            lines += _rewrite(" ".join(part.split("\n")))
            continue
        if part.lstrip().startswith(">>>"):  # the example that follows says it
            continue
        if told := _terms(part):
            lines += [line for term, text in told for line in (f"``{term}``", *_indented(_prose(text)), "")]
            continue
        laid_out = re.search(r"^(?: {2,}\S|[\w`, =.*()]+ {3,}\S)", part, re.MULTILINE)
        lines += ["::", "", *("   " + line for line in part.splitlines())] if laid_out else _prose(part).splitlines()
        lines.append("")
    return lines


def _rewrite(text: str) -> list[str]:
    """Loops before a directive and after it, as code; a remark behind them is a sentence."""
    before, after = re.split(r"\s{2,}->\s{2,}", text, maxsplit=1)
    found = re.fullmatch(r"(.*); ([\w`,' ]{12,})", after)
    loops, remark = (found[1], found[2]) if found else (after, "")
    loops = loops.replace("`", "")
    code = [".. code-block:: text", "   :class: rewrite", "", f"   {before}", f"   -> {loops}", ""]
    return [*code, f"{_prose(remark[:1].upper() + remark[1:])}.", ""] if remark else code


def _terms(part: str) -> list[tuple[str, str]]:
    """What a column of words and one of explanations say: each word with its text; nothing where it is not these."""
    found: list[tuple[str, str]] = []
    for line in part.splitlines():
        if match := re.fullmatch(r"(\w[\w, ]*?) {2,}([\w\"].*)", line):
            found.append((match[1], match[2]))
        elif found and line.startswith("    "):
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
        else:
            return []
    return found


def _prose(text: str) -> str:
    """Words as they are; code as that, and an operator that is named as a link to it."""
    parts = re.split(rf"(`[^`]+`|{CODE}|{_operators()})", text)
    told = []
    for k, part in enumerate(parts):
        if k % 2 == 0:
            told.append(re.sub(r"([*_|\\])", r"\\\1", part))
            continue
        code = _link(f"tedsl.ops.{part}") if re.fullmatch(_operators(), part) else f"``{part.strip('`')}``"
        begins = r"\ " if re.search(r"[^\s'\"(\[{<\-/:]$", parts[k - 1]) else ""
        ends = r"\ " if re.match(r"[^\s'\")\]}>\-/\\:.,;!?]", parts[k + 1]) else ""
        told.append(f"{begins}{code}{ends}")
    return "".join(told)


@functools.cache
def _operators() -> str:
    """A pattern for the names of operators that are no English words."""
    return rf"(?<![\w.=])(?:{'|'.join(name for name in members('ops') if '_' in name)})(?![\w=])"


def documented(name: str, value: Any) -> str:
    """The docstring; Broken if there is none."""
    text = inspect.getdoc(value)
    if not text or (inspect.isclass(value) and value.__doc__ is None):
        raise Broken(f"{name} has no docstring")
    return text


def as_before(name: str) -> list[str]:
    """What an entry says whose example stands below another one on its page, whose full name is `name`."""
    return [f"The example of {_link(name)} shows it.", ""]


def example_as_rst(code: str, printed: str, page: str = "") -> list[str]:
    """An example, what it prints, and the HTML that a notebook shows."""
    lines = [".. code-block:: python", "", *_indented(code), ""]
    if printed:
        kind = "output" if "\n" in printed.strip() else "output one-line"
        lines += [".. code-block:: text", f"   :class: {kind}", "", *_indented(printed), ""]
    if page:
        lines += [".. raw:: html", "", *_indented(f'<div class="output text_html">{page}</div>'), ""]
    return lines
