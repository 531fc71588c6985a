"""Kernels as libraries that need nothing of this package: a C header, a static and a shared library, a Python module.

One function takes the addresses of dense arrays and calls the kernels one after another; it is written in LLVM's
assembly, so that no C compiler is needed but to link a shared library. It is safe to call from several threads.
"""

from __future__ import annotations

import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tedsl.analysis.pointwise import Array
from tedsl.analysis.sizes import concrete_shape
from tedsl.backend.arguments.blocks import HOST, lay_out
from tedsl.backend.arguments.layouts import LARGEST, contiguous_strides
from tedsl.backend.calling.c_names import function_name
from tedsl.backend.calling.export_text import ExportedFunction, c_header, python_module
from tedsl.backend.compiling.compilation import Compilation
from tedsl.backend.compiling.executable import CompiledKernel, Executable, KernelStep, View
from tedsl.backend.compiling.forms import Numbers
from tedsl.backend.compiling.variant import Variant
from tedsl.backend.host.archive import archive
from tedsl.backend.host.emit import emit_object
from tedsl.backend.host.processors import is_same_machine, triple_of
from tedsl.backend.host.runtime import runtime_object
from tedsl.backend.host.symbols import COFF, format_of, global_symbols
from tedsl.backend.sequence.runner import Chain, Placing
from tedsl.lang.dataclass import dataclass
from tedsl.lang.expr import Var

__all__ = ["export"]


def export(
    core: Executable,
    name: str,
    folder: str | os.PathLike[str],
    sizes: Mapping[Var, int],
    constants: Sequence[Array] = (),
) -> list[Path]:
    """Write the files; where nothing can link a shared library, it and the Python module are left out.

    The last inputs may be constants, which are data of the library. For another machine there is the header and the
    static library, in the format of its system.
    """
    target = core.program.target
    if target.backend != "host":
        raise ValueError(f"kernel {name!r}: export writes libraries for the host, found target={target.name!r}")
    core, runtime = core.whole, runtime_object(target.text)
    symbol = function_name(name, set(global_symbols(runtime)))
    signature = _signature(core.program, symbol, sizes, len(constants))
    objects = [("runtime.o", runtime), *_objects(core, signature, sizes, constants)]
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    static = f"{symbol}.lib" if format_of(objects[0][1]) == COFF else f"lib{symbol}.a"
    made = [place / f"{symbol}.h", place / static]
    made[0].write_text(c_header(signature))
    made[1].write_bytes(archive(objects))
    shared = place / f"lib{symbol}.so"
    if is_same_machine(target.text) and _linked(objects, shared):
        made += [shared, place / f"{symbol}.py"]
        made[-1].write_text(python_module(signature))
    return made


def _signature(program: Compilation, symbol: str, sizes: Mapping[Var, int], hidden: int) -> ExportedFunction:
    tensors, count = (*program.inputs, *program.outputs), len(program.inputs)
    try:
        shapes = [concrete_shape(t, sizes, f"kernel {program.name!r}: export") for t in tensors]
    except ValueError as error:
        raise ValueError(
            f"{error}; an exported function is for arrays of given shapes: export(..., sizes={{n: 3}})"
        ) from None
    arrays = [(t.name, str(t.dtype), shape) for t, shape in zip(tensors, shapes, strict=True)]
    for label, _, shape in arrays:
        if 0 in shape:
            raise ValueError(f"kernel {program.name!r}: export: {label!r} has no elements (shape {shape})")
    return ExportedFunction(symbol, program.name, tuple(arrays[: count - hidden]), tuple(arrays[count:]))


@dataclass(frozen=True)
class _Call:
    """A kernel's call: its function, the words of its argument block, and which hold addresses of which arrays."""

    entry: str
    words: tuple[int, ...]
    pointers: Mapping[int, int]
    arrays: Mapping[int, int]  # word -> number of a tensor


def _objects(
    core: Executable, signature: ExportedFunction, sizes: Mapping[Var, int], constants: Sequence[Array]
) -> list[tuple[str, bytes]]:
    """The objects of the kernels, and that of the function that calls them."""
    plan, program, modes = core.plan, core.program, ("write",) * len(core.program.outputs)
    placing = Placing(plan, modes, frozenset())
    chain = Chain(plan.tensors, placing, modes, sizes)
    images: dict[str, bytes] = {}
    entries: dict[CompiledKernel, tuple[Variant, str]] = {}
    calls = []
    for step in placing.steps:
        if step.core is None:
            apart = ", ".join(plan.tensors[c].name for c in step.outputs)
            raise ValueError(f"kernel {program.name!r}: export: {apart!r} is computed in Python, not by compiled code")
        if step.core not in entries:
            entries[step.core] = _compiled(step.core, images)
        calls.append(_call(step, *entries[step.core], chain))
    wrapper = emit_object(
        f'target triple = "{triple_of(program.target.text)}"\n' + _assembly(signature, calls, chain, placing, constants)
    )
    return [*((f"k{k}.o", image) for k, image in enumerate(images.values())), ("call.o", wrapper)]


def _compiled(core: CompiledKernel, images: dict[str, bytes]) -> tuple[Variant, str]:
    """A form that is right for all numbers, and its function, under a name of its own."""
    modes = ("write",) * len(core.program.outputs)
    variant = core.forms.variant(core.forms.usual(modes))
    if variant.has_checks:  # one may be of finite numbers, for which another form of the program would be called
        variant = core.forms.variant(core.forms.usual(modes, Numbers.ANY))
    kept, ahead = variant.kept, variant.origin.program.planner.may_be_ahead
    if kept.entry in images or not kept.image or ahead:  # Halide's own pool, which an export has, may wait for ever
        program = replace(variant.origin.program, name=f"{core.program.name}_{len(images)}").planned(in_turn=True)
        kept, _ = replace(variant.origin, program=program).compiled()
    images[kept.entry] = kept.image
    return variant, kept.entry


def _call(step: KernelStep, variant: Variant, entry: str, chain: Chain) -> _Call:
    cells = [*step.inputs, *(step.outputs[p] for p in variant.order)]
    layouts = []
    for cell in cells:
        shape, dtype = chain.layout(cell)
        if not 0 < math.prod(shape) * dtype.itemsize <= LARGEST:
            raise ValueError(
                f"kernel {variant.origin.program.name!r}: export: an array of shape {shape} is empty or over 2 GB"
            )
        whole, _ = chain.layout(chain.placing.plan.known_by(cell))
        layouts.append((shape, contiguous_strides(whole, dtype.itemsize)))
    words, pointers, buffers = lay_out(variant.function, layouts, variant.scalars(step.bound(chain.sizes)))
    return _Call(entry, tuple(words), pointers, {at + HOST: c for at, c in zip(buffers, cells, strict=True)})


def _assembly(
    signature: ExportedFunction, calls: Sequence[_Call], chain: Chain, placing: Placing, constants: Sequence[Array]
) -> str:
    """The exported function: LLVM's assembly."""
    name, words = signature.symbol, max(len(call.words) for call in calls)
    inputs = len(signature.inputs)
    count = inputs + len(signature.outputs)
    lines, body = _PREAMBLE.format(name=name).splitlines(), []
    for entry in dict.fromkeys(call.entry for call in calls):
        lines.append(f"declare i32 @{entry}(ptr)")
    for k, call in enumerate(calls):
        listed = ", ".join(f"i64 {w - (1 << 64) if w >= 1 << 63 else w}" for w in call.words)
        lines.append(f"@words{k} = private unnamed_addr constant [{len(call.words)} x i64] [{listed}]")
    place = {c: f"%a{c}" for c in range(inputs)}
    for cell, array in enumerate(constants, start=inputs):
        place[cell] = f"@constant{cell}"
        elements = "".join(f"\\{byte:02X}" for byte in array.tobytes())
        lines.append(f'{place[cell]} = private constant [{array.nbytes} x i8] c"{elements}", align 128')
    place.update((c, f"%a{inputs + p}") for c, p in placing.direct.items())
    for cell, offset in zip(chain.inside, chain.arena.offsets, strict=True):
        place[cell] = f"%t{cell}"
        body.append(f"  %t{cell} = getelementptr i8, ptr %block, i64 {offset}")
    for cell, view in placing.plan.views.items():
        shape, dtype = chain.layout(view.of)
        if isinstance(view, View) and math.prod(shape[: view.dim]) != 1:
            raise ValueError(
                f"kernel {signature.title!r}: export: it is cut along time, which must be the first dimension of "
                f"{chain.tensors[view.of].name!r}, found dimension {view.dim} of {shape}"
            )
        offset = view.offset(contiguous_strides(shape, dtype.itemsize))
        place[cell] = f"%t{cell}"
        body.append(f"  %t{cell} = getelementptr i8, ptr {place[view.of]}, i64 {offset}")
    for k, call in enumerate(calls):
        body += _called(k, call, place)
    for k, (position, cell) in enumerate(placing.copied):
        size = chain.bytes(cell)
        body.append(f"  %m{k} = call ptr @memmove(ptr %a{inputs + position}, ptr {place[cell]}, i64 {size})")
    failures = ", ".join(f"[ %c{k}, %call{k} ]" for k in range(len(calls)))
    lines += [
        f"define i32 @{name}({', '.join(f'ptr %a{k}' for k in range(count))}) {{",
        "entry:",
        f"  %words = alloca [{words} x i64], align 16",
        f"  %old = call ptr @halide_set_error_handler(ptr @{name}_failed)",
        f"  %raw = call ptr @malloc(i64 {chain.arena.bytes + 128})",
        "  %none = icmp eq ptr %raw, null",
        "  br i1 %none, label %empty, label %begin",
        "empty:",
        "  ret i32 -11",
        "begin:",
        "  %number = ptrtoint ptr %raw to i64",
        "  %more = add i64 %number, 127",
        "  %even = and i64 %more, -128",
        "  %block = inttoptr i64 %even to ptr",
        "  br label %call0",
        "call0:",
        *body,
        "  br label %end",
        "end:",
        f"  %code = phi i32 [ 0, %call{len(calls)} ], {failures}",
        "  call void @free(ptr %raw)",
        "  ret i32 %code",
        "}",
    ]
    return "\n".join(lines)


def _called(k: int, call: _Call, place: Mapping[int, str]) -> list[str]:
    """The argument block filled in, and the call."""
    made = [f"  %w{k} = call ptr @memmove(ptr %words, ptr @words{k}, i64 {8 * len(call.words)})"]
    for word, target in call.pointers.items():
        made += [
            f"  %p{k}.{word} = getelementptr i64, ptr %words, i64 {word}",
            f"  %q{k}.{word} = getelementptr i64, ptr %words, i64 {target}",
            f"  store ptr %q{k}.{word}, ptr %p{k}.{word}",
        ]
    for word, cell in call.arrays.items():
        made += [
            f"  %h{k}.{word} = getelementptr i64, ptr %words, i64 {word}",
            f"  store ptr {place[cell]}, ptr %h{k}.{word}",
        ]
    return [
        *made,
        f"  %c{k} = call i32 @{call.entry}(ptr %words)",
        f"  %f{k} = icmp ne i32 %c{k}, 0",
        f"  br i1 %f{k}, label %end, label %call{k + 1}",
        f"call{k + 1}:",
    ]


_PREAMBLE = """\
@{name}_message = internal global [1024 x i8] zeroinitializer
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @memmove(ptr, ptr, i64)
declare ptr @strncpy(ptr, ptr, i64)
declare ptr @halide_set_error_handler(ptr)
define internal void @{name}_failed(ptr %context, ptr %text) {{
  %copied = call ptr @strncpy(ptr @{name}_message, ptr %text, i64 1023)
  ret void
}}
define ptr @{name}_error() {{
  ret ptr @{name}_message
}}"""


def _linked(objects: Sequence[tuple[str, bytes]], path: Path) -> bool:
    """Whether a linker is there; it makes the shared library."""
    tool = next(filter(None, map(shutil.which, [os.environ.get("CC", ""), "cc", "gcc", "clang"])), None)
    if tool is None:
        return False
    with tempfile.TemporaryDirectory(prefix="tedsl-") as folder:
        files = [Path(folder) / name for name, _ in objects]
        for file, (_, image) in zip(files, objects, strict=True):
            file.write_bytes(image)
        command = [tool, "-shared", "-o", str(path), *map(str, files), "-lpthread", "-ldl", "-lm"]
        import subprocess  # slow to load, and seldom needed

        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"export: {tool} could not link {path.name}: {done.stderr.strip()[:500]}")
    return True
