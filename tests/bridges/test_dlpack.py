"""Arrays of libraries that tedsl does not know: in by the exchange protocols without a copy, and out as they came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tedsl as te


class Space:
    """The namespace of `Array`, as the array API has it."""

    @staticmethod
    def from_dlpack(array: Any) -> Array:
        return Array(np.from_dlpack(array))


class Array:
    """Memory that speaks DLPack."""

    def __init__(self, data: np.ndarray[Any, Any], device: int = 1) -> None:
        self.data, self.device = data, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __array_namespace__(self) -> type[Space]:
        return Space


class Interface:
    """Memory that speaks NumPy's interface, and has no library."""

    def __init__(self, data: np.ndarray[Any, Any]) -> None:
        self.data = data

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return dict(self.data.__array_interface__)


@te.op
def doubled(x: te.Tensor) -> te.Tensor:
    return x + x


def test_dlpack_in_and_out() -> None:
    data = np.arange(4.0)
    result = doubled(Array(data))
    assert type(result) is Array
    np.testing.assert_array_equal(result.data, 2 * data)


def test_nothing_is_copied_on_the_way_in() -> None:
    seen: list[int] = []

    @te.op
    def looked_at(x: te.Tensor) -> te.Tensor:
        return te.extern(lambda a: seen.append(a.__array_interface__["data"][0]) or a * 2, x.shape, x.dtype, [x])

    data = np.arange(3.0)
    for array in (Array(data), Interface(data)):
        looked_at(array)
    assert seen == [data.__array_interface__["data"][0]] * 2


def test_an_object_without_a_library_gives_numpy() -> None:
    result = doubled(Interface(np.arange(3.0)))
    assert type(result) is np.ndarray


def test_out() -> None:
    buffer = Interface(np.ones(3))
    assert doubled(Interface(np.arange(3.0)), out=buffer, mode="add") is buffer
    np.testing.assert_array_equal(buffer.data, [1, 3, 5])


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'x' \(Array\) is not in the CPU's memory \(DLPack device 8\)"):
        doubled(Array(np.ones(2), device=8))
    with pytest.raises(TypeError, match=r"argument 'x'.*complex128"):
        doubled(Array(np.ones(2, complex)))
    with pytest.raises(TypeError, match="arrays of different kinds"):
        te.op(lambda x, y: x + y)(Array(np.ones(2)), Interface(np.ones(2)))
