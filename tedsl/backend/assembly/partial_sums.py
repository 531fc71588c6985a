"""Sums of products within the steps of a scan as vectors of partial sums, instead of one term after another.

A loop that adds one term after another waits four cycles for each. Where the terms may come in any order
(`Context.product`), it becomes a function of its own, of which LLVM's loop vectorizer makes vectors of partial sums,
the last ones under a mask, or several single ones. Every product is still rounded once with its sum.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence, Set

from tedsl.backend.assembly.products import FLOATS, MarkedProducts
from tedsl.backend.assembly.text import BITS, NAME, Block, FunctionBody, declaring, each_function
from tedsl.backend.host.emit import optimized
from tedsl.lang.dataclass import dataclass

__all__ = ["summed_side_by_side"]

BESIDE = 2  # vectors of partial sums
SINGLY = 4  # numbers instead, where what is read lies apart: gathers take longer
_FLAGS = "((?:n[us]w |inbounds |nuw |nneg |disjoint |exact |samesign )*)"
_LINE = re.compile(rf"^  ({NAME}) = ([a-z]+) {_FLAGS}(.*?)(?:, ![\w.]+ !\d+)*$")
_ARRIVING = re.compile(rf"\[ (.+?), ({NAME}) \]")
_BRANCH = re.compile(rf"^  br i1 ({NAME}), label ({NAME}), label ({NAME})(?:, ![\w.]+ !\d+)*$")
_GROUP = re.compile(r"^attributes (#\d+) = \{ (.*) \}$")
_PROCESSOR = re.compile(r'"(?:target-cpu|target-features|tune-cpu)"="[^"]*"')
_OF_TWO = frozenset(("add", "sub", "mul", "shl", "ashr", "lshr", "and", "or", "xor", "fmul", "fadd", "fsub", "fdiv"))
_KNOWN = _OF_TWO | {
    "phi", "getelementptr", "load", "icmp", "fcmp", "select", "bitcast", "sext", "zext", "trunc", "fneg",
}  # fmt: skip
# Halide's LLVM tells the alignment of a masked load behind its address, ours beside it; one module has one form.
_OLD = re.compile(r"^declare .*@llvm\.masked\.(?:load|gather)\..*, i32 immarg")
_DECLARED = re.compile(r"^(declare .*@llvm\.masked\.(?:load|gather)\.[\w.]+\((?:ptr|<\d+ x ptr>)[^,]*)")
_CALLED = re.compile(r"(@llvm\.masked\.(?:load|gather)\.[\w.]+\()(ptr|<\d+ x ptr>) (?:\w+ )*?align (\d+) ([^,]+)")
_HINTS = """
!0 = distinct !{{!0, !1, !2, !3}}
!1 = !{{!"llvm.loop.vectorize.predicate.enable", i1 {masked}}}
!2 = !{{!"llvm.loop.vectorize.width", i32 {lanes}}}
!3 = !{{!"llvm.loop.interleave.count", i32 {beside}}}
"""


@dataclass(frozen=True)
class _Instruction:
    """A name, what it is, and its operands with their types; a literal is its own text."""

    name: str
    kind: str
    flags: str
    text: str
    operands: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class _Sum:
    """What it is called in an iteration, before the first one and after each; the type."""

    now: str
    begin: str
    after: str
    type: str


@dataclass(frozen=True)
class _Loop:
    """A loop of one block that adds products, the block from which it is entered and the one behind it."""

    block: Block
    body: tuple[_Instruction, ...]
    sums: tuple[_Sum, ...]
    condition: str
    before: str
    behind: str
    ends_when: bool


def summed_side_by_side(lines: list[str], features: Set[str]) -> list[str]:
    """Lines in which loops that add such products, and do nothing else, are calls of functions of their own."""
    if not any(" = shl " in line for line in lines):  # the mark of such a product
        return lines
    made: list[str] = []
    found = each_function(lines, lambda function: _rewritten(function, lines, made, features))
    own = [line for text in made for line in text.split("\n")]
    if any(_OLD.match(line) for line in lines):
        own = [_CALLED.sub(r"\1\2 \4, i32 \3", _DECLARED.sub(r"\1, i32 immarg", line)) for line in own]
    defined = [line for line in own if not line.startswith("declare ")]
    return declaring([*found, *defined], dict.fromkeys(line for line in own if line.startswith("declare ")))


def _rewritten(function: list[str], module: list[str], made: list[str], features: Set[str]) -> list[str]:
    products = MarkedProducts(function)
    if not products.has_loose:
        return function
    body = FunctionBody(function)
    lines = list(function)
    for block in sorted(body.blocks.values(), key=lambda block: -block.begin):
        loop = _loop_at(function, block, products)
        if loop is not None:
            symbol = f"@te.sums.{len(made)}"
            made.append(_function(loop, products, symbol, module, function[0], features))
            lines[block.begin : block.end] = _call(loop, symbol)
    return lines


def _loop_at(function: list[str], block: Block, products: MarkedProducts) -> _Loop | None:
    """The loop that a block is; None if it is none, or does something else."""
    if len(block.leads_to) != 2 or block.label not in block.leads_to:
        return None
    *inside, last = [line for line in function[block.begin : block.end] if line.strip()]
    branch = _BRANCH.match(last)
    body = [_parsed(line) for line in inside]
    if branch is None or None in body:
        return None
    found = tuple(i for i in body if i is not None)
    made = {i.name: i for i in found}
    sums, before = list[_Sum](), ""
    for phi in (i for i in found if i.kind == "phi"):
        arrived = {label: value for value, label in _ARRIVING.findall(phi.text)}
        after = arrived.pop(f"%{block.label}", "")
        if len(arrived) != 1:
            return None
        ((before, begin),) = arrived.items()
        kind = phi.text.partition(" ")[0]
        if kind in FLOATS:
            sums.append(_Sum(phi.name, begin, after, kind))
        elif kind not in ("i32", "i64"):
            return None
    if not sums or len({s.type for s in sums}) > 1 or not all(_is_loose(s, made, products) for s in sums):
        return None
    outside = "\n".join((*function[: block.begin], *function[block.end :]))
    used = set(re.findall(NAME, outside))
    if not used.isdisjoint(made.keys() - {s.after for s in sums}):
        return None
    behind = next(label for label in block.leads_to if label != block.label)
    return _Loop(block, found, tuple(sums), branch[1], before, behind, branch[2] == f"%{behind}")


def _is_loose(own: _Sum, made: Mapping[str, _Instruction], products: MarkedProducts) -> bool:
    """Whether a product that may come anywhere is all that is added."""
    added = made.get(own.after)
    if added is None or added.kind not in ("fadd", "fsub"):
        return False
    names = [name for _, name in added.operands]
    terms = [name for name in names if name != own.now]
    if len(terms) != 1 or (added.kind == "fsub" and names[0] != own.now):
        return False
    used = sum(own.now == name for i in made.values() for _, name in i.operands)
    product = products.marked(terms[0])
    return used == 1 and product is not None and not product.moved and products.is_loosely_marked(terms[0])


def _parsed(line: str) -> _Instruction | None:
    match = _LINE.match(line)
    if match is None or match[2] not in _KNOWN or "<" in match[4]:
        return None
    name, kind, flags, text = match.groups()
    return _Instruction(name, kind, flags, text, () if kind == "phi" else tuple(_operands(kind, text)))


def _operands(kind: str, text: str) -> Iterator[tuple[str, str]]:
    if kind in ("icmp", "fcmp"):
        text = text.partition(" ")[2]
    type_ = ""
    for part in text.partition(" to ")[0].split(", "):
        before, _, name = part.rpartition(" ")
        type_ = before or type_
        if name.startswith("%"):
            yield type_, name


def _function(
    loop: _Loop, products: MarkedProducts, symbol: str, module: Sequence[str], head: str, features: Set[str]
) -> str:  # fmt: skip
    """The function that a loop becomes, vectorized."""
    lanes, beside = (512 if "avx512f" in features else 256) // BITS[loop.sums[0].type], BESIDE
    if _is_strided(loop):
        lanes, beside = 1, SINGLY
    given = _given(loop)
    renamed = {i.name: f"%v{k}" for k, i in enumerate(loop.body)}
    renamed |= {name: f"%a{k}" for k, name in enumerate(given)}
    # The vectorizer would make two loops for strides that it does not know, vectors for 1 alone.
    strides = {n for i in loop.body if i.kind in ("mul", "shl") for t, n in i.operands if n in given and t == "i64"}
    hidden = [f"  {renamed[n]}s = add i64 {renamed[n]}, %zero" for n in given if n in strides]
    sums = {s.after for s in loop.sums}
    inside = [_line(i, products, sums, strides, renamed, loop) for i in loop.body]
    types = [s.type for s in loop.sums]
    result = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
    ends = ("%exit", "%loop") if loop.ends_when else ("%loop", "%exit")
    parameters = ", ".join([*(f"{t} {renamed[n]}" for n, t in given.items()), "i64 %zero"])
    text = "\n".join((
        *(line for line in module if line.startswith("target ")),
        f"define {result} {symbol}({parameters}) {_processor(module, head, features)} {{",
        "entry:", *hidden, "  br label %loop", "loop:", *inside,
        f"  br i1 {renamed[loop.condition]}, label {ends[0]}, label {ends[1]}, !llvm.loop !0",
        "exit:", *_returned([renamed[s.after] for s in loop.sums], types, result),
        "}", _HINTS.format(lanes=lanes, beside=beside, masked="true" if lanes > 1 else "false"),
    ))  # fmt: skip
    return _vectorized(text)


def _is_strided(loop: _Loop) -> bool:
    """Whether something is read of which one iteration is not beside the next."""
    moving = {i.name for i in loop.body if i.kind == "phi"} - {s.now for s in loop.sums}
    for each in loop.body:
        if not moving.isdisjoint(name for _, name in each.operands):
            if each.kind in ("mul", "shl"):
                return True
            if each.kind != "load":
                moving.add(each.name)
    return False


def _given(loop: _Loop) -> dict[str, str]:
    """What comes from outside of a loop, with types."""
    own, found = {i.name for i in loop.body}, dict[str, str]()
    for each in loop.body:
        if each.kind == "phi":
            kind = each.text.partition(" ")[0]
            found.update((v, kind) for v, label in _ARRIVING.findall(each.text) if label == loop.before and v[0] == "%")
        for kind, name in each.operands:
            if name not in own:
                found[name] = kind
    return found


def _line(
    own: _Instruction,
    products: MarkedProducts,
    sums: Set[str],
    strides: Set[str],
    renamed: Mapping[str, str],
    loop: _Loop,
) -> str:
    """An instruction in the function of its loop."""
    flags, text, kind = own.flags, own.text, own.kind
    if kind == "phi":
        text = text.replace(f"%{loop.block.label} ]", "%loop ]").replace(f"{loop.before} ]", "%entry ]")
        values = iter(_ARRIVING.findall(text))
        arriving = ", ".join(f"[ {renamed.get(value, value)}, {label} ]" for value, label in values)
        return f"  {renamed[own.name]} = phi {text.partition(' ')[0]} {arriving}"
    known = products.made.get(own.name) if kind == "xor" else None
    if known is not None and (without := products.without_mark(own.name, known)) is not None:
        text = without.partition(" = xor ")[2]
    if own.name in sums:
        flags = "reassoc contract "
    elif kind == "fmul":
        flags = "contract "

    def moved(match: re.Match[str]) -> str:
        name = renamed[match[0]]
        return f"{name}s" if kind in ("mul", "shl") and match[0] in strides else name

    return f"  {renamed[own.name]} = {kind} {flags}{re.sub(NAME, moved, text)}"


def _returned(names: Sequence[str], types: Sequence[str], result: str) -> list[str]:
    if len(names) == 1:
        return [f"  ret {result} {names[0]}"]
    lines, whole = list[str](), "poison"
    for k, (name, type_) in enumerate(zip(names, types, strict=True)):
        lines.append(f"  %r{k} = insertvalue {result} {whole}, {type_} {name}, {k}")
        whole = f"%r{k}"
    return [*lines, f"  ret {result} {whole}"]


def _processor(module: Sequence[str], head: str, features: Set[str]) -> str:
    """The attributes of a function that say for which processor it is."""
    groups = {m[1]: m[2] for line in module if (m := _GROUP.match(line)) is not None}
    group = re.search(r"(#\d+) ", head)
    own = _PROCESSOR.findall(groups.get(group[1], "")) if group is not None else []
    return " ".join([*own, *(['"prefer-vector-width"="512"'] if "avx512f" in features else [])])


@functools.lru_cache(maxsize=256)
def _vectorized(text: str) -> str:
    """The lines of the function, and what it declares, without metadata and groups of attributes."""
    lines = optimized(text).split("\n")
    groups = {m[1]: m[2] for line in lines if (m := _GROUP.match(line)) is not None}
    begin = next(k for k, line in enumerate(lines) if line.startswith("define "))
    end = lines.index("}", begin)
    found = [line for line in lines if line.startswith("declare ")] + lines[begin : end + 1]
    inline = [re.sub(r" (#\d+)(?=$| \{$)", lambda m: f" {groups[m[1]]}", line) for line in found]
    bare = [re.sub(r"(?:, ![\w.]+ !\d+)+$", "", line) for line in inline]
    return "\n".join(re.sub(r"^define ", "define internal ", line) for line in bare)


def _call(loop: _Loop, symbol: str) -> list[str]:
    """What stands in the place of a loop."""
    types, given = [s.type for s in loop.sums], _given(loop)
    result = types[0] if len(types) == 1 else f"{{ {', '.join(types)} }}"
    arguments = ", ".join([*(f"{kind} {name}" for name, kind in given.items()), "i64 0"])
    jump = ["", f"  br label %{loop.behind}", ""]
    if len(types) == 1:
        return [f"  {loop.sums[0].after} = call {result} {symbol}({arguments})", *jump[1:]]
    whole = f"%te.sums.{symbol.rpartition('.')[2]}"
    in_order = sorted(enumerate(loop.sums), key=lambda known: _number(known[1].after))
    values = [f"  {s.after} = extractvalue {result} {whole}, {k}" for k, s in in_order]
    return [f"  {whole} = call {result} {symbol}({arguments})", *values, *jump[1:]]


def _number(name: str) -> int:
    """Where a value has to stand among those without names, which LLVM counts as they come."""
    return int(name[1:]) if name[1:].isdigit() else -1
