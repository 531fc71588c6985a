"""Names that Halide and C accept.

Halide inlines a function wherever a call has its name, whatever is called. It tells its functions apart from each
other, but not from what it computes by calls of its own: a function called `abs`, of one dimension, would take the
place of every absolute value in the functions that it is inlined into. And it takes a parameter for the loop of the
same name: a size called n, in a definition over n.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from tedsl.lang.expr import Reduce, Var
from tedsl.lang.tensor import Operation
from tedsl.lang.traverse import topological

__all__ = ["HALIDE_CALLS", "identifier", "size_names", "unused"]

# The members of Halide::Internal::Call::IntrinsicOp.
_CALLS = """
    abs absd add_image_checks_marker alloca bitwise_and bitwise_not bitwise_or bitwise_xor bool_to_mask bundle
    call_cached_indirect_function cast_mask concat_bits count_leading_zeros count_trailing_zeros debug_to_file
    declare_box_touched div_round_to_zero dynamic_shuffle extract_bits extract_mask_element get_runtime_vscale
    get_user_context gpu_thread_barrier halving_add halving_sub hvx_gather hvx_scatter hvx_scatter_acc
    hvx_scatter_release if_then_else if_then_else_mask image_load image_store lerp likely likely_if_innermost
    load_typed_struct_member make_struct memoize_expr mod_round_to_zero mul_shift_right mux popcount prefetch
    profiling_enable_instance_marker promise_clamped random register_destructor require require_mask return_second
    rewrite_buffer round rounding_halving_add rounding_mul_shift_right rounding_shift_left rounding_shift_right
    saturating_add saturating_cast saturating_sub scatter_gather select_mask shift_left shift_right
    signed_integer_overflow size_of_halide_buffer_t skip_stages_marker sliding_window_marker sorted_avg strict_add
    strict_div strict_eq strict_le strict_lt strict_max strict_min strict_mul strict_sub stringify target_arch_is
    target_bits target_has_feature target_natural_vector_size target_os_is undef unreachable unsafe_promise_clamped
    widen_right_add widen_right_mul widen_right_sub widening_add widening_mul widening_shift_left widening_shift_right
    widening_sub
    """
HALIDE_CALLS = frozenset(_CALLS.split())
_FUNCTION_OF_HALIDE = re.compile(r"halide_\w*|\w+_[fiu](8|16|32|64)")  # its runtime, and sqrt_f32 and the like

LONGEST = 200  # characters; LLVM cuts names of a thousand, and then takes two for one
_LOOP_OF_OURS = re.compile(r"r|d\d+|lane|block|thread")  # loops that stand for no axis


def identifier(name: str) -> str:
    """A name that Halide and C accept, and that no call of Halide's own has.

    Two underscores in a row are left to Halide, which writes them where it tells equal names apart.
    """
    text = re.sub(r"[\W_]+", "_", name, flags=re.ASCII).rstrip("_") or "T"
    if text in HALIDE_CALLS or _FUNCTION_OF_HALIDE.fullmatch(text):
        return f"{text}_"
    return f"t{text}" if text[0].isdigit() or text[0] == "_" else text


def unused(base: str, used: set[str]) -> str:
    """This name, or one made of it, that is not used yet."""
    name = next(n for n in (base, *(f"{base}_{k}" for k in range(1, len(used) + 2))) if n not in used)
    used.add(name)
    return name


def size_names(sizes: Iterable[Var], operations: Sequence[Operation], used: set[str]) -> dict[Var, str]:
    """Names for parameters that no loop has, nor one that a schedule makes of a loop and names after it."""
    axes = {a for op in operations for a in getattr(op, "axes", ())}
    nodes = topological([e for op in operations for e in op.expressions])
    axes.update(a for node in nodes if isinstance(node, Reduce) for a in node.axes)
    loops = tuple({identifier(a.name) for a in axes})
    taken = {*used, *loops}
    names = {}
    for size in sizes:
        name = identifier(size.name)
        is_hidden = name.startswith(loops) or _LOOP_OF_OURS.fullmatch(name)
        names[size] = unused(f"{name}__size" if is_hidden else name, taken)
    used.update(names.values())
    return names
