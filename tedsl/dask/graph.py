"""Dask graphs of programs: a task per block, which is given the parts of chunks that the block needs."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dask.array as da
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.task_spec import DataNode, List, Task, TaskRef

from tedsl.blocks.crop import TensorPart
from tedsl.blocks.local import Box
from tedsl.blocks.steps import BlockStep, Chunks, steps_of
from tedsl.dask.work import DaskProgram, Job, Place, assembled, combined, part, run
from tedsl.lang.tensor import Tensor

__all__ = ["Graph"]

FAN_IN = 8  # partial results that one task combines


class Graph:
    """The Dask arrays of a program's tensors, made step by step."""

    def __init__(self, program: DaskProgram, arrays: Sequence[Any], what: str) -> None:
        self.program = program
        self.what = what
        self.arrays: dict[Tensor, Any] = dict(zip(program.traced.inputs, arrays, strict=True))
        self.token = tokenize(program.data, [a.name for a in arrays])
        self.reference = (program.data, program.key)
        self.count = itertools.count()

    def results(self) -> list[Any]:
        """The program's outputs."""
        chunks = {t: a.chunks for t, a in self.arrays.items()}
        outputs = self.program.traced.outputs
        for step in steps_of(chunks, outputs, self.what):
            self._take(step)
        return [self.arrays[t] for t in outputs]

    def _take(self, step: BlockStep) -> None:
        """The arrays of a step's operations, as a layer of the graph."""
        name = self._name("")
        layer: dict[Any, Any] = {f"{name}-program": DataNode(f"{name}-program", self.reference)}
        tasks = _Tasks(self, name, layer)
        tensors = [t for op in step.ops for t in op.outputs]
        terms = [b for b in itertools.product(*map(_boxes, step.terms)) if _filled(b)] if step.terms is not None else []
        for at, box in _blocks(step.chunks):
            if step.terms is None:
                tasks.block((name, *at), step, box, None)
            else:
                tasks.reduced((name, *at), step, box, terms or [tuple((0, 0) for _ in step.terms)])
        self._extract(name, layer, tensors, step.chunks, tasks.sources)

    def _extract(
        self, name: str, layer: dict[Any, Any], tensors: Sequence[Tensor], chunks: Chunks, sources: Mapping[Tensor, Any]
    ) -> None:
        """An array for each tensor of a layer whose tasks give tuples."""
        graph = HighLevelGraph.from_collections(name, layer, dependencies=list(sources.values()))
        for position, tensor in enumerate(tensors):
            own = f"{name}-{position}"
            keys = {
                (own, *at): Task((own, *at), operator.itemgetter(position), TaskRef((name, *at)))
                for at, _ in _blocks(chunks)
            }
            layers = {**graph.layers, own: keys}
            dependencies = {**graph.dependencies, own: {name}}
            self.arrays[tensor] = da.Array(HighLevelGraph(layers, dependencies), own, chunks, dtype=tensor.dtype.numpy)

    def _name(self, suffix: str) -> str:
        return f"{self.program.routine.name}{suffix}-{self.token}-{next(self.count)}"


class _Tasks:
    """The tasks of one layer."""

    def __init__(self, graph: Graph, name: str, layer: dict[Any, Any]) -> None:
        self.graph, self.name, self.layer = graph, name, layer
        self.sources: dict[Tensor, Any] = {}  # the arrays that some task reads

    def block(self, key: Any, step: BlockStep, box: Box, terms: Box | None) -> Any:
        """The task of one block: it gives the outputs of the step's operations."""
        program = self.graph.program
        given: list[Place] = [program.places[t] for t in self.graph.arrays]
        numbers = {op: program.places[op.output()][0] for op in step.ops}
        job: Job = (tuple(given), tuple((numbers[op], box, terms) for op in step.ops))
        places, pieces = [], []
        for window in program.cropped(job).windows:
            found = list(self._pieces(window))
            places.append(tuple(where for where, _ in found))
            pieces.append(List(*(ref for _, ref in found)))
        self.layer[key] = Task(key, run, TaskRef(f"{self.name}-program"), job, tuple(places), List(*pieces))
        return key

    def reduced(self, key: Any, step: BlockStep, box: Box, terms: Sequence[Box]) -> None:
        """The tasks that reduce parts, and those that combine what they give, a few at a time and in order."""
        (op,) = step.ops
        number = self.graph.program.places[op.output()][0]
        keys = [self.block((f"{self.name}-part", *key[1:], k), step, box, some) for k, some in enumerate(terms)]
        keys = [*self._initial(op, key), *keys]
        level = 0
        while len(keys) > FAN_IN:
            groups = [keys[k : k + FAN_IN] for k in range(0, len(keys), FAN_IN)]
            keys = [(f"{self.name}-sum-{level}", *key[1:], k) for k in range(len(groups))]
            for made, group in zip(keys, groups, strict=True):
                self._combine(made, number, group)
            level += 1
        self._combine(key, number, keys)

    def _combine(self, key: Any, number: int, parts: Sequence[Any]) -> None:
        program = TaskRef(f"{self.name}-program")
        self.layer[key] = Task(key, combined, program, number, List(*map(TaskRef, parts)))

    def _initial(self, op: Any, key: Any) -> list[Any]:
        """What a scatter starts from, as one more part."""
        init = getattr(op, "init", None)
        if init is None:
            return []
        array = self.graph.arrays[init]
        box = tuple((0, n) for n in array.shape)
        found = list(self._pieces(TensorPart(init, box, init)))
        made = (f"{self.name}-init", *key[1:])
        pieces = List(*(ref for _, ref in found))
        self.layer[made] = Task(made, _whole, box, tuple(where for where, _ in found), pieces)
        return [made]

    def _pieces(self, window: TensorPart) -> Iterator[tuple[tuple[slice, ...], Any]]:
        """The parts of chunks that make up a window, with their places in it."""
        array = self.graph.arrays[window.of]
        self.sources[window.of] = array
        along = [list(_overlaps(sizes, *side)) for sizes, side in zip(array.chunks, window.box, strict=True)]
        for parts in itertools.product(*along):
            at = tuple(k for k, _, _ in parts)
            source = (array.name, *at)
            here = tuple(slice(a, b) for _, (a, b), _ in parts)
            where = tuple(slice(a, b) for _, _, (a, b) in parts)
            if all(s.stop - s.start == sizes[k] for s, k, sizes in zip(here, at, array.chunks, strict=True)):
                yield where, TaskRef(source)
                continue
            ends = tuple(end for s in here for end in (s.start, s.stop))
            key = (f"{self.name}-from-{array.name}", *at, *ends)
            if key not in self.layer:
                self.layer[key] = Task(key, part, TaskRef(source), here)
            yield where, TaskRef(key)


def _whole(box: Box, places: Any, pieces: Sequence[Any]) -> tuple[Any, ...]:
    return (assembled(box, list(zip(places, pieces, strict=True))),)


def _boxes(sizes: Sequence[int]) -> list[tuple[int, int]]:
    edges = [0, *itertools.accumulate(sizes)]
    return list(itertools.pairwise(edges))


def _blocks(chunks: Chunks) -> Iterator[tuple[tuple[int, ...], Box]]:
    """The place of each block in the grid, and its box."""
    for parts in itertools.product(*(enumerate(_boxes(sizes)) for sizes in chunks)):
        yield tuple(k for k, _ in parts), tuple(side for _, side in parts)


def _filled(box: Box) -> bool:
    return all(a < b for a, b in box)


def _overlaps(sizes: Sequence[int], low: int, high: int) -> Iterator[tuple[int, tuple[int, int], tuple[int, int]]]:
    """The chunks that [low, high) meets: which, from where to where in it, and where that lies in the result."""
    found = False
    for k, (a, b) in enumerate(_boxes(sizes)):
        begin, end = max(a, low), min(b, high)
        if begin < end or (low == high and not found and a <= low <= b):
            found = True
            yield k, (begin - a, end - a), (begin - low, end - low)
