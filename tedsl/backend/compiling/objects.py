"""A Halide pipeline to object code, to a loaded function, or to text.

Object code is plain bytes: it can be kept on disk and loaded again by another process.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack

import halide as hl

from tedsl.backend.assembly.allocation_failures import guarded
from tedsl.backend.assembly.passes import PassContext, fired, rewritten
from tedsl.backend.halide_text.errors import says_nothing
from tedsl.backend.host.emit import Definitions, emit_assembly, emit_object
from tedsl.backend.host.linker import LoadedCode, link, runtime_names
from tedsl.backend.host.loaders import loads_objects
from tedsl.backend.host.phases import phase
from tedsl.backend.host.processors import features_of, misfit_here
from tedsl.backend.host.runtime import runtime_for
from tedsl.backend.host.scratch import scratch
from tedsl.backend.native.code import definitions, processor_in, symbols_in
from tedsl.lang.dataclass import dataclass

__all__ = ["OUTPUT_KINDS", "UNCHECKED", "ObjectCode", "compile_object", "compile_outputs", "load"]

UNCHECKED = "no_asserts"  # the feature of targets for which arrays are not checked: see `buffer_checks`
_DEVICE_CODE = hl.OutputFileType.device_code
OUTPUT_KINDS = {
    "stmt": hl.OutputFileType.stmt,
    "html": hl.OutputFileType.stmt_html,
    "asm": hl.OutputFileType.assembly,
    "llvm": hl.OutputFileType.llvm_assembly,
    "header": hl.OutputFileType.c_header,
    "ptx": _DEVICE_CODE,
    "opencl": _DEVICE_CODE,
}


@dataclass(frozen=True)
class ObjectCode:
    """Machine code of one kernel; `entry` takes an array of pointers to the arguments and returns Halide's code."""

    name: str
    entry: str
    target: str
    image: bytes


def compile_object(
    pipeline: hl.Pipeline, arguments: Sequence[hl.Argument], name: str, target: str, streams: Collection[str] = ()
) -> ObjectCode:
    """Compile `pipeline` for `target`, a Halide target without runtime (targets.Target.text).

    `streams` are the names of results that are too large for the cache.
    """
    symbol = _symbol(name)
    kind = hl.OutputFileType.llvm_assembly if _may_contract(target) else hl.OutputFileType.object
    with scratch() as file:
        _compile(pipeline, {kind: file.path}, arguments, symbol, target)
        written = file.read()
    with phase("LLVM"):
        image = _emitted(_finished(written.decode(), target, streams)) if _may_contract(target) else written
    return ObjectCode(name, f"{symbol}_argv", target, image)


def _compile(
    pipeline: hl.Pipeline, files: dict[hl.OutputFileType, str], arguments: Sequence[hl.Argument], symbol: str,
    target: str,
) -> None:  # fmt: skip
    """Write the files.

    Twice in some 25 000 random programs Halide refused one with an error that has no text, on a machine short of
    time, and took the very same program at any other time. So such an error counts when it comes twice.
    """
    with phase("Halide"):
        try:
            pipeline.compile_to(files, list(arguments), symbol, hl.Target(target))
        except hl.HalideError as error:
            if not says_nothing(error):
                raise
            pipeline.compile_to(files, list(arguments), symbol, hl.Target(target))


def _may_contract(target: str) -> bool:
    """Whether Halide leaves it to us to fuse multiplications with additions: in strict code for the host."""
    features = hl.Target(target)
    return features.has_feature(hl.TargetFeature.StrictFloat) and not features.has_gpu_feature()


def _emitted(assembly: str) -> bytes:
    """Object code, with that of the library's routines that it calls."""
    return emit_object(assembly, _natives_of(assembly))


def _natives_of(assembly: str) -> Definitions:
    symbols, processor = symbols_in(assembly), processor_in(assembly)
    return lambda triple, layout: {s: definitions(s, triple, layout, processor) for s in symbols}


def _finished(assembly: str, target: str, streams: Collection[str]) -> str:
    """LLVM assembly as it is translated to machine code."""
    made = rewritten(assembly, PassContext(features_of(target), streams))
    return guarded(made) if UNCHECKED in target.split("-") else made


def compile_outputs(
    pipeline: hl.Pipeline, arguments: Sequence[hl.Argument], name: str, target: str, kinds: Iterable[str],
    streams: Collection[str] = (),
) -> dict[str, str]:  # fmt: skip
    """What the compiler makes of `pipeline`, as text: any of OUTPUT_KINDS."""
    kinds = list(kinds)
    unknown = [kind for kind in kinds if kind not in (*OUTPUT_KINDS, *_OURS)]
    if unknown:
        raise ValueError(f"source: {unknown[0]!r} is not one of {', '.join(map(repr, (*OUTPUT_KINDS, 'passes')))}")
    if _DEVICE_CODE in map(OUTPUT_KINDS.get, kinds) and not hl.Target(target).has_gpu_feature():
        raise ValueError(f"source: there is no code for a GPU in kernel {name!r}, which is compiled for the host")
    ours = [kind for kind in kinds if kind in _OURS and (kind == "passes" or _may_contract(target))]
    if ours:
        llvm = compile_outputs(pipeline, arguments, name, target, ["llvm"])["llvm"]
        rest = compile_outputs(pipeline, arguments, name, target, [kind for kind in kinds if kind not in ours])
        return {**{kind: _OURS[kind](llvm, target, streams) for kind in ours}, **rest}
    with ExitStack() as stack:
        files = {OUTPUT_KINDS[kind]: stack.enter_context(scratch()) for kind in kinds}
        paths = {output: file.path for output, file in files.items()}
        _compile(pipeline, paths, arguments, _symbol(name), target)
        return {kind: files[OUTPUT_KINDS[kind]].text() for kind in kinds}


def _assembly(llvm: str, target: str, streams: Collection[str]) -> str:
    """What `compile_object` makes, as text."""
    made = _finished(llvm, target, streams)
    return emit_assembly(made, _natives_of(made))


def _passes(llvm: str, target: str, streams: Collection[str]) -> str:
    """How many lines each of our passes made or changed."""
    if not _may_contract(target):
        return "Halide alone makes code for this target\n"
    found = fired(llvm, PassContext(features_of(target), streams))
    return "".join(f"{name}: {count} line{'s' * (count != 1)}\n" for name, count in found.items())


# Texts that are made of LLVM's assembly here.
_OURS = {"asm": _assembly, "passes": _passes}


def load(code: ObjectCode) -> LoadedCode:
    """Bring object code into memory, bound to the runtime of its target; not where that cannot be."""
    if misfit_here(code.target) is not None or not loads_objects():
        return LoadedCode(code.name, code.target, None, None)
    runtime = runtime_for(code.target)
    calls = {name: runtime.address(name) for name in runtime_names(code.image)}
    library = link(code.image, [code.entry], {name: at for name, at in calls.items() if at is not None})
    return LoadedCode(code.name, code.target, library[code.entry], library)


def _symbol(name: str) -> str:
    """A symbol of our own: a kernel that its user calls `sinf` must not answer the calls to libm's."""
    return "te_" + re.sub(r"\W", "_", name, flags=re.ASCII)
