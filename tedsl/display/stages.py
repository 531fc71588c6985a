"""The stages of a program as a picture: inputs on the left, each stage to the right of what it reads.

A layer is the longest way from an input; within a layer, stages are ordered by where their neighbors are, in a fixed
number of sweeps, so that the same program always gives the same picture. An edge over several layers has a place in
each of them, and so goes around the stages there, unless that makes the picture too large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from tedsl.display.markup import escape, svg
from tedsl.lang.printing import kind_of
from tedsl.lang.scalar_text import Names
from tedsl.lang.tensor import Operation, Tensor
from tedsl.lang.traverse import stages_of

__all__ = ["COLOR", "MOST_STAGES", "stage_graph"]

MOST_STAGES = 60
SWEEPS = 6
HEIGHT, GAP_X, GAP_Y, MARGIN = 38.0, 46.0, 14.0, 6.0
BEND = 4.0  # the height that a passing edge takes
MOST_BENDS = 600
CHARACTER, SMALL = 7.4, 6.1  # widths that letters take at most on average
COLOR = {"input": "green", "reduction": "blue", "scatter": "amber", "scan": "violet", "function": "amber"}


class _Bend:
    """Where an edge passes a layer; all edges from one stage pass it together."""

    __slots__ = ()


Node = Operation | _Bend
Box = tuple[float, float, float, float]  # left, top, width, height


def stage_graph(outputs: Iterable[Tensor], names: Names | None = None) -> str:
    """An SVG of the stages that `outputs` need; empty where there are too many to look at."""
    results = list(outputs)
    stages = stages_of(results)
    if not stages or len(stages) > MOST_STAGES:
        return ""
    final = {t.op for t in results}
    layers, routes = _routed(_layers(stages), stages)
    names = names or Names()
    titles = {op: _title(op, names) for op in stages}
    boxes = _boxes(_ordered(layers, routes), titles)
    width = max(x + w for x, _, w, _ in boxes.values()) + MARGIN
    height = max(y + h for _, y, _, h in boxes.values()) + MARGIN
    edges = [_edge([boxes[node] for node in route]) for route in routes]
    nodes = [_node(op, titles[op], boxes[op], op in final) for op in stages]
    return svg(width, height, f"stages of {', '.join(t.name for t in results)}", "".join([*edges, *nodes]))


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


def _routed(
    layers: Sequence[Sequence[Operation]], stages: Sequence[Operation]
) -> tuple[list[list[Node]], list[list[Node]]]:
    """The layers with the bends of edges that pass them, and for each read the nodes that its edge visits."""
    level = {op: k for k, layer in enumerate(layers) for op in layer}
    made: list[list[Node]] = [list(layer) for layer in layers]
    bends: dict[tuple[Operation, int], _Bend] = {}
    routes: list[list[Node]] = []
    for op in stages:
        for source in (t.op for t in op.inputs if t.op in level):
            route: list[Node] = [source]
            for k in range(level[source] + 1, level[op]):
                if (source, k) not in bends:
                    bends[source, k] = _Bend()
                    made[k].append(bends[source, k])
                route.append(bends[source, k])
            routes.append([*route, op])
    if sum(map(len, routes)) - 2 * len(routes) > MOST_BENDS:
        return [list(layer) for layer in layers], [[route[0], route[-1]] for route in routes]
    return made, routes


def _ordered(layers: list[list[Node]], routes: Sequence[Sequence[Node]]) -> list[list[Node]]:
    """Each layer sorted by the mean place of the neighbors, forwards and backwards in turn."""
    before: dict[Node, list[Node]] = {node: [] for layer in layers for node in layer}
    after: dict[Node, list[Node]] = {node: [] for layer in layers for node in layer}
    for a, b in dict.fromkeys(pair for route in routes for pair in pairwise(route)):
        before[b].append(a)
        after[a].append(b)
    for sweep in range(SWEEPS):
        neighbors = after if sweep % 2 else before
        for layer in reversed(layers) if sweep % 2 else layers:
            place = {node: k / max(1, len(row)) for row in layers for k, node in enumerate(row)}
            layer.sort(key=lambda node: _mean([place[n] for n in neighbors[node]], place[node]))
    return layers


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _boxes(layers: Sequence[Sequence[Node]], titles: Mapping[Operation, str]) -> dict[Node, Box]:
    """The box of each node; every layer is centered."""
    heights = [sum(_height(node) + GAP_Y for node in layer) for layer in layers]
    boxes: dict[Node, Box] = {}
    x = MARGIN
    for layer, height in zip(layers, heights, strict=True):
        width = max(_width(node, titles[node]) for node in layer if isinstance(node, Operation))
        y = MARGIN + (max(heights) - height) / 2
        for node in layer:
            boxes[node] = x, y, width, _height(node)
            y += _height(node) + GAP_Y
        x += width + GAP_X
    return boxes


def _height(node: Node) -> float:
    return HEIGHT if isinstance(node, Operation) else BEND


def _width(op: Operation, title: str) -> float:
    return max(54.0, CHARACTER * len(title) + 20, SMALL * len(_shape(op)) + 20)


def _title(op: Operation, names: Names) -> str:
    listed = ", ".join(names.of(t) for t in op.outputs)
    return listed if len(listed) <= 26 else listed[:25] + "…"


def _shape(op: Operation) -> str:
    first = op.outputs[0]
    text = f"{first.dtype}[{', '.join(map(str, first.shape))}]"
    return text if len(text) <= 32 else text[:31] + "…"


def _edge(route: Sequence[Box]) -> str:
    (left, top, width, height), *rest = route
    x, y = left + width, top + height / 2
    curve = f"M{x:.1f} {y:.1f}"
    for k, (left, top, width, height) in enumerate(rest, 1):
        end, level = left - 5 * (k == len(rest)), top + height / 2
        bend = max(GAP_X / 2, (end - x) / 2)
        curve += f"C{x + bend:.1f} {y:.1f} {end - bend:.1f} {level:.1f} {end:.1f} {level:.1f}"
        x, y = end, level
        if k < len(rest):
            x = left + width
            curve += f"H{x:.1f}"
    tip = f"M{x:.1f} {y - 3:.1f}l5 3l-5 3z"
    return f'<path d="{curve}"/><path class="te-tip" d="{tip}"/>'


def _node(op: Operation, title: str, box: Box, is_final: bool) -> str:
    x, y, width, _ = box
    color = COLOR.get(kind_of(op), "")
    middle = x + width / 2
    thick = ' stroke-width="2"' if is_final else ""
    return (
        f'<g class="te-k-{color or "plain"}"><title>{escape(kind_of(op))}, {escape(op.where)}</title>'
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{HEIGHT:.0f}" rx="7"{thick}/>'
        f'<text x="{middle:.1f}" y="{y + 16:.1f}" text-anchor="middle">{escape(title)}</text>'
        f'<text class="te-sub" x="{middle:.1f}" y="{y + 30:.1f}" text-anchor="middle">{escape(_shape(op))}</text></g>\n'
    )
