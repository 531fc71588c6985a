"""The texts that go with an exported library: a C header, and a Python module that needs NumPy alone."""

from __future__ import annotations

from tedsl.backend.calling.c_names import parameter_names
from tedsl.lang.dataclass import dataclass

__all__ = ["ExportedFunction", "c_header", "python_module"]

Argument = tuple[str, str, tuple[int, ...]]  # name, dtype, shape

_C_TYPES = {
    "bool": "bool", "int8": "int8_t", "int16": "int16_t", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t",
    "uint16": "uint16_t", "uint32": "uint32_t", "uint64": "uint64_t", "float32": "float", "float64": "double",
    "float16": "uint16_t", "bfloat16": "uint16_t",
}  # fmt: skip


@dataclass(frozen=True)
class ExportedFunction:
    """An exported function."""

    symbol: str
    title: str
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]

    @property
    def names(self) -> list[str]:
        """Names of the arguments in C, inputs first."""
        return parameter_names(label for label, _, _ in (*self.inputs, *self.outputs))


def c_header(signature: ExportedFunction) -> str:
    """The declaration, and what to link."""
    name, count = signature.symbol, len(signature.inputs)
    computed = "the last of these arrays"
    if len(signature.outputs) > 1:
        computed = f"the last {len(signature.outputs)} of these arrays"
    lines = []
    for k, (label, (_, dtype, shape)) in enumerate(
        zip(signature.names, (*signature.inputs, *signature.outputs), strict=True)
    ):
        const, comma = "const " if k < count else "", "," if k + 1 < len(signature.names) else ""
        kept = f", {dtype} as its bits" if "float16" in dtype else ""
        lines.append(f"    {const}{_C_TYPES[dtype]} *{label}{comma}  /* {list(shape)}{kept} */")
    return f"""\
#ifndef TEDSL_{name}_H
#define TEDSL_{name}_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* Computes {computed} from the others; all are dense, the last axis contiguous.
   0, or a code that is not 0, and then {name}_error() says why. Outputs must not overlap other arrays.
   Link with lib{name}.a or lib{name}.so, and with -lpthread -ldl -lm. */
int {name}(
{chr(10).join(lines)}
);

/* What failed in the last call that returned a code. */
const char *{name}_error(void);

#ifdef __cplusplus
}}
#endif

#endif
"""


def python_module(signature: ExportedFunction) -> str:
    """A module with one function of the same name."""
    name, count = signature.symbol, len(signature.inputs)
    names = signature.names[:count]
    return f'''\
{f"{signature.title}: compiled code and NumPy, nothing else."!a}

import ctypes as _ctypes
from pathlib import Path as _Path

import numpy as _numpy

INPUTS = {[(label, _numpy(d), shape) for label, (_, d, shape) in zip(names, signature.inputs, strict=True)]!a}
OUTPUTS = {[(label, _numpy(d), shape) for label, d, shape in signature.outputs]!a}

_library = _ctypes.CDLL(str(_Path(__file__).with_name("lib{name}.so")))
_function = _library.{name}
_function.argtypes = [_ctypes.c_void_p] * {count + len(signature.outputs)}
_library.{name}_error.restype = _ctypes.c_char_p


def {name}(*given):
    """Arrays for INPUTS to a new array for each of OUTPUTS: one, or a tuple of several."""
    if len(given) != len(INPUTS):
        raise TypeError(f"{name} takes {{len(INPUTS)}} arrays, found {{len(given)}}")
    arrays = []
    for (label, dtype, shape), value in zip(INPUTS, given):
        array = _numpy.asarray(value, order="C")
        if array.dtype != dtype or array.shape != shape:
            found = f"{{array.dtype}} of shape {{array.shape}}"
            raise ValueError(f"{{label}}: expected {{dtype}} of shape {{shape}}, found {{found}}")
        arrays.append(array)
    results = [_numpy.empty(shape, dtype) for _, dtype, shape in OUTPUTS]
    code = _function(*(array.ctypes.data for array in (*arrays, *results)))
    if code:
        raise RuntimeError(f"{name} failed with code {{code}}: {{_library.{name}_error().decode()}}")
    return results[0] if len(results) == 1 else tuple(results)
'''


def _numpy(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype
