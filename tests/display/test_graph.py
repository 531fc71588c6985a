"""The picture of the stages: nothing overlaps, every read is an edge to the right."""

from __future__ import annotations

import re

from hypothesis import given, settings

import tedsl as te
from autodiff.strategies import Program, programs
from tedsl.display.nest import nest_tree
from tedsl.display.stages import MOST_STAGES, stage_graph
from tedsl.lang.traverse import stages_of


def boxes(svg: str) -> list[tuple[float, ...]]:
    found = re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"', svg)
    return [tuple(map(float, f)) for f in found]


def levels(svg: str) -> int:
    """How many parts of its edges are level; the file that is told beside a stage may be spelled with an H as well."""
    return sum(path.count("H") for path in re.findall(r'd="(M[^"]*)"', svg))


@settings(max_examples=40)
@given(programs())
def test_boxes_do_not_overlap_and_edges_point_to_the_right(program: Program) -> None:
    svg = stage_graph(program.outputs)
    stages = stages_of(program.outputs)
    found = boxes(svg)
    assert len(found) == len(stages)
    for k, (x, y, w, h) in enumerate(found):
        for x2, y2, w2, h2 in found[:k]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y
    edges = re.findall(r'd="(M[^lz"]*)"', svg)
    assert len(edges) == sum(len(op.inputs) for op in stages)
    for edge in edges:
        x, *curves = [[*map(float, part.split())] for part in re.split("[MCH]", edge)[1:]]
        ends = [x[0], *(curve[-2] if len(curve) == 6 else curve[0] for curve in curves)]
        assert ends == sorted(ends)
        # Through the layers that it passes, an edge is level, and no stage is there.
        for here, after, part in zip(ends, ends[1:], curves):
            level = curves[curves.index(part) - 1][-1]
            if len(part) == 1:
                assert not any(bx < after and here < bx + bw and by < level < by + bh for bx, by, bw, bh in found)


def test_an_edge_goes_around_the_stages_on_its_way() -> None:
    x = te.placeholder((4,), name="x")
    y = te.exp(te.exp(te.exp(x))) + x
    svg = stage_graph([y])
    assert levels(svg) == 3  # level below or above each exponential
    assert levels(stage_graph([te.exp(x)])) == 0


def test_many_long_edges_are_drawn_straight() -> None:
    stages = [te.placeholder((4,), name="x")]
    for _ in range(50):
        stages.append(te.compute((4,), lambda i, read=tuple(stages): sum((t[i] for t in read), te.const(0.0))))
    svg = stage_graph(stages[-1:])
    assert levels(svg) == 0
    assert svg.count("te-tip") == 50 * 51 // 2


def test_a_graph_too_large_to_look_at_is_left_out() -> None:
    x = te.placeholder((4,), name="x")
    y = x
    for _ in range(MOST_STAGES):
        y = te.compute((4,), lambda i, y=y: y[i] + 1)
    assert stage_graph([y]) == ""


def test_the_tree_of_a_nest_says_what_its_text_says() -> None:
    text = """\
for io < (n + 15) // 16, parallel:
  T: what C needs here
  for k < 40:
    if i < 3:
      T[i] += A[i, k] * 2
  C[i] = T[i]
produce f:
  gpu_block<Default_GPU> i in [0, 7]:
    unrolled j:
      f(...) = ..."""
    lines = (
        re.sub(r"<[^>]*>", "", re.sub(r"<br>|</?div[^>]*>", "\n", nest_tree(text)))
        .replace("&lt;", "<")
        .replace("&#160;", " ")
        .splitlines()
    )
    assert [line for line in lines if line] == [
        "for io < (n + 15) // 16 parallel", "  T: what C needs here", "  for k < 40", "    if i < 3:",
        "      T[i] += A[i, k] * 2", "  C[i] = T[i]", "produce f", "  for i < 8 gpu block", "    for j unrolled",
        "      f(...) = ...",
    ]  # fmt: skip
