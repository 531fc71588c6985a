"""Recipes: schedules of one stage as values that can be named, joined and applied to many stages.

    register_tile = then(tile("i", "j", 8, 48), vectorize("ji", 16), unroll("ii"), parallel("io"))
    s.apply(C, register_tile)

A recipe names loops by text; those that a directive makes have the names that the methods of a stage give them:
`tile("i", "j", ...)` makes io, jo, ii, ji.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from schedules.stage_view import StageView
from tedsl.lang.dataclass import dataclass

__all__ = [
    "Recipe",
    "RecipeCall",
    "align_storage",
    "always_partition",
    "async_",
    "atomic",
    "bound",
    "bound_extent",
    "cache_read",
    "cache_write",
    "clone_in",
    "compute_at",
    "compute_inline",
    "compute_root",
    "compute_with",
    "cut_at",
    "fold_storage",
    "fuse",
    "gpu_blocks",
    "gpu_single_thread",
    "gpu_threads",
    "gpu_tile",
    "hoist_storage",
    "init",
    "never_partition",
    "pack",
    "parallel",
    "prefetch",
    "reorder",
    "reorder_storage",
    "rfactor",
    "specialize",
    "split",
    "store_at",
    "store_in",
    "store_root",
    "then",
    "tile",
    "unroll",
    "unswitch",
    "vectorize",
]  # fmt: skip


@dataclass(frozen=True)
class RecipeCall:
    """One directive of a recipe: a method of a stage and its arguments."""

    verb: str
    arguments: tuple[Any, ...]
    definition: str = "body"

    def __str__(self) -> str:
        text = f"{self.verb}({', '.join(map(repr, self.arguments))})"
        return text if self.definition == "body" else f"init({text})"


@dataclass(frozen=True)
class Recipe:
    """Directives for one stage, in order."""

    calls: tuple[RecipeCall, ...]

    def __call__(self, view: StageView) -> StageView:
        """Give the directives to a stage; all of them, or none where one is refused."""
        schedule = view.schedule
        before = schedule.plan, schedule.steps
        try:
            for call in self.calls:
                part = view if call.definition == "body" else view.init
                getattr(part, call.verb)(*call.arguments)
        except Exception:
            schedule.plan, schedule.steps = before
            raise
        return view

    def __str__(self) -> str:
        texts = ", ".join(map(str, self.calls))
        return texts if len(self.calls) == 1 else f"then({texts})"


def then(*recipes: Recipe) -> Recipe:
    """One recipe after another."""
    return Recipe(tuple(call for recipe in recipes for call in recipe.calls))


def init(*recipes: Recipe) -> Recipe:
    """The same for the loops that fill in the identity."""
    return Recipe(tuple(RecipeCall(c.verb, c.arguments, "init") for c in then(*recipes).calls))


def _verb(name: str) -> Callable[..., Recipe]:
    def recipe(*arguments: Any) -> Recipe:
        return Recipe((RecipeCall(name, arguments),))

    recipe.__name__ = recipe.__qualname__ = name
    recipe.__doc__ = f"`{name}` of a stage, as a recipe."
    return recipe


split, tile, fuse, reorder = map(_verb, ("split", "tile", "fuse", "reorder"))
unroll, vectorize, parallel, prefetch = map(_verb, ("unroll", "vectorize", "parallel", "prefetch"))
compute_at, compute_root, compute_inline = map(_verb, ("compute_at", "compute_root", "compute_inline"))
store_at, store_root, store_in = map(_verb, ("store_at", "store_root", "store_in"))
align_storage, bound, fold_storage, hoist_storage, async_ = map(
    _verb, ("align_storage", "bound", "fold_storage", "hoist_storage", "async_")
)
clone_in, compute_with, specialize = map(_verb, ("clone_in", "compute_with", "specialize"))
never_partition, always_partition = map(_verb, ("never_partition", "always_partition"))
cut_at, unswitch = map(_verb, ("cut_at", "unswitch"))
reorder_storage, bound_extent = map(_verb, ("reorder_storage", "bound_extent"))
cache_read, cache_write, rfactor, pack = map(_verb, ("cache_read", "cache_write", "rfactor", "pack"))
gpu_tile, gpu_blocks = map(_verb, ("gpu_tile", "gpu_blocks"))
gpu_threads, gpu_single_thread, atomic = map(_verb, ("gpu_threads", "gpu_single_thread", "atomic"))
