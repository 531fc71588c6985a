"""LLVM assembly of kernels without Halide's checks, in which a failed allocation is an error again.

Halide leaves this test out with all others. A function that finds no memory returns Halide's code for that, after it
has freed what it allocated before; one that calls it, or lets threads call it, goes on to its end, frees its own
memory, and returns the code then. Whatever is computed meanwhile nobody sees: the call fails.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence, Set

__all__ = ["GuardError", "guarded"]

_NAME = r'(?:[\w.$-]+|"[^"]*")'
_ALLOCATION = re.compile(
    rf"^  (%{_NAME}) = (?:tail )?call (?:noalias )?ptr @halide_malloc\(ptr (?:noundef )?(%{_NAME}), "
)
_RELEASE = re.compile(rf"^  (?:tail )?call void @halide_free\(ptr (?:[a-z]+ )*%{_NAME}, ptr (?:[a-z]+ )*(%{_NAME})\)")
_CALL = re.compile(rf"^  (%{_NAME}) = (?:tail )?call (?:noundef )?i32 @({_NAME})\(")
_ONE_OF = re.compile(rf"^  (%{_NAME}) = (?:phi ptr \[|select i1 [^,]+, ptr )")
_POINTER = re.compile(rf"(?:\[ |, ptr )(%{_NAME}|\w+)")
_LABEL = re.compile(rf"^({_NAME}):")
_DEFINITION = re.compile(rf"^define (.*?)i32 @({_NAME})\(")
_RUNTIME = re.compile(r"call [^@\n]*@(halide_\w+)\(")
_KNOWN = {"halide_malloc", "halide_free", "halide_do_par_for"}
_RETURN = "  ret i32 0"

_HELPER = """
define internal void @te_release(ptr %context, ptr %memory) {
entry:
  %none = icmp eq ptr %memory, null
  br i1 %none, label %end, label %full
full:
  call void @halide_free(ptr %context, ptr %memory)
  br label %end
end:
  ret void
}
"""


class GuardError(ValueError):
    """Assembly that is not of the form known here."""


def guarded(assembly: str) -> str:
    """The same with tests of what was allocated; GuardError where they cannot be put in."""
    if not _KNOWN.issuperset(_RUNTIME.findall(assembly)):
        raise GuardError("a function of the runtime that is not known may fail")
    if "@halide_malloc(" not in assembly:
        return assembly
    fallible = {"halide_do_par_for", *(m[2] for m in map(_DEFINITION.match, assembly.split("\n")) if m is not None)}
    lines: list[str] = []
    body: list[str] = []
    for line in assembly.split("\n"):
        if body or line.startswith("define "):
            body.append(line)
            if line == "}":
                lines += _function(body, fallible)
                body = []
        else:
            lines.append(line)
    text = "\n".join(lines) + _HELPER
    if "@halide_free(" not in assembly:
        text += "declare void @halide_free(ptr, ptr)\n"
    if "declare i32 @halide_error_out_of_memory" not in assembly:
        text += "declare i32 @halide_error_out_of_memory(ptr)\n"
    return text


def _function(lines: list[str], fallible: Set[str]) -> list[str]:
    """One function; one in which nothing can fail stays as it is."""
    memory = [m[1] for m in map(_ALLOCATION.match, lines) if m is not None]
    calls = [line for line in lines if _fails(line, fallible)]
    if sum("@halide_malloc(" in line for line in lines) != len(memory):
        raise GuardError("an allocation of another form")
    if sum(f"call i32 @{name}(" in line for line in lines for name in fallible) != len(calls):
        raise GuardError("a call of another form")
    if not memory and not calls:
        return lines
    head = _DEFINITION.match(lines[0])
    if head is None or "(" in head[1] or any(line.startswith("  ret ") and line != _RETURN for line in lines):
        raise GuardError(f"a function that returns something else: {lines[0]:.80}")
    slots = {name: f"%te.memory.{k}" for k, name in enumerate(memory)}
    made, renamed = _rewritten(lines, slots, fallible)
    return [_with_labels(line, renamed) if " = phi " in line else line for line in made]


def _fails(line: str, fallible: Set[str]) -> str | None:
    """The name of the code that a call returns, if it calls what may find no memory."""
    match = _CALL.match(line)
    return match[1] if match is not None and match[2] in fallible else None


def _rewritten(lines: list[str], slots: dict[str, str], fallible: Set[str]) -> tuple[list[str], dict[str, str]]:
    """The lines with tests, and the blocks that were cut in two, by the label of their second half."""
    made, renamed = [lines[0]], {}
    sources = _sources(lines, slots)
    label, begun, count = "", False, 0
    for line in lines[1:]:
        found = _LABEL.match(line)
        if found is not None:
            label = found[1]
        elif not begun:
            raise GuardError("a function whose first block has no name")
        made.append(line)
        if not begun:
            begun = True
            made += ["  %te.status = alloca i32", "  store i32 0, ptr %te.status"]
            made += [s for slot in slots.values() for s in (f"  {slot} = alloca ptr", f"  store ptr null, ptr {slot}")]
            continue
        allocation, call, release = _ALLOCATION.match(line), _fails(line, fallible), _RELEASE.match(line)
        if allocation is not None:
            made += _tested(allocation, slots, count)
            renamed[label] = f"te.full.{count}"
        elif call is not None:
            made += [
                f"  %te.before.{count} = load i32, ptr %te.status",
                f"  %te.after.{count} = or i32 %te.before.{count}, {call}",
                f"  store i32 %te.after.{count}, ptr %te.status",
            ]
        elif release is not None and release[1] in slots:
            made.insert(-1, f"  store ptr null, ptr {slots[release[1]]}")
        elif release is not None and release[1] in sources:
            made[-1:-1] = _forgotten(release[1], [slots[name] for name in sources[release[1]]], count)
        elif release is not None and len(slots) > 0:
            raise GuardError("what is freed was not allocated in the same function")
        elif line == _RETURN:
            made[-1:] = [f"  %te.code.{count} = load i32, ptr %te.status", f"  ret i32 %te.code.{count}"]
        count += 1
    return made, renamed


def _tested(match: re.Match[str], slots: dict[str, str], count: int) -> list[str]:
    """What follows an allocation."""
    name, context = match[1], match[2]
    freed = [
        text
        for k, slot in enumerate(slots.values())
        for text in (
            f"  %te.held.{count}.{k} = load ptr, ptr {slot}",
            f"  call void @te_release(ptr {context}, ptr %te.held.{count}.{k})",
        )
    ]
    return [
        f"  %te.none.{count} = icmp eq ptr {name}, null",
        f"  br i1 %te.none.{count}, label %te.empty.{count}, label %te.full.{count}",
        f"te.empty.{count}:",
        *freed,
        f"  %te.error.{count} = call i32 @halide_error_out_of_memory(ptr {context})",
        f"  ret i32 %te.error.{count}",
        f"te.full.{count}:",
        f"  store ptr {name}, ptr {slots[name]}",
    ]


def _sources(lines: Sequence[str], slots: Collection[str]) -> dict[str, list[str]]:
    """Of each pointer that is one of several, where all of these are allocations, which they are."""
    operands = {m[1]: _POINTER.findall(line) for line in lines if (m := _ONE_OF.match(line)) is not None}
    found = {}
    for name in operands:
        reached, stack = {name}, [name]
        while stack:
            fresh = [p for p in operands.get(stack.pop(), ()) if p not in reached]
            reached.update(fresh)
            stack += fresh
        leaves = reached - operands.keys()
        if leaves and leaves <= set(slots):
            found[name] = sorted(leaves)
    return found


def _forgotten(freed: str, slots: Iterable[str], count: int) -> list[str]:
    """What precedes the release of one of several allocations: LLVM lets branches that end alike share their end."""
    return [
        text
        for k, slot in enumerate(slots)
        for text in (
            f"  %te.owned.{count}.{k} = load ptr, ptr {slot}",
            f"  %te.same.{count}.{k} = icmp eq ptr %te.owned.{count}.{k}, {freed}",
            f"  %te.left.{count}.{k} = select i1 %te.same.{count}.{k}, ptr null, ptr %te.owned.{count}.{k}",
            f"  store ptr %te.left.{count}.{k}, ptr {slot}",
        )
    ]


def _with_labels(line: str, renamed: dict[str, str]) -> str:
    """A phi whose values come from the second halves."""
    return re.sub(rf", %({_NAME}) \]", lambda m: f", %{renamed.get(m[1], m[1])} ]", line)
