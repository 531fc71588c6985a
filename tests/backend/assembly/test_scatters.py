"""Vectors stored at computed places: where they are scatters, and where single stores stay as they are."""

from __future__ import annotations

import pytest

from tedsl.backend.assembly.scatters import scattered


def stores(lanes: int, *, between: str = "", base: str = "%base", used: str = "", last: int | None = None) -> str:
    """A function that stores `lanes` elements one by one, `between` before the last of them."""
    lines = [f"define void @f(ptr %base, ptr %other, <{lanes} x i32> %at, <{lanes} x float> %of) {{", "entry:"]
    for k in range(lanes):
        is_last = k == lanes - 1
        lane = last if is_last and last is not None else k
        lines += [
            f"  %e{k} = extractelement <{lanes} x i32> %at, i64 {lane}",
            f"  %w{k} = sext i32 %e{k} to i64",
            f"  %p{k} = getelementptr inbounds float, ptr {base if is_last else '%base'}, i64 %w{k}",
            f"  %v{k} = extractelement <{lanes} x float> %of, i64 {k}",
            *([between] if is_last and between else []),
            f"  store float %v{k}, ptr %p{k}, align 4, !tbaa !1",
        ]
    return "\n".join([*lines, *([used] if used else []), "  ret void", "}"])


def made(text: str) -> str:
    return "\n".join(scattered(text.split("\n")))


def test_a_chain_of_stores_becomes_a_scatter() -> None:
    text = made(stores(16))
    assert text.count("call void @llvm.masked.scatter.v16f32.v16p0(<16 x float> %of") == 1
    assert "getelementptr float, ptr %base, <16 x i32> %at" in text
    assert "!tbaa !1" in text
    assert "extractelement" not in text
    assert "  store " not in text


def test_what_others_use_stays() -> None:
    text = made(stores(8, used="  %l = load float, ptr %p3, align 4"))
    assert "masked.scatter" in text
    assert "%p3 = getelementptr" in text
    assert "%e3 = extractelement" in text
    assert "%e2" not in text


@pytest.mark.parametrize(
    "kept",
    [
        stores(16, between="  %l = load float, ptr %other, align 4"),
        stores(16, between="  store float 0.0, ptr %other, align 4"),
        stores(16, between="  call void @g()"),
        stores(16, between="next:"),
        stores(16, base="%other"),
        stores(16, last=3),
        stores(4),
    ],
    ids=["a load between", "a store between", "a call between", "a block's end", "elsewhere", "another lane", "short"],
)
def test_other_stores_stay(kept: str) -> None:
    assert made(kept) == kept
