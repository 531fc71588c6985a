"""The project itself: the import law, the lazy face, the versions and what a wheel must carry."""

from __future__ import annotations

import ast
import importlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import tedsl

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("tedsl", "autodiff", "schedules")
HEAVY = {"halide", "llvmlite", "sympy", "hypothesis", "torch", "jax", "dask", "distributed", "matplotlib", "IPython"}


def run_python(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def modules_after(statement: str) -> set[str]:
    """Top-level modules that a fresh process has loaded after `statement`, beyond those it starts with."""
    code = (
        f"import sys, json; before = set(sys.modules)\n{statement}\nprint(json.dumps(list(set(sys.modules) - before)))"
    )
    return {name.partition(".")[0] for name in json.loads(run_python(code))}


def names_for_type_checkers() -> dict[str, str]:
    """Name -> module as the block under TYPE_CHECKING of the face has it; a star stands for the module's __all__."""
    tree = ast.parse((ROOT / "tedsl" / "__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    found: dict[str, str] = {}
    for node in block.body:
        if isinstance(node, ast.ImportFrom):
            module = str(node.module)
            for alias in node.names:
                names = importlib.import_module(module).__all__ if alias.name == "*" else [alias.asname]
                found |= dict.fromkeys(names, module)
    return found


def test_import_law() -> None:
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_import_law_sees_an_import_that_points_up(tmp_path: Path) -> None:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            empty = tmp_path / path.relative_to(ROOT)
            empty.parent.mkdir(parents=True, exist_ok=True)
            empty.touch()
    (tmp_path / "tedsl" / "lang" / "expr.py").write_text("import tedsl.backend\n")
    (tmp_path / "tedsl" / "backend" / "host" / "files.py").write_text("import tedsl.backend.calling.kernel\n")
    (tmp_path / "autodiff" / "__init__.py").write_text("import halide\n")
    (tmp_path / "tedsl" / "commands" / "info.py").write_text("import tedsl\n")  # an exception must have a use
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    code = (
        "import sys; sys.path.insert(0, '.'); from importlinter.cli import lint_imports; "
        "sys.exit(lint_imports(no_cache=True))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 1
    assert "tedsl.lang.expr -> tedsl.backend" in done.stdout
    assert "tedsl.backend.host.files -> tedsl.backend.calling.kernel" in done.stdout
    assert "autodiff -> halide" in done.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_importing_a_package_loads_nothing_heavy(package: str) -> None:
    assert modules_after(f"import {package}") & HEAVY == set()


def test_importing_the_face_loads_no_other_package() -> None:
    assert modules_after("import tedsl") & {"numpy", "autodiff", "schedules"} == set()


def test_writing_a_program_does_not_load_the_compiler() -> None:
    program = "import tedsl as te; x = te.placeholder((4,)); te.compute((4,), lambda i: te.exp(x[i]))"
    assert modules_after(program) & {"halide", "llvmlite", "hypothesis"} == set()


def test_gradients_do_not_load_sympy() -> None:
    """Its import takes longer than these gradients, whatever there is to solve."""
    program = "import tedsl as te; x = te.placeholder((4, 4)); y = {}; te.differentiate(te.tanh(y).sum(), [x])"
    assert "sympy" not in modules_after(program.format("(x @ x.T + x.sum(0)) * x[:, 0]"))
    window = "te.compute((4, 3), lambda i, j: x.at(i - 1, j, mode='clamp') * te.sum(lambda k: x[i, j + k]))"
    assert "sympy" not in modules_after(program.format(window))
    weighted = "te.compute((4, 4), lambda i, j: te.sum(lambda p, q: x[p, q] * x.at(i + p, j + q, mode='clamp')))"
    assert "sympy" not in modules_after(program.format(weighted))
    assert "sympy" not in modules_after(program.format("te.compute((3, 3), lambda i, j: x[i + j // 2, 2 * j % 3])"))
    skewed = "te.compute((2, 2), lambda i, j: x[i + j, (3 * i - 2 * j + 2) % 4] + x[2 * i + j // 3, 3 * j // 2])"
    assert "sympy" not in modules_after(program.format(skewed))


@pytest.mark.parametrize("name", tedsl.__all__)
def test_public_name_resolves(name: str) -> None:
    assert getattr(tedsl, name) is not None
    assert name in dir(tedsl)


def test_type_checkers_see_the_table_of_the_face() -> None:
    assert names_for_type_checkers() == tedsl._HOME | dict.fromkeys(tedsl._PACKAGES, "tedsl")


def test_unknown_name_is_an_attribute_error_with_a_hint() -> None:
    with pytest.raises(AttributeError, match="module 'tedsl' has no attribute 'placholder'") as caught:
        tedsl.placholder  # codespell:ignore placholder
    assert caught.value.name == "placholder"  # codespell:ignore placholder
    assert caught.value.obj is tedsl


@pytest.mark.parametrize("package", PACKAGES)
def test_types_are_shipped(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_versions_agree() -> None:
    declared = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert declared is not None
    assert newest is not None
    assert tedsl.__version__ == declared[1] == newest[1]


def skips_itself(path: Path) -> bool:
    """Whether a module is skipped as a whole where a package is not installed."""
    return any("importorskip" in ast.unparse(node) for node in ast.parse(path.read_text()).body if not _defines(node))


def _defines(node: ast.stmt) -> bool:
    return isinstance(node, (ast.FunctionDef, ast.ClassDef))


def test_no_test_reads_from_a_module_that_may_skip_itself() -> None:
    """pytest keeps such a module half made: whoever reads from it stops with an ImportError, not with a skip."""
    may_skip = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "tests").rglob("test_*.py")
        if skips_itself(path)
    }
    assert "tests.bridges.test_torch" in may_skip
    wrong = []
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                named = {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
                wrong += [f"{path.relative_to(ROOT)}:{node.lineno} reads from {name}" for name in named & may_skip]
    assert not wrong, wrong


# Modules that offer names of others on purpose.
OFFERS = {
    "tedsl.lang.arrays": "the whole-tensor functions, listed for the face",
    "tedsl.lang.functions": "all that is written in a body, `const` of the nodes among it",
    "tedsl.lang.expr": "`Fn` belongs to the nodes that hold it",
    "tedsl.backend.build": "`te.Schedule`, which is found with what takes one",
    "tedsl.bridges.torch.operators": "a bridge is asked for all that `tedsl.ops` needs of it",
    "tedsl.bridges.fx.backend": "all of the backend that users of torch.compile need",
}


def test_no_test_is_about_the_time_that_something_takes() -> None:
    """It would be about the machine and its other work: tests.work counts instead, benchmarks measure."""
    clock = "process_" + "time"
    assert not [path for path in sorted((ROOT / "tests").rglob("*.py")) if clock in path.read_text()]


def test_a_module_offers_what_stands_in_it() -> None:
    """A name that is imported from where it passes by draws an arrow that is not there."""
    wrong = []
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if path.name == "__init__.py" or module in OFFERS:
            continue
        body = ast.parse(path.read_text()).body
        passing = {a.asname or a.name for node in body if isinstance(node, ast.ImportFrom) for a in node.names}
        lists = [
            node.value for node in body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ]
        offered = {str(name) for names in lists for name in ast.literal_eval(names)}
        wrong += [f"{module} offers {name}" for name in sorted(offered & passing)]
    assert not wrong, wrong


def test_a_name_of_a_class_stands_for_one_thing() -> None:
    found: dict[str, list[str]] = {}
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert not [f"{name}: {', '.join(places)}" for name, places in found.items() if len(places) > 1]


def test_words_are_spelled_as_they_should_be() -> None:
    """Texts, docstrings, comments and messages; the settings are in pyproject.toml."""
    pytest.importorskip("codespell_lib")
    known = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = known.stdout.split() if known.returncode == 0 else [str(p) for p in ROOT.rglob("*.md")]
    files = [f for f in files if f.endswith((".md", ".py", ".toml", ".css", ".js")) and (ROOT / f).exists()]
    assert len(files) > 10
    done = subprocess.run(
        [sys.executable, "-m", "codespell_lib", *files], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_what_people_read_is_spelled_as_in_america() -> None:
    """Pages, examples, notebooks, and the packages whose docstrings and messages they meet."""
    pytest.importorskip("codespell_lib")
    rooms = ("ops", "display", "lang", "commands", "testing", "mutation", "bridges", "dask", "analysis")
    folders = ("docs", "examples", "notebooks", *(f"tedsl/{room}" for room in rooms))
    files = [p for folder in folders for kind in ("md", "py", "css") for p in (ROOT / folder).rglob(f"*.{kind}")]
    files = [p for p in files if "made" not in p.parts] + [*ROOT.glob("*.md")]
    files += [p for folder in ("autodiff", "benchmarks", "tedsl") for p in (ROOT / folder).rglob("*.md")]
    names = "catalogue,catalogues,writeable"  # a folder, and NumPy's word
    command = [sys.executable, "-m", "codespell_lib", "--builtin", "en-GB_to_en-US", "-L", names]
    done = subprocess.run([*command, *map(str, files)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
