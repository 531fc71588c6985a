"""Links of every page, notebook and README lead somewhere, without a network: to files and headings that are there."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Sites that pages may name; the addresses below them are looked at by eye when they are written.
HOSTS = {"halide-lang.org", "docs.dask.org"}
SKIPPED = (".venv", "build", "docs/made", ".pytest_cache")
LINK = re.compile(r"(?<!!)\[[^\]\[]*\]\(([^()\s]+)\)|!\[[^\]]*\]\(([^()\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
MADE = "made/"  # what the site's build writes


def texts() -> list[Path]:
    """Markdown files, and the texts of notebooks."""
    found = [*ROOT.rglob("*.md"), *(ROOT / "notebooks").glob("[0-9]*.py")]
    return sorted(p for p in found if not str(p.relative_to(ROOT)).startswith(SKIPPED))


def prose(path: Path) -> str:
    """A file without its code; of a notebook the cells of Markdown."""
    text = path.read_text()
    if path.suffix == ".py":
        cells = re.findall(r"^# %% \[markdown\]\n(.*?)(?=^# %%|\Z)", text, re.MULTILINE | re.DOTALL)
        text = re.sub(r"^# ?", "", "\n".join(cells), flags=re.MULTILINE)
    return re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """The anchors of the headings, as code-hosting sites and MyST make them."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", re.sub(r"[`*]", "", head).lower()).replace(" ", "-") for head in heads}


def fault(path: Path, link: str) -> str | None:
    """What is wrong with a link of a file; None if nothing is."""
    parts = urlsplit(link)
    if parts.scheme:
        known = parts.scheme == "https" and parts.netloc in HOSTS and not re.search(r"[\s<>\\]", link)
        return None if known else "no https address of a known site"
    if parts.path.startswith(MADE):  # of the site alone: notebooks beside the pages, and the reference
        page = ROOT / "notebooks" / parts.path.removeprefix(f"{MADE}notebooks/")
        return None if page.exists() or parts.path.startswith(f"{MADE}reference/") else "no such notebook"
    target = path if not parts.path else (path.parent / parts.path).resolve()
    if not target.exists():
        return "no such file"
    if parts.fragment and target.suffix == ".md" and parts.fragment not in anchors(target):
        return f"no heading {parts.fragment}; there are {', '.join(sorted(anchors(target)))}"
    return None


@pytest.mark.parametrize("path", texts(), ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    links = [next(filter(None, found)) for found in LINK.findall(prose(path))]
    assert {link: told for link in links if (told := fault(path, link))} == {}


def test_what_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One heading, `code`\n\n```\n# none\n```\n[a](b.md) [c](#one-heading-code) [d](#none)\n")
    links = [next(filter(None, found)) for found in LINK.findall(prose(page))]
    assert [bool(fault(page, link)) for link in links] == [True, False, True]
    assert fault(page, "http://halide-lang.org")
    assert fault(page, "https://example.com/x")
