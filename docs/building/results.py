"""Classes that nobody imports: what functions give back, with the methods and fields that people use."""

from __future__ import annotations

import dataclasses
import inspect

from autodiff.checking.report import PairReport, Report
from autodiff.result import Explanation, Gradients, ReadReport
from autodiff.symbolic.answer import IndexGather, IndexInversion
from autodiff.symbolic.checking import Checked
from schedules.directives import Directive
from tedsl.backend.calling.kernel import Kernel
from tedsl.backend.calling.report import Call, ProgramReport
from tedsl.backend.calling.stats import Stats
from tedsl.backend.comparison import Comparison
from tedsl.backend.compiling.executable import MemoryPlan
from tedsl.backend.compiling.profiling import Profile, ProfileRow
from tedsl.backend.tune import Trial
from tedsl.bridges.fx.graphs import FxFunction
from tedsl.lang.assume import IndexMap
from tedsl.lang.at import At, Updates
from tedsl.lang.locks import cached_property
from tedsl.lang.reducers import CustomReducer
from tedsl.mutation.functional import Functionalized, PureForm
from tedsl.ops.explaining import OpExplanation
from tedsl.ops.op import Op

# Page -> its title, what it says first, and the classes on it.
PAGES = {
    "kernels": (
        "Kernels, statistics and profiles",
        "What ``te.build``, ``te.profile``, ``Schedule.compare`` and ``te.tune`` give.",
        (Kernel, Stats, ProgramReport, Call, MemoryPlan, Profile, ProfileRow, Comparison, Trial),
    ),
    "gradients": (
        "Gradients, checks and index inversions",
        "What ``te.differentiate``, ``te.gradcheck`` and ``autodiff.invert`` give.",
        (Gradients, Explanation, ReadReport, Report, PairReport, IndexInversion, IndexGather, Checked),
    ),
    "objects": (
        "Operators, pure forms and other results",
        "What ``@te.op``, ``te.functionalize``, ``te.reducer``, ``te.from_fx``, ``te.index_map`` and ``x.at`` give.",
        (Op, OpExplanation, Functionalized, PureForm, FxFunction, CustomReducer, IndexMap, At, Updates, Directive),
    ),
}
CLASSES = tuple(c for _, _, classes in PAGES.values() for c in classes)
SHORT = {f"{c.__module__}.{c.__qualname__}": c.__name__ for c in CLASSES}

# Without an underscore because other packages call them; nobody else needs them.
INTERNAL = frozenset({
    "Kernel.again", "Kernel.core", "Kernel.explained",  # bridges call kernels by them
    "Stats.buffers", "Stats.on_device", "ProgramReport.core", "ProgramReport.lent", "MemoryPlan.lent",
    "ReadReport.answer", "ReadReport.left", "ReadReport.said", "ReadReport.written", "ReadReport.attempts",
    "Explanation.row", "Explanation.write", "PairReport.row",  # rows of tables
    "Op.definition", "Functionalized.pure", "PureForm.captured", "CustomReducer.arity", "CustomReducer.where",
    "Updates.mul",  # multiply
})  # fmt: skip


def methods(owner: type) -> list[str]:
    """Public methods and properties, in their order."""
    found = (n for n, v in vars(owner).items() if inspect.isfunction(v) or isinstance(v, property | cached_property))
    return [n for n in found if _is_told(owner, n)]


def fields(owner: type) -> list[str]:
    """The fields of a dataclass, in their order."""
    listed = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    return [f.name for f in listed if _is_told(owner, f.name)]


def _is_told(owner: type, name: str) -> bool:
    return not name.startswith("_") and f"{owner.__name__}.{name}" not in INTERNAL
