"""`te.build` and `te.evaluate`: from tensors to a kernel, and from tensors and arrays to arrays.

tensors, options -> BuildRequest      checked                        `building.request`
                 -> Compilation       the record of what is compiled
                 -> Executable        one kernel or several          `building.executables`
                 -> its memory        proofs of alias= and donate=   `building.memory_of_inputs`
                 -> Kernel            what is called                 `calling.kernel`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, overload

from schedules import Schedule
from tedsl.analysis.arrays.feeds import Feeds, as_feeds, as_outputs
from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import NamedSizes
from tedsl.backend.building.memory_of_inputs import accumulating_for, settled
from tedsl.backend.building.planners import check_opt
from tedsl.backend.building.request import BuildOptions, BuildRequest, request_for
from tedsl.backend.calling.kernel import SAFE, Kernel
from tedsl.backend.calling.signature import KernelParts, KernelSignature
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import Shared
from tedsl.backend.sequence.restored import executable_for
from tedsl.lang.collecting import collected_later
from tedsl.lang.keywords import own_arguments
from tedsl.lang.tensor import Tensor

__all__ = ["Schedule", "build", "evaluate", "made_kernel"]


@own_arguments()
def build(
    inputs: Any,
    outputs: Any,
    schedule: Any = None,
    target: str = "host",
    alias: Mapping[Tensor, Tensor] | None = None,
    donate: Any = None,
    on_hazard: Any = None,
    deterministic: bool = True,
    name: str | None = None,
    checkpoint: Any = None,
    memory: int | str | None = None,
    opt: str = "default",
) -> Kernel:
    """A kernel that computes `outputs` from arrays for `inputs`; one tensor gives one array, a list gives a tuple.

    It is compiled here, for arrays whose last axis is contiguous. Other layouts are compiled when a call first brings
    one.

    schedule       a `te.Schedule`, "default", "tuned", or the name of an autoscheduler
    target         what to compile for: "host", "cuda", "opencl", "x86-64-v3" and the like
    alias          outputs that are written into the memory of inputs, {output: input}; proven safe here
    donate         inputs whose memory may be used for any output or intermediate result that fits; proven safe here
    on_hazard      what to do where there is no proof. "error" is the default for `alias` and `donate`. "copy" goes
                   through a temporary, and a donation that cannot be used is a warning; it is the default where
                   arrays given to `out=` overlap inputs
    deterministic  False allows schedules that add with atomics, whose sums are rounded differently in every run
    checkpoint     tensors to keep. What they are made of is computed again where it is needed later, as the gradients
                   of a network need it
    memory         a limit for all that a call holds, in bytes or as "512MB". As much is computed again as that takes,
                   and scans are cut along time; `kernel.program` tells the peak and the extra work
    opt            how much work the default schedule is worth. "fast" makes small loop bodies, which compile sooner.
                   "best" searches for the fastest schedule on this machine, for ten seconds the first time, as
                   `te.tune` does
    """
    if on_hazard not in (None, "copy", "error"):
        raise ValueError(f"te.build: on_hazard must be 'copy' or 'error', found {on_hazard!r}")
    options = BuildOptions(schedule, target, alias, donate, on_hazard, deterministic, name, checkpoint, memory, opt)
    kernel = _kernel(request_for(inputs, outputs, options, "te.build"))
    kernel.compile()
    return kernel


@overload
def evaluate(
    outputs: Tensor, feeds: Feeds | None = None, sizes: NamedSizes | None = None,
    casting: str = "safe", opt: str = "default",
) -> Array: ...  # fmt: skip
@overload
def evaluate(
    outputs: Sequence[Tensor], feeds: Feeds | None = None, sizes: NamedSizes | None = None,
    casting: str = "safe", opt: str = "default",
) -> tuple[Array, ...]: ...  # fmt: skip
@own_arguments(hint="feeds are a dict, by tensors or names: {'x': a}")
def evaluate(
    outputs: Any, feeds: Feeds | None = None, sizes: NamedSizes | None = None,
    casting: str = SAFE, opt: str = "default",
) -> Any:  # fmt: skip
    """The values of `outputs` for the arrays in `feeds`, compiled: `evaluate(C, {A: a, B: b})`.

    A name may stand for a tensor in `feeds`. An array of another dtype is converted as `casting` says, in NumPy's
    words, as by a kernel; `opt` as in te.build.
    """
    check_opt(opt, "te.evaluate")
    given = as_feeds(feeds, as_outputs(outputs, "te.evaluate")[0], "te.evaluate")
    kernel = _kernel(request_for(list(given), outputs, BuildOptions(opt=opt), "te.evaluate"))
    kernel.core.keep()
    return kernel(*given.values(), sizes=sizes, casting=casting)


def made_kernel(program: Compilation) -> Kernel:
    """A kernel of its own, compiled, that is found by nobody else; it returns a tuple."""
    signature = KernelSignature(program.name, program.inputs, (), program.outputs, is_several=True)
    kernel = Kernel(KernelParts(signature, Shared(executable_for(program))))
    kernel.compile()
    return kernel


def _kernel(request: BuildRequest) -> Kernel:
    """The kernel for a request; what its calls need is compiled by the first of them."""
    with collected_later():
        adding = accumulating_for(request)
        found = settled(request, is_adding=adding is not None)
    found.donations.check(request.fed, request.options.on_hazard)
    places = {**request.alias, **{p: k for k, p in found.donations.taken.items()}}
    signature = KernelSignature(
        request.name, request.inputs, request.constants, request.outputs, request.is_several, places,
        request.options.on_hazard, found.donations,
    )  # fmt: skip
    return Kernel(KernelParts(signature, found.shared, None if found.is_cut else adding))
