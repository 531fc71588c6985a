"""`donate=`: which output, or intermediate results, take the memory of each input that may be overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from tedsl.analysis.arrays.donated import check_not_donated, donation_problem, give
from tedsl.analysis.hazards import Hazard
from tedsl.analysis.pointwise import Array
from tedsl.backend.calling.aliasing import overlap
from tedsl.backend.compiling.executable import Executable
from tedsl.backend.sequence.runner import is_compact
from tedsl.backend.sequence.temporaries_in_inputs import fit_problem, lender_of, lending_problem
from tedsl.lang.dataclass import dataclass
from tedsl.lang.errors import AliasError, user_location, warn_user
from tedsl.lang.tensor import Tensor

__all__ = ["Donations", "Donor", "donated_positions", "donations_of"]


def donated_positions(donate: Any, inputs: Sequence[Tensor]) -> list[int]:
    """The positions of the inputs whose memory may be taken."""
    listed = [] if donate is None else list(donate) if isinstance(donate, (list, tuple)) else [donate]
    found: list[int] = []
    for tensor in listed:
        position = next((k for k, t in enumerate(inputs) if t is tensor), None)
        if position is None:
            raise ValueError(f"te.build: donate lists inputs, found {tensor!r}")
        if position in found:
            raise ValueError(f"te.build: donate lists {tensor!r} twice")
        found.append(position)
    return found


@dataclass(frozen=True)
class Donations:
    """What becomes of the inputs that may be overwritten, by their positions."""

    taken: Mapping[int, int] = field(default_factory=dict)  # the position of the output that takes the memory
    lent: frozenset[int] = frozenset()  # intermediate results lie there
    refused: Mapping[int, str] = field(default_factory=dict)  # nothing can use it, and why
    in_turn: bool = False  # an output could use one, were the outputs of its stage stored together

    def check(self, inputs: Sequence[Tensor], on_hazard: str | None) -> None:
        """AliasError, or a warning, for what was donated in vain."""
        for source, told in self.refused.items():
            text = f"te.build: the memory of {inputs[source]!r} was donated, but no output can take it: {told}"
            if on_hazard != "copy":
                raise AliasError(f"{text}; leave it out of donate=, or build with on_hazard='copy' to be warned only")
            warn_user(text)


class Donor:
    """What a kernel may overwrite at each call, and whose it is after that."""

    def __init__(self, what: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], donations: Donations) -> None:
        self.what, self.inputs, self.outputs = what, inputs, outputs
        self.taken, self.lent = dict(donations.taken), donations.lent

    @property
    def is_idle(self) -> bool:
        """Whether nothing is donated."""
        return not self.taken and not self.lent

    def source(self, position: int) -> int | None:
        """The input whose memory an output takes."""
        return next((k for k, p in self.taken.items() if p == position), None)

    def check(self, given: Sequence[Any], out: Any) -> None:
        """Nothing that was given away is used; what is given away now is nobody else's."""
        named = [(t.name, v) for t, v in zip(self.inputs, given, strict=True)]
        listed = out.values() if isinstance(out, Mapping) else out if isinstance(out, (tuple, list)) else (out,)
        check_not_donated([*named, *(("out=", v) for v in listed)], self.what)
        for source in (*self.taken, *self.lent):
            value = named[source][1]
            problem = donation_problem(value)
            if sum(v is value for _, v in named) > 1:
                problem = "it is given twice"
            elif problem is None and source in self.lent and not is_compact(value):
                problem = f"its elements do not lie side by side (strides {value.strides} for shape {value.shape})"
            if problem is not None:
                raise self._refused(source, problem)

    def check_apart(self, arrays: Sequence[Array], targets: Mapping[int, Array]) -> None:
        """What intermediate results are written over is not read or written by others."""
        for source in self.lent:
            others = [(t.name, a) for k, (t, a) in enumerate(zip(self.inputs, arrays, strict=True)) if k != source]
            others += [(f"out= for {self.outputs[p].name}", a) for p, a in targets.items()]
            for name, array in others:
                if overlap(arrays[source], array):
                    raise self._refused(source, f"it shares memory with {name!r}")

    def _refused(self, source: int, problem: str) -> ValueError:
        position = self.taken.get(source)
        taker = "intermediate results" if position is None else f"output {self.outputs[position].name!r}"
        return ValueError(
            f"{self.what}: input {self.inputs[source].name!r} is donated to {taker}, but {problem}; "
            "give a te.copy of it, or build without donate="
        )

    def call(self, source: int) -> str:
        """The call that takes the memory of an input, for messages."""
        return f"{self.what} as {self.inputs[source].name!r} at {user_location()}"

    def give(self, given: Sequence[Any]) -> None:
        """Nobody uses again what intermediate results were written over."""
        for source in self.lent:
            give(given[source], self.call(source))


def donations_of(
    core: Executable,
    donated: Sequence[int],
    places: Mapping[int, int],
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
) -> Donations:
    """Each donated input for an output that fits it element on element, else for what passes between kernels."""
    free = [p for p in range(len(outputs)) if p not in places]
    problems = {k: {p: _problem(core, p, k, inputs, outputs) for p in free} for k in donated}
    fitting = {k: [p for p, why in found.items() if why is None] for k, found in problems.items()}
    fitting.update((k, [p]) for p, k in places.items() if k in problems)
    lender = lender_of(core.plan) if core.single is None else None
    lendable = [k for k in donated if lender is not None and lender.loans([k])]
    taken = _matched(fitting, sorted(donated, key=lambda k: k in lendable))
    rest = [k for k in donated if k not in taken]
    if lender is None:
        between = dict.fromkeys(rest, "it is one kernel, which stores them inside its loops")
    else:
        used = {source for source, _ in lender.loans(rest).values()}
        between = {k: lending_problem(lender, k) for k in rest if k not in used}
    refused = {}
    for source, reason in between.items():
        found = {p: _told(why, outputs[p], inputs[source]) for p, why in problems[source].items()}
        told = "; ".join(f"{outputs[p].name!r}: {why}" for p, why in found.items())
        refused[source] = f"{told or 'every output has its memory'}; nor an intermediate result: {reason}"
    in_turn = any(isinstance(h, Hazard) and h.in_turn for source in refused for h in problems[source].values())
    return Donations(taken, frozenset(rest) - set(refused), refused, in_turn)


def _matched(fitting: Mapping[int, Sequence[int]], order: Sequence[int]) -> dict[int, int]:
    """As many inputs as can have an output of their own, the first in order first."""
    owner: dict[int, int] = {}

    def place(source: int, tried: set[int]) -> bool:
        for p in fitting[source]:
            if p not in tried:
                tried.add(p)
                if p not in owner or place(owner[p], tried):
                    owner[p] = source
                    return True
        return False

    for source in order:
        place(source, set())
    return {source: p for p, source in owner.items()}


def _problem(
    core: Executable, position: int, source: int, inputs: Sequence[Tensor], outputs: Sequence[Tensor]
) -> Hazard | str | None:
    problem = fit_problem(outputs[position], inputs[source])
    if problem is not None or core.program.facts.is_always_empty:
        return problem
    return core.hazard(position, core.program.inputs[source])


def _told(problem: Hazard | str | None, output: Tensor, memory: Tensor) -> str:
    if isinstance(problem, Hazard):
        return problem.text(output, memory)
    return problem or "it takes the memory of another one"
