"""The stages of a program as a picture: inputs on the left, each stage to the right of what it reads.

A layer is the longest way from an input; within a layer, stages are ordered by where their neighbours are, in a fixed
number of sweeps, so that the same program always gives the same picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tedsl.display.markup import escape
from tedsl.lang.printing import kind_of
from tedsl.lang.scalar_text import Names
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["COLOUR", "MOST_STAGES", "stage_graph"]

MOST_STAGES = 60
SWEEPS = 6
HEIGHT, GAP_X, GAP_Y, MARGIN = 38.0, 46.0, 14.0, 6.0
LEGIBLE = 0.75  # a graph wider than the page shrinks to this, and scrolls beyond
CHARACTER, SMALL = 7.4, 6.1  # widths that letters take at most on average
COLOUR = {"input": "green", "reduction": "blue", "scatter": "amber", "scan": "violet", "function": "amber"}


def stage_graph(outputs: Iterable[Tensor], names: Names | None = None) -> str:
    """An SVG of the stages that `outputs` need; empty where there are too many to look at."""
    results = list(outputs)
    stages = stages_of(results)
    if not stages or len(stages) > MOST_STAGES:
        return ""
    final = {t.op for t in results}
    layers = _ordered(_layers(stages), stages)
    names = names or Names()
    titles = {op: _title(op, names) for op in stages}
    boxes = _boxes(layers, titles)
    width = max(x + w for x, _, w in boxes.values()) + MARGIN
    height = max(y for _, y, _ in boxes.values()) + HEIGHT + MARGIN
    edges = [_edge(boxes[t.op], boxes[op]) for op in stages for t in op.inputs if t.op in boxes]
    nodes = [_node(op, titles[op], boxes[op], op in final) for op in stages]
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
        f'style="min-width:{LEGIBLE * width:.0f}px" role="img" '
        f'aria-label="stages of {escape(", ".join(t.name for t in results))}">{"".join(edges)}{"".join(nodes)}</svg>'
    )


def _layers(stages: Sequence[Operation]) -> list[list[Operation]]:
    """Stages by depth; an input stands one layer before its first reader."""
    depth: dict[Operation, int] = {}
    for op in stages:
        depth[op] = max((depth[t.op] + 1 for t in op.inputs if t.op in depth), default=0)
    first: dict[Operation, int] = {}
    for op in stages:
        for t in op.inputs:
            first[t.op] = min(first.get(t.op, 1 << 30), depth[op] - 1)
    for op in stages:
        if not op.inputs and op in first:
            depth[op] = first[op]
    layers: list[list[Operation]] = [[] for _ in range(1 + max(depth.values()))]
    for op in stages:
        layers[depth[op]].append(op)
    return layers


def _ordered(layers: list[list[Operation]], stages: Sequence[Operation]) -> list[list[Operation]]:
    """Each layer sorted by the mean place of the neighbours, forwards and backwards in turn."""
    before = {op: [t.op for t in op.inputs] for op in stages}
    after: dict[Operation, list[Operation]] = {op: [] for op in stages}
    for op in stages:
        for t in op.inputs:
            if t.op in after:
                after[t.op].append(op)
    for sweep in range(SWEEPS):
        neighbours: Mapping[Operation, list[Operation]] = after if sweep % 2 else before
        for layer in reversed(layers) if sweep % 2 else layers:
            place = {op: k / max(1, len(row)) for row in layers for k, op in enumerate(row)}
            layer.sort(key=lambda op: _mean([place[n] for n in neighbours[op] if n in place], place[op]))
    return layers


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _boxes(
    layers: Sequence[Sequence[Operation]], titles: Mapping[Operation, str]
) -> dict[Operation, tuple[float, float, float]]:
    """Left, top and width of each stage; every layer is centred."""
    tallest = max(len(layer) for layer in layers) * (HEIGHT + GAP_Y) - GAP_Y
    boxes: dict[Operation, tuple[float, float, float]] = {}
    x = MARGIN
    for layer in layers:
        width = max(_width(op, titles[op]) for op in layer)
        y = MARGIN + (tallest - len(layer) * (HEIGHT + GAP_Y) + GAP_Y) / 2
        for op in layer:
            boxes[op] = x, y, width
            y += HEIGHT + GAP_Y
        x += width + GAP_X
    return boxes


def _width(op: Operation, title: str) -> float:
    return max(54.0, CHARACTER * len(title) + 20, SMALL * len(_shape(op)) + 20)


def _title(op: Operation, names: Names) -> str:
    listed = ", ".join(names.of(t) for t in op.outputs)
    return listed if len(listed) <= 26 else listed[:25] + "…"


def _shape(op: Operation) -> str:
    first = op.outputs[0]
    text = f"{first.dtype}[{', '.join(map(str, first.shape))}]"
    return text if len(text) <= 32 else text[:31] + "…"


def _edge(source: tuple[float, float, float], target: tuple[float, float, float]) -> str:
    x0, y0 = source[0] + source[2], source[1] + HEIGHT / 2
    x1, y1 = target[0] - 5, target[1] + HEIGHT / 2
    bend = max(GAP_X / 2, (x1 - x0) / 2)
    curve = f"M{x0:.1f} {y0:.1f}C{x0 + bend:.1f} {y0:.1f} {x1 - bend:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
    tip = f"M{x1:.1f} {y1 - 3:.1f}l5 3l-5 3z"
    return f'<path d="{curve}"/><path class="te-tip" d="{tip}"/>'


def _node(op: Operation, title: str, box: tuple[float, float, float], is_final: bool) -> str:
    x, y, width = box
    colour = COLOUR.get(kind_of(op), "")
    middle = x + width / 2
    thick = ' stroke-width="2"' if is_final else ""
    return (
        f'<g class="te-k-{colour or "plain"}"><title>{escape(kind_of(op))}, {escape(op.where)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT:.0f}" rx="7"{thick}/>'
        f'<text x="{middle:.1f}" y="{y + 16:.1f}" text-anchor="middle">{escape(title)}</text>'
        f'<text class="te-sub" x="{middle:.1f}" y="{y + 30:.1f}" text-anchor="middle">{escape(_shape(op))}</text></g>'
    )
