"""The pages of the documentation: `python docs/build.py [folder]` writes them, by default to `build/docs`.

Pages are Markdown; the reference is made of the signatures and docstrings of the public names. A link that leads
nowhere and a public name without a docstring are errors.
"""

from __future__ import annotations

import ast
import functools
import html
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import tedsl as te

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
# Page -> title in the list at the side; the order is that of reading. Further pages come after, under their headings.
READ_FIRST = {
    "coming": "Coming from elsewhere", "writing": "Write a program", "differentiating": "Differentiate",
    "scheduling": "Schedule",
    "operators": "Author an operator", "checking": "Check a gradient", "mutation": "Write into memory",
    "showing": "See what is there", "dask": "Arrays larger than memory", "gpu": "Run on a GPU",
    "limits": "Limits", "cost_table": "What adjoints cost",
    "ops_cost_table": "What operators cost",
}  # fmt: skip
# Heading of the reference -> the modules whose public names stand under it.
AREAS = {
    "Language": tuple(
        f"tedsl.lang.{name}" for name in ("compute", "constants", "axes", "reducers", "scan", "scatter", "assume")
    ),
    "Tensors and expressions": ("tedsl.lang.tensor", "tedsl.lang.expr"),
    "Functions of scalars and tensors": ("tedsl.lang.functions",),
    "Whole tensors": ("tedsl.lang.arrays", "tedsl.lang.sorting"),
    "Derivatives": ("autodiff",),
    "Run": ("tedsl.backend", "tedsl.reference", "tedsl.blocks"),
    "Schedules": ("schedules",),
    "Cost": ("tedsl.analysis",),
    "Mutation": ("tedsl.mutation",),
    "Operators": ("tedsl.ops", "tedsl.bridges"),
    "Errors": ("tedsl.lang.errors",),
}  # fmt: skip
PACKAGES = ("ops", "testing", "display", "display.plot")  # whose public names come after those of te itself
MEMBERS = ("Schedule", "Tensor")  # classes whose methods are listed


def _guide() -> dict[str, str]:
    found = {p.stem: p.read_text().partition("\n")[0].lstrip("# ") for p in sorted(HERE.glob("*.md"))}
    return {name: title for name, title in READ_FIRST.items() if name in found} | {
        name: title for name, title in found.items() if name not in READ_FIRST
    }


GUIDE = _guide()


class Broken(Exception):
    """Something that a reader would stumble over."""


def main(arguments: list[str]) -> int:
    folder = Path(arguments[0]) if arguments else ROOT / "build" / "docs"
    try:
        written = build(folder)
    except Broken as error:
        print(f"docs: {error}", file=sys.stderr)
        return 1
    print(f"{len(written)} pages in {folder}")
    return 0


def build(folder: Path) -> list[Path]:
    """Write every page; Broken if a link or a docstring leads nowhere."""
    sources = {"index": (ROOT / "README.md").read_text(), "reference": "\n".join(reference())}
    sources |= {name: (HERE / f"{name}.md").read_text() for name in GUIDE}
    pages = {name: page(name, _renderer().render(_linked(text))) for name, text in sources.items()}
    for name, text in pages.items():
        check_links(name, text, pages)
    folder.mkdir(parents=True, exist_ok=True)
    for picture in sorted((HERE / "pictures").glob("*")):
        (folder / "docs" / "pictures").mkdir(parents=True, exist_ok=True)
        (folder / "docs" / "pictures" / picture.name).write_bytes(picture.read_bytes())
    written = []
    for name, text in pages.items():
        written.append(folder / f"{name}.html")
        written[-1].write_text(text)
    return written


def _renderer() -> Any:
    from markdown_it import MarkdownIt

    def coloured(code: str, language: str, attributes: str) -> str:
        from pygments import highlight
        from pygments.formatters import HtmlFormatter
        from pygments.lexers import get_lexer_by_name

        lexer = get_lexer_by_name(language or "text")
        return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="k-")))

    return MarkdownIt("commonmark", {"highlight": coloured, "html": True}).enable("table")


def _linked(text: str) -> str:
    """Links between files of the repository as links between pages; files that are no pages become their names."""
    text = re.sub(r"\]\((?:docs/)?(\w+)\.md\)", lambda m: f"]({m[1]}.html)" if m[1] in GUIDE else m[0], text)
    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)?[\w./]+\.(?:md|py|json)|\w+/)\)", r"`\2`", text)


def check_links(name: str, text: str, pages: Mapping[str, str]) -> None:
    """Every link within the documentation leads to a page and to a place on it; every picture is there."""
    for target in re.findall(r'(?:href|src|srcset)="([^"]+)"', text):
        if re.match(r"https?:|mailto:", target):
            continue
        file, _, place = target.partition("#")
        if file.startswith("docs/"):
            if not (ROOT / file).is_file():
                raise Broken(f"{name}: the picture {file} does not exist")
            continue
        home = file.removesuffix(".html") or name
        if home not in pages:
            raise Broken(f"{name}: the link {target!r} leads to no page")
        if place and f'id="{place}"' not in pages[home]:
            raise Broken(f"{name}: the link {target!r} leads to no place on {home}")


def reference() -> Iterator[str]:
    """The reference, as Markdown."""
    homes = dict(te._HOME)
    yield "# Reference\n\nEvery public name, under `import tedsl as te`.\n"
    yield _links([*AREAS, *(f"te.{package}" for package in PACKAGES)]) + "\n"
    left = set(homes)
    for area, modules in AREAS.items():
        names = [n for n in sorted(homes) if n in left and any(homes[n].startswith(m) for m in modules)]
        left -= set(names)
        yield _heading(area)
        yield _links(f"te.{name}" for name in names) + "\n"
        for name in names:
            yield from entry(f"te.{name}", getattr(te, name), name in MEMBERS)
    if left:
        raise Broken(f"public names in no area of the reference: {', '.join(sorted(left))}")
    for package in PACKAGES:
        module = functools.reduce(getattr, package.split("."), te)
        found = {name: getattr(module, name) for name in sorted(module.__all__)}
        told = {name: v for name, v in found.items() if _is_told(v)}
        yield f"{_heading(f'te.{package}')}\n{documented(f'te.{package}', module)}\n"
        yield _links(f"te.{package}.{name}" for name in told) + "\n"
        for name, value in told.items():
            yield from entry(f"te.{package}.{name}", value, False)


def _is_told(value: Any) -> bool:
    return inspect.isfunction(value) or inspect.isclass(value) or hasattr(value, "__wrapped__")


def _heading(title: str) -> str:
    return f'<h2 id="{_place(title)}">{html.escape(title)}</h2>\n'


def _links(names: Iterable[str]) -> str:
    """Links to headings of the page, in a line."""
    return "".join(f'<a class="name" href="#{_place(name)}">{html.escape(name)}</a> ' for name in names)


def _place(title: str) -> str:
    return title.replace(" ", "-")


def entry(name: str, value: Any, members: bool) -> Iterator[str]:
    yield f'<h3 id="{name}"><code>{html.escape(name)}{html.escape(signature(value))}</code></h3>\n'
    yield f"{documented(name, value)}\n"
    if members:
        for key, member in inspect.getmembers(value, inspect.isfunction):
            if not key.startswith("_"):
                yield f"- **`.{key}{signature(member)}`** {documented(f'{name}.{key}', member, inline=True)}"
        yield ""


def signature(value: Any) -> str:
    if inspect.isclass(value) and issubclass(value, Exception):
        return ""
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", text)  # annotations are kept as strings
    text = re.sub(r": Any\b|: object\b| -> Any$", "", text).replace(" = ", "=")
    return re.sub(r"\b(?:tedsl|typing|collections\.abc|autodiff|schedules)(?:\.\w+)*\.(\w+)", r"\1", text)


def documented(name: str, value: Any, inline: bool = False) -> str:
    """The docstring: its first sentence as prose, the rest as it is laid out."""
    text = inspect.getdoc(value)
    if not text or (inspect.isclass(value) and value.__doc__ is None):
        raise Broken(f"{name} has no docstring")
    first, _, rest = text.partition("\n\n")
    prose = _prose(" ".join(first.split()))
    if inline or not rest:
        return prose
    laid_out = re.search(r"^(?: {2,}\S|[\w`, =]+ {2,}\S)", rest, re.MULTILINE)
    return f"{prose}\n\n" + (f"```text\n{rest}\n```" if laid_out else _prose(rest))


def _prose(text: str) -> str:
    """A docstring as Markdown: code in backticks is that, a star is a star."""
    parts = re.split(r"(`[^`]*`)", html.escape(text, quote=False))
    return "".join(p if p.startswith("`") else re.sub(r"([*_\[\]])", r"\\\1", p) for p in parts)


def page(name: str, body: str) -> str:
    """One page with the list of all at its side."""
    links = {"index": "tedsl", **GUIDE, "reference": "Reference"}
    side = "".join(
        f'<a href="{key}.html"{" class=here" if key == name else ""}>{html.escape(title)}</a>'
        for key, title in links.items()
    )
    title = "tedsl" if name == "index" else f"{links[name]} - tedsl"
    style = (HERE / "style.css").read_text()
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{style}</style></head>'
        f"<body><nav>{side}</nav><main>{body}</main></body></html>"
    )


def examples(text: str) -> list[ast.Module]:
    """The Python examples of a page, each with the lines that it has there."""
    found = []
    for match in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        tree = ast.parse(match[1])
        ast.increment_lineno(tree, text[: match.start(1)].count("\n"))
        found.append(tree)
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
