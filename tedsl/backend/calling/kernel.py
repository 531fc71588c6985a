"""Kernels: compiled programs that are called on arrays.

The first call on arrays of given shapes and strides checks everything and prepares an argument block; later ones find
it by one look-up. A call whose arrays cannot be passed as they are copies them, and says so in `stats`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from tedsl.analysis.arrays.donated import DONATED
from tedsl.analysis.checked import is_checked
from tedsl.analysis.checks import read_checks
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import NamedSizes, check_sizes
from tedsl.backend.arguments.array_calls import ArrayCall
from tedsl.backend.arguments.device_arrays import is_on_gpu
from tedsl.backend.calling.call_arguments import check_casting, in_order, numbers_as_arrays
from tedsl.backend.calling.explanations import explained
from tedsl.backend.calling.export import export
from tedsl.backend.calling.general_call import answer
from tedsl.backend.calling.on_gpu import GpuCalls, key_of_tensors, listed
from tedsl.backend.calling.prepared_calls import KnownCall, PreparedCalls, separate
from tedsl.backend.calling.report import ProgramReport, program_of
from tedsl.backend.calling.signature import Asked, KernelParts
from tedsl.backend.calling.stats import Stats
from tedsl.backend.compiling.executable import Executable
from tedsl.backend.compiling.profiling import RECORDING
from tedsl.backend.host.phases import added
from tedsl.backend.host.processors import misfit_here
from tedsl.backend.host.runtime import KernelError
from tedsl.backend.host.targets import refusal
from tedsl.backend.sequence.arena import fresh
from tedsl.lang.rich import Rich
from tedsl.lang.traverse import operations_between

__all__ = ["Kernel"]

SEVERAL = (tuple, list)
ADD, SAFE = "add", "safe"  # by `is`, as an array given by a wrong name has no truth value; other objects take longer

LastCall = tuple[KnownCall, ArrayCall]


class Kernel(Rich):
    """A compiled program: `kern(a, b)` computes new arrays, `kern(a, b, out=c, mode="add")` writes into given ones.

    Arrays are passed in the order of `te.build`, or by the names of their placeholders: `kern(x=a, w=b)`.

    out      an array to write into; of several outputs a sequence in their order, or a dict by name
    mode     "write", "add" (to what is there) or "null" (the output is skipped), for all outputs or in a dict by name
    sizes    extents that no input has, {"n": 3}
    casting  which conversions of dtypes are made, in NumPy's words: "safe" by default
    """

    def __init__(self, parts: KernelParts) -> None:
        signature = parts.signature
        self.name, self.inputs, self.outputs = signature.name, signature.inputs, signature.outputs
        self.constants = signature.constant_arrays  # which a call adds to its own
        self._constants = tuple(self.constants.values())
        self._count = len(signature.fed)
        ranked = enumerate(self.inputs)
        self._numbers = {k: t.dtype.numpy for k, t in ranked if not t.ndim and k not in signature.alias.values()}
        self._several, self._what = signature.is_several, signature.what
        self._parts = parts
        self._calls, self._gpu = PreparedCalls(parts), GpuCalls(parts)
        self._prepared, self._adding = self._calls.writing, self._calls.adding
        self._tensors = self._gpu.prepared
        self._stats = Stats(called=False)
        self._last: LastCall | None = None  # by code that looks at the arrays itself, into fresh ones
        self._last_into: LastCall | None = None  # and into those of out=

    def __call__(
        self, /, *arrays: Any, out: Any = None, mode: Any = None, sizes: NamedSizes | None = None,
        casting: str = SAFE, **named: Any,
    ) -> Any:  # fmt: skip
        """The outputs for these inputs, in the order of `te.build` or by name.

        `out=`, `mode=` are for all outputs, or dicts by name. Arrays of another dtype are converted where NumPy calls
        it safe, or as `casting=` says.
        """
        if named:
            arrays = tuple(in_order(self.inputs, arrays, named, self._what, self.outputs))
        if self._constants:
            if len(arrays) != len(self.inputs):
                in_order(self.inputs, arrays, {}, self._what)
            arrays = (*arrays, *self._constants)
        if self._numbers:
            arrays = numbers_as_arrays(arrays, self._numbers)
        last = self._last if out is None else self._last_into
        if (
            last is not None and mode is None and sizes is None and casting is SAFE
            and len(arrays) == self._count and not DONATED and not is_checked() and not RECORDING
        ):  # fmt: skip
            call, quick = last
            made = [make() for make in call.fresh] if out is None else out if out.__class__ in SEVERAL else (out,)
            done = quick.run(*arrays, *made)
            if done:
                self._stats = call.stats
                return tuple(made) if self._several else made[0]
            if done is not None:
                self._check_failed(quick.error())
        if (
            (mode is None or mode is ADD) and sizes is None and casting is SAFE
            and len(arrays) == self._count and not DONATED and not is_checked() and not RECORDING
        ):  # fmt: skip
            prepared = self._prepared if mode is None else self._adding
            targets = () if out is None else tuple(out) if out.__class__ in SEVERAL else (out,)
            try:
                known = [(a.__class__, a.dtype, a.shape, a.strides, a.flags.aligned) for a in (*arrays, *targets)]
                call = prepared[tuple(known)]
            except (AttributeError, KeyError, TypeError):
                pass
            else:
                results = targets or [_result(r, arrays) for r in call.results]
                if call.is_fresh or separate(arrays, results, call.safe):
                    everything = [*arrays, *results]
                    try:
                        call.run([everything[p] for p in call.order])
                    except KernelError as error:
                        self._check_failed(error)
                    else:
                        self._stats = call.stats
                        self._remember(call, is_into=out is not None, adds=mode is not None)
                        return tuple(results) if self._several else results[0]
        return self._general(Asked(arrays, out, mode, sizes, casting))

    def _remember(self, call: KnownCall, *, is_into: bool, adds: bool) -> None:
        """Let the next call try this one first."""
        if call.quick is not None and not adds:
            if is_into:
                self._last_into = call, call.quick
            else:
                self._last = call, call.quick

    def _check_failed(self, error: Exception) -> None:
        """Raise why a call failed, unless nothing was written: then it can be made in general."""
        if not isinstance(error, KernelError):
            raise error
        if error.requirement is None:
            raise self.explained(error) from None

    def _general(self, asked: Asked) -> Any:
        """A call that was not prepared, or of arrays for which the prepared one fails."""
        program, given = self.core.program, asked.given
        if (problem := misfit_here(program.target.text)) is not None:
            raise refusal(self.name, f"{problem} (it can be looked at, and exported)")
        if len(given) != self._count:
            in_order(self.inputs, given, {}, self._what)
        check_casting(asked.casting, self._what)
        if self._tensors and asked.out is None and asked.mode is None and not asked.sizes:
            results = self.again(given)
            if results is not None:
                return results
        if any(map(is_on_gpu, (*given, *listed(asked.out)))):
            results, self._stats = self._gpu.call(asked)
            return self._given_back(results)
        made = answer(self._parts, asked)
        self._stats = made.stats
        if not asked.sizes:
            self._calls.remember(made, given)
        return self._given_back(made.results)

    def again(self, given: Sequence[Any]) -> Any:
        """A call on tensors of PyTorch on a GPU as there was one before; None if there was none."""
        found = self._tensors.get(key_of_tensors(given))
        if found is None:
            return None
        call, self._stats = found
        return self._given_back(call.run(given))

    def _given_back(self, results: Sequence[Any]) -> Any:
        return tuple(results) if self._several else results[0] if results else None

    @property
    def core(self) -> Executable:
        """The program behind the kernel, for those who call its code themselves."""
        return self._parts.core

    def compile(self) -> None:
        """Compile now what a call with contiguous arrays needs (nothing, where an extent is 0)."""
        adding = self._parts.accumulating
        if self.core.program.facts.is_always_empty:
            for op in operations_between(self._parts.signature.fed, self.outputs):
                read_checks(op)  # IndexError for what is provably wrong, as compiling tells
        elif adding is not None:
            adding.shared.core.compile(adding.modes)
        else:
            self.core.compile()

    @property
    def stats(self) -> Stats:
        """Milliseconds of compiling so far, and what the last call did."""
        adding = self._parts.accumulating
        cores = [self.core] if adding is None else [self.core, adding.shared.core]
        spent, phases = sum(core.compile_ms for core in cores), added(core.phases for core in cores)
        return replace(self._stats, compile_ms=spent, phases=phases)

    @property
    def program(self) -> ProgramReport:
        """The compiled functions that a call runs, how often each is used, and the memory that they need."""
        return program_of(self._parts.usual, self._parts.donor.lent)

    def export(self, folder: Any, sizes: NamedSizes | None = None) -> list[Path]:
        """Libraries that need nothing of this package: a C header, lib<name>.a and .so, and a Python module over NumPy.

        The function takes dense arrays; extents that are not numbers are fixed by `sizes`. Returns the files written;
        without a linker on this machine the shared library and the Python module are left out.
        """
        signature = self._parts.signature
        known = check_sizes(sizes, f"{self._what}: export", signature.fed, signature.outputs)
        return export(self.core, self.name, folder, self._parts.shared.sizes(known), self._constants)

    def source(self, kind: str = "stmt") -> str:
        """What the compiler made of the program: "stmt", "asm", "llvm", "ptx" for a GPU; "passes": what we changed."""
        return self._parts.usual.source(kind)

    def loop_nest(self) -> str:
        """The loops in the order in which they run."""
        return self._parts.usual.loop_nest()

    def explained(self, error: KernelError) -> Exception:
        """A failed call in the user's words."""
        return explained(self._parts, error)

    def __copy__(self) -> Kernel:
        return self  # as of a function; calls share what they prepared

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self._what} cannot be pickled: it is code in the memory of this process; build it where it is needed, "
            "which takes milliseconds as code is kept on disk, or write a library with kern.export(folder)"
        )

    def __repr__(self) -> str:
        """Name, target, inputs and outputs."""
        inputs, outputs = (", ".join(map(repr, tensors)) for tensors in (self.inputs, self.outputs))
        return f"Kernel {self.name!r} for {self.core.program.target.name}: ({inputs}) -> ({outputs})"


def _result(where: tuple[tuple[int, ...], np.dtype[Any]] | int, arrays: Sequence[Array]) -> Array:
    return arrays[where] if isinstance(where, int) else fresh(*where)
