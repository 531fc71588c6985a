"""Every operator of `te.ops` at three sizes, forward and with gradients, beside PyTorch.

    python -m benchmarks.operators [NAME ...] [--sizes SIZE ...] [--kinds fg] [--threads N ...] [--write]

An operator is compiled as part of a program is: `te.build` of what it makes of tensors. Results are compared first,
then both sides are timed in turns, as `benchmarks.sweep` does; where PyTorch has no such function its users'
composition of others is the peer, and JAX where the numbers are drawn. The ratio is the peer's time over ours.
`--write` puts what was measured into the page `OPERATORS.md` and into `results_operators.json`, beside what was not
measured now.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

import tedsl as te
from benchmarks.operator_lines import LINES, SIZES, UNLISTED, OperatorLine
from benchmarks.sweep import HEAD, KINDS, Line, measured
from tedsl.backend.host.targets import parse_target
from tedsl.backend.host.threads import set_num_threads

__all__ = ["measure", "summary", "table"]

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "results_operators.json", HERE / "OPERATORS.md"
WANTED = 0.8
THREADS = (1, 2)
Row = dict[str, Any]


def measure(line: OperatorLine, size: str, kind: str, threads: int, seconds: float) -> Row:
    """One operator at one size."""
    set_num_threads(threads)
    torch.set_num_threads(threads)
    peers = ("torch",) if line.torch is not None else ("jax",)
    program = line.program(SIZES.index(size))
    found = measured(line.name, program, kind, seconds=seconds, chosen=peers, threads=threads)
    return {
        "name": line.name, "size": size, "kind": kind, "threads": threads, "peer": peers[0], "ratio": found.ratio,
        "ours_ms": found.ours, "build_s": found.build, "fault": found.fault, "arguments": program.text,
    }  # fmt: skip


def _told(row: Row) -> Line:
    text = f"{row['name']}: {row['arguments']}, {row['threads']} threads"
    return Line(text, row["kind"], row["ratio"], row["ours_ms"], row["build_s"], row["fault"], row["peer"])


def summary(rows: Sequence[Row]) -> str:
    """How the ratios of each size, kind and number of threads are distributed."""
    said = ["| size | | threads | operators | least | median | below 0.8 | builds over 3 s | faults |", "|---|" * 9]
    said[1] = "|" + "---|" * 9
    for size, kind, threads in itertools.product(SIZES, KINDS, THREADS):
        mine = [r for r in rows if (r["size"], r["kind"], r["threads"]) == (size, kind, threads)]
        if mine:
            ratios = [r["ratio"] for r in mine]
            faults = sum(bool(r["fault"]) and r["fault"] != "long build" for r in mine)
            said.append(
                f"| {size} | {kind} | {threads} | {len(mine)} | {min(ratios):.2f} | {statistics.median(ratios):.2f} "
                f"| {sum(r < WANTED for r in ratios)} | {sum(r['build_s'] > 3 for r in mine)} | {faults} |"
            )
    return "\n".join(said)


def table(rows: Iterable[Row]) -> str:
    """A line for each operator: ratios on one thread and on two; those below what is wanted stand out."""
    places = list(itertools.product(SIZES, KINDS))
    said = [
        f"| operator | peer | {' | '.join(f'{size}, {kind}' for size, kind in places)} | longest build (s) | |",
        "|" + "---|" * (len(places) + 4),
    ]
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        by_name.setdefault(row["name"], []).append(row)
    for name, mine in by_name.items():
        found = {(r["size"], r["kind"], r["threads"]): r["ratio"] for r in mine}
        cells = [" / ".join(_ratio(found.get((*place, n))) for n in THREADS) for place in places]
        faults = "; ".join(sorted({r["fault"] for r in mine if r["fault"]}))
        ratios = " | ".join("" if not cell.strip(" /") else cell for cell in cells)
        said.append(f"| {name} | {mine[0]['peer']} | {ratios} | {max(r['build_s'] for r in mine):.2f} | {faults} |")
    return "\n".join(said)


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.2f}" if ratio >= WANTED else f"**{ratio:.2f}**"


def write(rows: Iterable[Row]) -> None:
    """Put rows into the file and the page, under the vectors of this processor, in the order of the lines."""
    level = "AVX-512" if parse_target("x86-64-v4").problem is None else "AVX2"
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    known = {_key(row): row for row in kept.get(level, [])} | {_key(row): row for row in rows}
    order = [line.name for line in LINES]
    kept[level] = sorted((r for r in known.values() if r["name"] in order), key=lambda r: order.index(r["name"]))
    KEPT.write_text(
        "{\n" + ",\n".join(f'"{k}": [\n' + ",\n".join(map(json.dumps, v)) + "\n]" for k, v in kept.items()) + "\n}\n"
    )
    begin, end = f"<!-- table {level} -->", f"<!-- end of table {level} -->"
    head, rest = PAGE.read_text().split(begin)
    about = f"{time.strftime('%Y-%m-%d')}, {platform.processor() or platform.machine()}, PyTorch {torch.__version__}."
    said = f"{about}\n\n{summary(kept[level])}\n\n{table(kept[level])}"
    PAGE.write_text(f"{head}{begin}\n{said}\n{end}{rest.split(end)[1]}")


def _key(row: Row) -> tuple[Any, ...]:
    return row["name"], row["size"], row["kind"], row["threads"]


def main() -> None:
    os.environ["TEDSL_CACHE"] = "off"  # building is measured
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", help="measure the lines whose name contains one of these")
    parser.add_argument("--sizes", nargs="*", default=SIZES, choices=SIZES)
    parser.add_argument("--kinds", default="fg", help="f: forward, g: with gradients")
    parser.add_argument("--threads", nargs="*", type=int, default=THREADS)
    parser.add_argument("--seconds", type=float, default=0.2, help="of turns for each figure")
    parser.add_argument("--write", action="store_true", help=f"write to {PAGE.name} and {KEPT.name}")
    chosen = parser.parse_args()
    te.build([], te.compute((1,), lambda i: te.const(1.0), name="warm"))()
    kinds = [kind for kind in KINDS if kind[0] in chosen.kinds.replace("g", "w")]
    print(HEAD, flush=True)
    rows = []
    for line, size, kind, threads in itertools.product(LINES, chosen.sizes, kinds, chosen.threads):
        is_named = not chosen.names or any(n in line.name for n in chosen.names)
        if is_named and (kind == KINDS[0] or line.has_gradient):
            rows.append(measure(line, size, kind, threads, chosen.seconds))
            print(_told(rows[-1]), flush=True)
            if chosen.write:
                write(rows[-1:])  # a run that is ended early loses nothing
    print(f"\n{summary(rows)}\n\n" + "\n".join(f"{name}: left out, {why}" for name, why in UNLISTED.items()))


if __name__ == "__main__":
    main()
