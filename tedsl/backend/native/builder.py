"""A thin layer over llvmlite's builder: variables, loops, Halide's buffers, so that a routine reads as its algorithm.

Variables are memory here; LLVM's passes make registers of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

__all__ = ["BYTE", "INDEX", "POINTER", "SIZE", "Changing", "Elements", "RoutineCode"]

BYTE, INDEX, SIZE, POINTER = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.PointerType()
MOST_TASKS = 64
HOST, DIMENSIONS = 16, 40  # where halide_buffer_t has the address of its first element, and of its dimensions
EXTENT, STRIDE, DIMENSION_BYTES = 4, 8, 16


class Changing:
    """A number that changes."""

    def __init__(self, code: RoutineCode, kind: Any, value: Any) -> None:
        self._code, self._kind = code, kind
        with code.builder.goto_entry_block():
            self._place = code.builder.alloca(kind)
        self.set(value)

    def get(self) -> Any:
        return self._code.builder.load(self._place, typ=self._kind)

    def set(self, value: Any) -> None:
        self._code.builder.store(self._code.number(value, self._kind), self._place)

    def add(self, value: Any) -> None:
        self.set(self._code.builder.add(self.get(), self._code.number(value, self._kind)))


class Elements:
    """Elements of one kind side by side, or a step apart."""

    def __init__(self, code: RoutineCode, kind: Any, base: Any, step: Any = 1) -> None:
        self._code, self.kind, self.base, self._step = code, kind, base, step

    def _at(self, index: Any) -> Any:
        place = index if isinstance(self._step, int) and self._step == 1 else self._code.builder.mul(index, self._step)
        return self._code.builder.gep(self.base, [place], source_etype=self.kind)

    def __getitem__(self, index: Any) -> Any:
        return self._code.builder.load(self._at(self._code.number(index, SIZE)), typ=self.kind)

    def __setitem__(self, index: Any, value: Any) -> None:
        at = self._at(self._code.number(index, SIZE))
        self._code.builder.store(self._code.number(value, self.kind), at)

    def shifted(self, offset: Any) -> Elements:
        """The same elements counted from another one on; `offset` in elements of memory."""
        base = self._code.builder.gep(self.base, [offset], source_etype=self.kind)
        return Elements(self._code, self.kind, base, self._step)


class RoutineCode:
    """A function being written."""

    def __init__(
        self, module: ir.Module, name: str, parameters: list[Any], result: Any, *, inner: bool = False
    ) -> None:
        self.function = ir.Function(module, ir.FunctionType(result, parameters), name)
        if inner:
            self.function.linkage = "internal"
        self.module = module
        self.parameters = list(self.function.args)
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        # What variables need stands in front of all else.
        body = self.function.append_basic_block("body")
        self.builder.branch(body)
        self.builder.position_at_end(body)

    def number(self, value: Any, kind: Any) -> Any:
        """A Python number as a constant of a kind."""
        return ir.Constant(kind, value) if isinstance(value, int) else value

    def variable(self, value: Any, kind: Any = SIZE) -> Changing:
        return Changing(self, kind, value)

    def wide(self, value: Any) -> Any:
        """A whole number without sign as a size."""
        return value if value.type == SIZE else self.builder.zext(value, SIZE)

    def narrow(self, value: Any, kind: Any) -> Any:
        return value if value.type == kind else self.builder.trunc(value, kind)

    def compare(self, relation: str, a: Any, b: Any) -> Any:
        """Whether `a` < `b` and the like, as whole numbers without sign."""
        kind = b.type if isinstance(a, int) else a.type
        return self.builder.icmp_unsigned(relation, self.number(a, kind), self.number(b, kind))

    def least(self, a: Any, b: Any) -> Any:
        return self.builder.select(self.compare("<", a, b), self.number(a, SIZE), self.number(b, SIZE))

    @contextmanager
    def loop(self, end: Any, begin: Any = 0) -> Iterator[Any]:
        """for i in range(begin, end), sizes."""
        at = self.variable(begin)
        with self.repeat(lambda: self.compare("<", at.get(), end)):
            yield at.get()
            at.add(1)

    @contextmanager
    def repeat(self, condition: Any) -> Iterator[None]:
        """while condition()."""
        head, body, rest = (self.function.append_basic_block(n) for n in ("head", "loop", "rest"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(condition(), body, rest)
        self.builder.position_at_end(body)
        yield
        self.builder.branch(head)
        self.builder.position_at_end(rest)

    def when(self, condition: Any) -> Any:
        return self.builder.if_then(condition)

    def either(self, condition: Any) -> Any:
        return self.builder.if_else(condition)

    def give(self, value: Any = None) -> None:
        """Return; what follows belongs to another path."""
        if value is None:
            self.builder.ret_void()
        else:
            self.builder.ret(value)

    def outside(self, name: str, result: Any, parameters: list[Any]) -> Any:
        """A function of the runtime."""
        known = self.module.globals.get(name)
        return known or ir.Function(self.module, ir.FunctionType(result, parameters), name)

    def taken(self, count: Any, kind: Any) -> Elements:
        """Memory for so many elements; its address may be null."""
        allocate = self.outside("halide_malloc", POINTER, [POINTER, SIZE])
        room = self.builder.mul(self.number(count, SIZE), ir.Constant(SIZE, kind.width // 8))
        return Elements(self, kind, self.builder.call(allocate, [ir.Constant(POINTER, None), room]))

    def freed(self, array: Elements) -> None:
        release = self.outside("halide_free", ir.VoidType(), [POINTER, POINTER])
        self.builder.call(release, [ir.Constant(POINTER, None), array.base])

    # ---- threads

    def shared_out(self, each: Any, arguments: Sequence[Any], count: Any, work: Any) -> Any:
        """each(*arguments, begin, end) over `count` of something in tasks, of which there are at most as many as parts
        of `work`; its code, or one of them that is not 0.
        """
        b, one = self.builder, ir.Constant(SIZE, 1)
        tasks = self.least(self.least(count, ir.Constant(SIZE, MOST_TASKS)), work)
        tasks = b.select(self.compare("<", tasks, 1), one, tasks)
        share = b.udiv(b.add(count, b.sub(tasks, one)), tasks)
        share = b.select(self.compare("<", share, 1), one, share)
        tasks = b.udiv(b.add(count, b.sub(share, one)), share)
        values = [*arguments, count, share]
        with b.goto_entry_block():
            closure = b.bitcast(b.alloca(SIZE, len(values)), POINTER)
        held = Elements(self, SIZE, closure)
        for k, value in enumerate(values):
            held[k] = value if value.type == SIZE else b.ptrtoint(value, SIZE)
        code = self.variable(0, INDEX)
        with self.either(self.compare(">", tasks, 1)) as (many, single):
            with many:
                task = _task(self.module, f"{self.function.name}_task", each, [a.type for a in arguments])
                run = self.outside("halide_do_par_for", INDEX, [POINTER, POINTER, INDEX, INDEX, POINTER])
                begin = ir.Constant(INDEX, 0)
                code.set(b.call(run, [ir.Constant(POINTER, None), task, begin, self.narrow(tasks, INDEX), closure]))
            with single:
                code.set(b.call(each, [*arguments, ir.Constant(SIZE, 0), count]))
        return code.get()

    # ---- Halide's buffers

    def _field(self, base: Any, offset: int, kind: Any) -> Any:
        at = self.builder.gep(base, [ir.Constant(SIZE, offset)], source_etype=BYTE)
        return self.builder.load(at, typ=kind)

    def host(self, buffer: Any) -> Any:
        """Where the elements of a buffer lie; null where it is asked for its bounds only."""
        return self._field(buffer, HOST, POINTER)

    def is_null(self, address: Any) -> Any:
        return self.builder.icmp_unsigned("==", address, ir.Constant(POINTER, None))

    def extent(self, buffer: Any, axis: int) -> Any:
        """The extent of an axis, counted from the innermost."""
        return self._dimension(buffer, axis, EXTENT)

    def stride(self, buffer: Any, axis: int) -> Any:
        return self._dimension(buffer, axis, STRIDE)

    def _dimension(self, buffer: Any, axis: int, offset: int) -> Any:
        dimensions = self._field(buffer, DIMENSIONS, POINTER)
        return self.builder.sext(self._field(dimensions, DIMENSION_BYTES * axis + offset, INDEX), SIZE)

    def row(self, buffer: Any, kind: Any, axis: int | None, outer: list[int], number: Any) -> Elements:
        """The elements along `axis` of one row; rows are counted along the axes `outer`, the first fastest."""
        place, rest = ir.Constant(SIZE, 0), number
        for k in outer:
            extent = self.extent(buffer, k)
            at = self.builder.urem(rest, extent)
            rest = self.builder.udiv(rest, extent)
            place = self.builder.add(place, self.builder.mul(at, self.stride(buffer, k)))
        step = 1 if axis is None else self.stride(buffer, axis)
        return Elements(self, kind, self.host(buffer), step).shifted(place)


def _task(module: ir.Module, name: str, each: Any, kinds: Sequence[Any]) -> Any:
    """What a thread is given: the number of a task, and where the arguments are."""
    code = RoutineCode(module, name, [POINTER, INDEX, POINTER], INDEX, inner=True)
    b, (_, number, closure) = code.builder, code.parameters
    held = Elements(code, SIZE, closure)
    *values, count, share = (held[k] for k in range(len(kinds) + 2))
    arguments = [v if kind == SIZE else b.inttoptr(v, kind) for v, kind in zip(values, kinds, strict=True)]
    begin = b.mul(code.wide(number), share)
    code.give(b.call(each, [*arguments, begin, code.least(count, b.add(begin, share))]))
    return code.function
