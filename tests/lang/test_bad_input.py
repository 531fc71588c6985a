"""Bad input: each mistake gives the error class of the contract, with what, where, expected and found."""

from __future__ import annotations

import inspect
import math
import pickle
from typing import Any

import numpy as np
import pytest

import tedsl as te
from tedsl.lang.errors import ZeroDivisorError

n = te.var("n")
A = te.placeholder((n, 4), name="A")
v = te.placeholder((8,), name="v")
f = te.placeholder((8,), "bool", name="f")
p = te.placeholder((8,), "int32", name="p")


def recursive() -> Any:
    fib = te.compute((8,), lambda i: te.select(i < 2, 1, fib[i - 1] + fib[i - 2]))
    return fib


def twice() -> Any:
    k = te.reduce_axis(8, "k")
    return te.compute((), lambda: te.sum(te.sum(v[k], axis=k) * v[k], axis=k))


def outside() -> Any:
    kept: list[Any] = []
    te.compute((8,), lambda i: kept.append(i) or v[i])
    return te.compute((8,), lambda j: v[j] + v[kept[0]])


def unbound() -> Any:
    k = te.reduce_axis(8, "k")
    return te.compute((8,), lambda i: v[i] * v[k])


def state_outside() -> Any:
    kept: list[Any] = []
    te.scan((8,), lambda y, t: kept.append(y) or te.select(t == 0, 0.0, y[t - 1]))
    return te.compute((8,), lambda i: kept[0][i])


def state_whole() -> Any:
    kept: list[Any] = []
    te.scan((8,), lambda y, t: kept.append(y) or te.select(t == 0, 0.0, y[t - 1]))
    return kept[0] + 1


def formal_outside() -> Any:
    kept: list[Any] = []
    add = te.reducer(lambda a, b: kept.append(a) or a + b, 0.0)
    te.compute((), lambda: add(v[(k := te.reduce_axis(8, "k"))], axis=k))
    return te.compute((8,), lambda i: v[i] + kept[0])


def axes_of_one(k: Any = None) -> Any:
    k = te.reduce_axis(8, "k")
    return te.compute((), lambda: te.sum(v[k], axis=(k, k)))


CASES: list[tuple[Any, type[Exception], str]] = [
    (lambda: te.compute((8,), lambda i: v[i].sum()), AttributeError, r"a scalar .*'sum'; over an axis it is te.sum\("),
    (lambda: te.compute((8,), lambda i: v[i].foo), AttributeError, "a scalar .* has no attribute 'foo'$"),
    (lambda: np.linalg.det(v), TypeError, "np.linalg.det at .*takes arrays, found v : .*; factorizations are written"),
    (lambda: te.arange("5"), TypeError, "te.arange at .*: expected numbers, found str"),
    (lambda: te.arange(0, 5, [1]), TypeError, "te.arange at .*: expected numbers, found list"),
    (lambda: te.arange(0, 5, 0), ValueError, "te.arange at .*: the step must be a number other than 0, found 0"),
    (lambda: te.tensordot(v, v, len), TypeError, "te.tensordot at .*: axes= takes a number or two lists, found <built"),
    (lambda: te.tensordot(v, v, ("a", 0)), ValueError, "te.tensordot at .*do not pair axes"),
    (lambda: te.scatter((3,), [te.reduce_axis(8)], 0, v[0], op=np.ones(1)), ValueError, "op must be one of add"),
    (lambda: te.random.randint(te.random.key(0), (3,), 0, "9"), ValueError, "expected low below high, both int32"),
    (lambda: te.ops.hardtanh(v, -1, {}), TypeError, "hardtanh at .*argument 'max_val': expected a number, found dict"),
    (lambda: te.ops.dropout(v, "half"), TypeError, "dropout at .*argument 'p': expected a number, found str"),
    (lambda: te.Schedule(v + 1).diff("s"), TypeError, "s.diff at .*: expected a te.Schedule, found str"),
    # rank and shape
    (
        lambda: te.compute((n,), lambda i: A[i] + 1),
        ValueError,
        "expected 2 indices, found 1; inside te.compute every dim",
    ),
    (
        lambda: te.compute((8,), lambda i: v + 1),
        TypeError,
        r"stands where a scalar is expected.*read an element: add\[i\]",
    ),
    (lambda: te.compute((8,), lambda i: v[i, 0]), IndexError, "expected at most 1 indices, found 2"),
    (
        lambda: te.compute((8, 2), lambda i: v[i]),
        ValueError,
        r"the function takes 1 axis \(i\), the shape has 2 dimensions",
    ),
    (lambda: te.compute((8,), lambda i, j: v[i]), ValueError, r"takes 2 axes \(i, j\), the shape has 1 dimensions"),
    (lambda: v.at(0, 1, mode="zero"), ValueError, r"expected 1 indices for v : float32\[8\], found 2"),
    (
        lambda: v.at(0, mode="mirror"),
        ValueError,
        r"mode must be one of error, zero \(.*reflect, wrap \(circular, periodic\); found 'mirror'",
    ),
    (lambda: v.at(0, mode="symmetric"), ValueError, r"'symmetric' twice: te.pad\(.* index by k = te.maximum\("),
    (lambda: v.at(0, mode=("wrap", "zero")), ValueError, "one for all indices, or one for each of the 1, found"),
    (lambda: v.at(0, mode=("round",)), ValueError, "mode must be one of error, zero .*; found 'round'"),
    (lambda: te.pad(v, 1, mode=("wrap", "zero")), ValueError, "one word holds for all axes here, x.at.* one for each"),
    (lambda: te.max(v, 0.0), TypeError, r"axis must be an integer, found 0.0; of two values it is te.maximum\(a, b\)"),
    (lambda: te.min(v, v), TypeError, r"of two values it is te.minimum\(a, b\)"),
    (lambda: te.mean(lambda i: v[i]), TypeError, r"the mean of elements is te.sum\(f\) / their number"),
    (lambda: te.sort(lambda i: v[i]), TypeError, r"found a function; .* te.compute\(shape, f\)"),
    (lambda: te.compute((8,), lambda i: max(v[i], 0)), TypeError, "te.maximum and te.minimum instead of max and min"),
    (lambda: te.var(v, axis=0), TypeError, r"expected a name, found axis=: .*; x.var\(\) is the variance"),
    (lambda: te.ops.softmax(v, dim=0), TypeError, "no argument 'dim'; did you mean 'axis'"),
    (lambda: te.Schedule(v + 1)["add"].inline(), AttributeError, r"no directive 'inline': it is compute_inline\(\)"),
    (lambda: te.Schedule(v + 1)["add"].foo, AttributeError, r"no directive 'foo'; help\(s\['add'\]\) lists them"),
    (lambda: te.jit(lambda x: 3.0)(np.ones(2)), TypeError, r"it returned no tensor \(3.0\)"),
    (lambda: te.testing.check_op(te.exp, "n m", sizes=(2, 4)), TypeError, r"sizes= takes the extents of names, as \{"),
    (lambda: te.ops.optim.clip_by_global_norm(3, 1.0), ValueError, "expected a nest of gradients, found 3"),
    (lambda: te.placeholder((-1,)), ValueError, "an extent cannot be negative, found -1"),
    (lambda: te.compute((2, -3), lambda i, j: 0.0), ValueError, "dimension 1.*cannot be negative, found -3"),
    (lambda: te.reduce_axis(-2), ValueError, "reduce_axis 'k'.*cannot be negative, found -2"),
    (lambda: te.reduce_axis((5, 2), "r"), ValueError, "reduce_axis 'r'.*the end 2 lies before the begin 5"),
    (lambda: te.reduce_axis((1, 2, 3)), ValueError, r"expected \(begin, end\), found 3 numbers"),
    (lambda: te.placeholder((2**31,)), ValueError, "extent 2147483648 does not fit in 32 bits"),
    (lambda: te.placeholder((2**30, 2**30, 2**30)), ValueError, "has 1237940039285380274899124224 elements or more"),
    (lambda: te.placeholder((2.5,)), TypeError, "expected an integer extent, found 2.5"),
    (lambda: te.placeholder((True,)), TypeError, "expected an integer extent, found True"),
    (lambda: te.placeholder(("n",)), TypeError, "expected an integer extent, found 'n'"),
    (lambda: te.placeholder((p[0],)), TypeError, r"may only use numbers and te.var, found `p\[0\]`"),
    (lambda: te.placeholder((3,), "complex64"), TypeError, "dtype 'complex64' is not supported"),
    (lambda: te.var(3), TypeError, "te.var: expected a name, found int"),
    (lambda: te.reduce_axis(3, name=3), TypeError, r"te.reduce_axis: expected a name, found int \(3\)"),
    (lambda: te.placeholder((3,), name=3), TypeError, "te.placeholder: expected a name, found int"),
    (lambda: te.placeholder((3,), None), TypeError, "dtype None is not supported"),
    (lambda: te.placeholder((3,), ">f4"), TypeError, "dtype '>f4' has another byte order than this machine"),
    (lambda: te.placeholder((3,), np.dtype(">i8")), TypeError, "another byte order than this machine; take 'int64'"),
    (lambda: te.cast(v[0], ">f4"), TypeError, "another byte order"),
    (lambda: v.astype(">f8"), TypeError, "another byte order"),
    (lambda: te.const(1, ">i4"), TypeError, "another byte order"),
    (lambda: te.extern(len, (8,), ">f4", [v]), TypeError, "another byte order"),
    (lambda: te.placeholder((3,), "object"), TypeError, "dtype 'object' is not supported"),
    (lambda: te.placeholder((3,), "datetime64[s]"), TypeError, "is not supported"),
    (lambda: te.placeholder((3,), [("x", "f4")]), TypeError, "is not supported"),
    (lambda: te.placeholder((3,), "U3"), TypeError, "is not supported"),
    (lambda: te.compute((8,), lambda i: v[i], name=3), TypeError, "te.compute: expected a name, found int"),
    (lambda: te.compute((8,), lambda i: (v[i], v[i]), name=("a", 3)), TypeError, "expected a name, found int"),
    (lambda: te.scan((8,), lambda y, t: 0.0, name=3), TypeError, "te.scan: expected a name, found int"),
    (lambda: te.scan((8,), lambda y, t: 0.0, name=("a", "b")), ValueError, "2 names for 1 states"),
    (lambda: te.scatter((8,), [(r := te.reduce_axis(8))], r, v[r], name=3), TypeError, "te.scatter: expected a name"),
    # Python asks for a value
    (lambda: v[0] if v[0] > 0 else 0.0, TypeError, "the truth of .* is not known .*test_bad_input.py:.*te.select"),
    (lambda: math.exp(v[0]), TypeError, r"`v\[0\]` is symbolic: .*test_bad_input.py.*of te: te.cos, te.exp"),
    (lambda: float(v.sum()), TypeError, r"sum : float32\[\] has no number .*test_bad_input.py:.*te.evaluate"),
    (lambda: v.__setitem__(0, 1.0), TypeError, "v : .* cannot be assigned to, at .*te.functionalize"),
    (lambda: te.max(v[0], v[1]), TypeError, r"axis= takes te.reduce_axis .* of two values is te.maximum"),
    (lambda: int(v), TypeError, r"v : float32\[8\] has no number"),
    (lambda: range(te.var("n")), TypeError, r"`n` is a size .*, at .*test_bad_input.py.*reduce_axis\(n\)"),
    (lambda: np.add.reduce(v), TypeError, r"np.add.reduce at .*test_bad_input.py.*found v.*; it is te.sum\(x, axis\)"),
    (lambda: np.add.outer(v, v), TypeError, r"np.add.outer at .*; it is x\[:, None\] \+ y\[None\]"),
    (lambda: np.hypot.outer(v, v), TypeError, r"np.hypot.outer at .*; it is that function of x\[:, None\]"),
    (lambda: np.minimum.reduce(v, 0), TypeError, r"np.minimum.reduce with axis= at .*; it is te.min\(x, axis\)"),
    (lambda: np.maximum.accumulate(v), TypeError, r"it is te.ops.cummax\(x, axis\)\[0\]"),
    (lambda: np.hypot.reduce(v), TypeError, "it is te.reducer of such a function"),
    (lambda: np.multiply.at(v, [0], 2.0), TypeError, r"it is x.at\[places\].multiply\(values\)"),
    (lambda: np.select([v > 0], [v]), TypeError, "np.select at .*; it is te.where.*, nested"),
    (
        lambda: te.functionalize(np.maximum.accumulate)(np.ones(3)), TypeError,
        r"np.maximum.accumulate at .*not supported on traced arrays; it is te.ops.cummax",
    ),
    (lambda: np.exp(v, out=np.ones(8)), TypeError, "np.exp with out= at .*takes arrays"),
    (lambda: np.ones(8, "float32") @ v[0], TypeError, "np.matmul at .*takes arrays"),
    (lambda: pickle.dumps(v), TypeError, r"v : float32\[8\] cannot be pickled.*pickle the function"),
    (lambda: pickle.dumps(v[0] + 1), TypeError, r"`v\[0\] \+ 1.0` cannot be pickled"),
    # arrays where tensors are expected
    (
        lambda: te.exp(np.ones((2, 3))),
        TypeError,
        r"te.exp at .*test_bad_input.py.*expected tensors or their elements, found ndarray of shape \(2, 3\); .*; for "
        r"arrays: te.jit\(te.exp\)\(array\), or np.exp\(array\)$",
    ),
    (lambda: te.relu([1.0]), TypeError, r"te.relu at .*found list; .* for arrays: te.jit\(te.relu\)\(array\)$"),
    (lambda: te.logical_and(np.ones(2), True), TypeError, r"te.logical_and at .*, or np.logical_and\(...\)$"),
    (lambda: te.select(np.ones(2), 1, 0), TypeError, r"te.jit\(te.select\)\(...\), or np.where\(...\)$"),
    (lambda: te.cast(np.ones(2), "int32"), TypeError, r"te.jit\(te.cast\)\(array, dtype\)"),
    (lambda: te.sum(np.ones(2)), TypeError, r"te.sum at .* for arrays: te.jit\(te.sum\)\(array\), or np.sum\(array\)$"),
    (lambda: te.max(np.ones(2), axis=0), TypeError, r"te.max at .* for arrays: te.jit\(te.max\)\(array\)"),
    (lambda: te.any([True]), TypeError, r"te.any at .*found list; .* for arrays: te.jit\(te.any\)\(array\)"),
    # indices
    (lambda: v[v[0]], TypeError, r"index 0 of v.*expected an integer, found float32 `v\[0\]`.*te.cast\(x, 'int32'\)"),
    (lambda: v[1.0], TypeError, "expected an integer, found float32"),
    (lambda: v[float("nan")], TypeError, "expected an integer, found float32"),
    (lambda: v.at(float("inf"), mode="clamp"), TypeError, "expected integer indices, found float32"),
    (lambda: v[f[0]], TypeError, "expected an integer, found bool|a mask"),
    (
        lambda: v[8],
        IndexError,
        r"index 8 of dimension 0 of v : float32\[8\] is out of bounds.*expected -8 <= index < 8",
    ),
    (lambda: v[-9], IndexError, "index -9"),
    (lambda: v[1.5:], TypeError, "slice of dimension 0 of v.*a bound must be an integer or .* te.vars, found 1.5"),
    (lambda: v["a":], TypeError, "a bound must be an integer"),
    (lambda: A[: v[0]], TypeError, "a bound must be an integer"),
    # a slice where an element is expected
    (
        lambda: te.compute((4,), lambda i: te.sum(A[i, :])),
        TypeError,
        r"`A\[i, :\]` at .*test_bad_input.py.*inside te.compute read elements, as A\[i, k\]; "
        r"a sum over it is te.sum\(lambda k: A\[i, k\]\)$",
    ),
    (lambda: te.compute((4,), lambda i: A[1:, i]), TypeError, r"`A\[1:, i\]`.*te.sum\(lambda k: A\[k, i\]\)"),
    (lambda: te.compute((4,), lambda i: A[..., i]), TypeError, r"`A\[..., i\]`.*te.sum\(lambda k: A\[k, i\]\)"),
    (lambda: te.compute((4,), lambda k: A[None, k, ::2]), TypeError, r"None, k, ::2\]`.*te.sum\(lambda l: A\[k, l\]\)"),
    (lambda: te.compute((4,), lambda i: A[i, p]), TypeError, r"`A\[i, p\]`.*te.sum\(lambda k: A\[i, p\[k\]\]\)"),
    # scope
    (outside, ValueError, "axis of another compute 'i' is used outside its scope; use the arguments of this function"),
    (unbound, ValueError, r"reduce axis 'k' is used outside its scope; reduce over it with te.sum\(..., axis=...\)"),
    (twice, ValueError, "reduce axis 'k' is used twice, in this reduction and in one inside it"),
    (axes_of_one, ValueError, "reduce axis 'k' is used twice"),
    (recursive, NameError, "a definition cannot read its own result, recurrences are written with te.scan"),
    (state_outside, ValueError, "reads the state of a te.scan outside its body; use the tensor that te.scan returned"),
    (state_whole, ValueError, "reads the state of a te.scan outside its body"),
    (formal_outside, ValueError, "`a` belongs to the combine function of a te.reducer"),
    # conditions
    (lambda: te.select(v[0], 1.0, 2.0), TypeError, r"condition must be bool, found float32 `v\[0\]`.*x != 0"),
    (lambda: te.select(1, v[0], 2.0), TypeError, "condition must be bool, found int32"),
    (lambda: v[0] & f[0], TypeError, "bitand.*expected bool or integer operands; found float32, bool"),
    (lambda: te.sum(v[0], axis=te.reduce_axis(3), where=v[0]), TypeError, "where= must be bool, found float32"),
    (
        lambda: te.any(v[(k := te.reduce_axis(8))], axis=k),
        TypeError,
        "te.any.*expected a bool expression, found float32",
    ),
    (lambda: -f[0], TypeError, "neg.*te.cast them first; found bool"),
    (lambda: f[0] - f[0], TypeError, "sub.*use . or ~ on bools"),
    (lambda: te.cast(p, "int8") + 300, ValueError, "300 is out of range for int8 .*test_bad_input.py"),
    # arithmetic
    (lambda: p[0] // 0, ZeroDivisorError, r"integer floordiv by the constant 0.*`p\[0\]`"),
    (lambda: p[0] % 0, ZeroDivisionError, "integer mod by the constant 0"),
    (lambda: n // 0, ValueError, "by the constant 0"),
    (lambda: p % 0, ZeroDivisorError, "by the constant 0"),
    # reductions
    (lambda: te.sum(v[0]), TypeError, "axis= is missing; give a te.reduce_axis, or a function of the axes"),
    (lambda: te.sum(v[0], axis=3), TypeError, r"axis= takes te.reduce_axis objects, found int \(3\)"),
    (lambda: te.compute((8,), lambda i: te.sum(v[i], axis=i)), TypeError, "found the compute's own axis 'i'"),
    (lambda: te.sum(v[0], axis=()), ValueError, "expected at least one reduce axis"),
    (
        lambda: te.sum(lambda k: v[k], axis=0),  # the number of an axis, and not as many terms
        TypeError,
        r"axis= takes te.reduce_axis objects, or extents, found `0`, but dimension 0 of v : .* read at 'k', has 8; .*"
        r"for a part: lambda k: ..., axis=te.reduce_axis\(0\)$",
    ),
    (lambda: te.sum(lambda k: v[k], axis=n), TypeError, r"found `n`, but .*axis=te.reduce_axis\(n\)$"),
    (lambda: te.sum(lambda k: v[k], axis=(8, 2)), TypeError, r"axis= takes te.reduce_axis objects, found int \(8\)"),
    (lambda: te.placeholder(("rows", 4)), TypeError, r"found 'rows'; .* rows = te.var\('rows'\)$"),
    (lambda: te.placeholder((None, 4)), TypeError, r"found None; .* n = te.var\('n'\)$"),
    (
        lambda: te.scan(lambda c, x: (c + x, c), 0.0, v),
        TypeError,
        r"found a function as the first .* te.scan\(\(T,\), ",
    ),
    (
        lambda: te.scan((8,), lambda s, t: s[t - 1], init=0.0),  # type: ignore[call-overload]
        TypeError,
        r"found init=; lax.scan\(.*te.select\(t == 0, ",
    ),
    (lambda: te.scan((8,), lambda s, t: v[t], keep=1)[7], IndexError, "< 1: keep=1 of te.scan left the last step of 8"),
    (lambda: np.eye(3)[te.placeholder((4,), "int64", name="y")], TypeError, r"eye\(c\) te.ops.one_hot\(y, c\); leave"),
    (lambda: te.build(v.sum(), v), ValueError, r"inputs come first: te.build\(inputs, outputs\)$"),
    (lambda: te.placeholder((3,), "complex64"), TypeError, "write the real and the imaginary parts, as two arrays$"),
    (lambda: v * np.ones(8, "complex64"), TypeError, "write the real and the imaginary parts, as two arrays$"),
    (lambda: 1j * v[0], TypeError, "write the real and the imaginary part, as two expressions$"),
    (lambda: np.linalg.cholesky(p), TypeError, "np.linalg.cholesky at .*; factorizations are written with te.scan"),
    (lambda: np.fft.fft(v), TypeError, "np.fft.fft at .*; there are no Fourier transforms: te.extern"),
    (lambda: te.cholesky(p), AttributeError, "factorizations are written with te.scan"),  # type: ignore[attr-defined]
    (lambda: v.double(), AttributeError, 'write x.astype\\("float64"\\)$'),
    (lambda: v.long(), AttributeError, 'write x.astype\\("int64"\\)$'),
    (
        lambda: te.compute((8,), lambda i: v[i] * np.ones(8).at(i)),  # type: ignore[attr-defined]
        AttributeError,
        r"'at', at .* c = te.constant\(array\)",
    ),
    (lambda: te.differentiate(v.sum(), {"v": v, "rate": 0.1}), TypeError, r"found float 0.1 as inputs\['rate'\]"),
    (
        lambda: te.sum(lambda k, m: v[k], axis=te.reduce_axis(8)),
        ValueError,
        r"the function takes 2 axes \(k, m\), axis= has 1",
    ),
    (lambda: te.compute((8,), lambda i: te.sum(lambda k: v[k], axis=i)), TypeError, "found the compute's own axis 'i'"),
    (lambda: te.sum(v, dim=0), TypeError, "sum at .*test_bad_input.py.*found dim=, expected axis="),
    (
        lambda: te.compute((8,), lambda i: te.sum(lambda k: v.at(i + k - 6, mode="clamp"))),
        ValueError,
        r"range of 'k' cannot be inferred; .*; give the reduction its extent n: te.sum\(lambda k: ..., "
        r"axis=te.reduce_axis\(n\)\)$",
    ),
    (lambda: te.sum(lambda: v[0]), ValueError, "must take one argument per reduce axis"),
    (lambda: te.sum(v, axis=0, where=v), TypeError, "where= takes bools, found v"),
    (lambda: te.reducer(3, 0.0), TypeError, "combine must be a function of two arguments, found 3"),
    (lambda: te.reducer(lambda a: a, 0.0), TypeError, "combine must be a function of two arguments, found <function"),
    (lambda: te.reducer(lambda a, b: a, ()), ValueError, r"identity must be a number or a tuple, found \(\)"),
    (lambda: te.reducer(lambda a, b: a, None), ValueError, "identity must be a number or a tuple, found None"),
    (lambda: te.sum(lambda *k: v[k]), ValueError, "must take one argument per reduce axis"),
    (
        lambda: te.reducer(max, (0.0, 1.0))(v[0], axis=te.reduce_axis(8)),
        ValueError,
        "a tuple of 2 values.*found a single value",
    ),
    (
        lambda: te.reducer(lambda a, b: a < b, 0.0)(v[0], axis=te.reduce_axis(8)),
        TypeError,
        "combine of float32 must return float32, found bool `a < b`",
    ),
    (
        lambda: te.reducer(lambda a, b: (a[0],), (0.0, 0.0))((v[0], v[1]), axis=te.reduce_axis(8)),
        ValueError,
        "combine must return 2 values, found 1",
    ),
    (lambda: te.compute((), lambda: te.max(v[(k := te.reduce_axis(0))], axis=k)), ValueError, "te.max over nothing"),
    (
        lambda: te.argmax(v[0], axis=(te.reduce_axis(2**16), te.reduce_axis(2**16))),
        ValueError,
        "4294967296 positions do not fit in the int32 result",
    ),
    (lambda: te.reducer(lambda a, b: a + b, 0.0)(v[0]), TypeError, "te.reducer defined at .*axis= is missing"),
    (
        lambda: te.reducer(lambda a, b: a + v[k], 0.0)(v[(k := te.reduce_axis(8, "k"))], axis=k),
        ValueError,
        "combine may only use its two arguments, found axis 'k'",
    ),
    # whole tensors
    (lambda: te.roll(A, (1, 2), 0), ValueError, "2 shifts for 1 axes"),
    (lambda: te.roll(v, 1.5, 0), TypeError, "te.roll, shift.*expected an integer, found 1.5"),
    (lambda: te.moveaxis(A, 0, (0, 1)), ValueError, "1 source axes for 2 destinations"),
    (lambda: te.tril(v), ValueError, "te.tril.*expected 2 dimensions or more, found v"),
    (lambda: te.diagonal(v), ValueError, "te.diagonal.*expected 2 dimensions or more"),
    (lambda: te.einsum(v, "i"), TypeError, r"expected the subscripts first, .* found Tensor"),
    (lambda: "x" @ v, TypeError, "te.matmul.*expected a tensor, found str"),
    (lambda: v == None, TypeError, "expected a scalar expression or a tensor of tedsl at .*found NoneType"),  # noqa: E711
    # functions
    (lambda: te.compute((8,), 3), TypeError, "expected a function of the axes, found int"),
    (lambda: te.compute((8,), type), TypeError, "arguments of <class 'type'> are not known.*wrap it in a lambda"),
    (
        lambda: te.placeholder((4,), name="x").at[0].apply(te.exp), AttributeError,
        r"x.at\[...\] has no attribute 'apply'; x.at\[i\].set\(f\(x\[i\]\)\) is what f makes of it",
    ),
    (lambda: te.compute((8,), lambda i: "x"), TypeError, r"must return scalar expressions.*found str \('x'\)"),
    (lambda: te.compute((8,), lambda i: None), TypeError, "found NoneType"),
    (lambda: te.compute((8,), lambda i: ()), ValueError, "the function returned no expression"),
    (lambda: te.compute((8,), lambda i: (v[i], v[i]), name=("a",)), ValueError, "1 names for 2 outputs"),
    (lambda: te.compute((8,), lambda i: v[i] + np.ones(3)), TypeError, r"found ndarray.*te\.constant\(array\)"),
    (lambda: te.compute(lambda *i: v[i]), ValueError, r"give a shape, since \*i does not tell the number of axes"),
    (lambda: te.const("x"), TypeError, r"te.const: expected a number, found str \('x'\)"),
    (lambda: te.const(300, "int8"), ValueError, "300 is out of range for int8"),
    (lambda: te.const(1.5, "int32"), TypeError, "1.5 is no int32: use te.cast to round it"),
    # scan, scatter, extern
    (lambda: te.scan((8,), 3), TypeError, "expected a function of the states and the axes, found int"),
    (lambda: te.scan((8,), lambda y, t: 0.0, axis=1), ValueError, "axis 1 does not exist in a shape of 1 dimensions"),
    (lambda: te.scan((8,), lambda t: 0.0), ValueError, "takes 1 argument; expected the states first, then 1 axis$"),
    (lambda: te.scan((8, 4), lambda u, t: u[t - 1] * 2), ValueError, r"where steps are whole tensors give a list"),
    (lambda: te.compute((8,), lambda i: te.stack([i, i + 1])[0]), TypeError, "expected a tensor, found the element"),
    (lambda: te.scan((8,), lambda a, b, t: 0.0), ValueError, r"expected 2 expressions, one .* \(a, b\), found 1"),
    (lambda: te.scatter((8,), [0], 0, 1.0), TypeError, "axes= takes te.reduce_axis objects, found 0"),
    (
        lambda: te.scatter((8, 8), [(r := te.reduce_axis(8))], r, v[r]),
        ValueError,
        "1 indices for a shape of 2 dimensions",
    ),
    (
        lambda: te.scatter((8,), [(r := te.reduce_axis(8))], v[r], 1.0),
        TypeError,
        "index 0 must be an integer, found float32",
    ),
    (
        lambda: te.scatter((8,), [(r := te.reduce_axis(8))], r, 1.0, op="sub"),
        ValueError,
        "op must be one of add, mul, max, min",
    ),
    (lambda: te.scatter((8,), [(r := te.reduce_axis(8))], r, f[r]), TypeError, "bool values cannot be combined"),
    (
        lambda: te.scatter((8,), [(r := te.reduce_axis(8))], r, 1.0, where=r),
        TypeError,
        "where= must be bool, found int32",
    ),
    (lambda: te.scatter((9,), [(r := te.reduce_axis(8))], r, v[r], init=v), ValueError, "init= must have the shape"),
    (
        lambda: te.scatter((8,), [(r := te.reduce_axis(8))], r, v[r], init=p),
        TypeError,
        "init= is int32, but the values are float32",
    ),
    (lambda: te.scatter((8,), [(r := te.reduce_axis(8, "r")), r], r, 1.0), ValueError, "reduce axis 'r' is used twice"),
    (
        lambda: te.scatter((8,), [(r := te.reduce_axis(8))], r, v[r], init=3),
        TypeError,
        "init= must be a tensor, found int",
    ),
    (lambda: te.extern(3, (8,), "float32", [v]), TypeError, "expected a function of arrays, found int"),
    (lambda: te.extern(len, (8,), "float32", [3]), TypeError, "args must be tensors, found int"),
    (lambda: te.extern(len, [(8,)], ["float32", "int8"], [v]), ValueError, "1 shapes for 2 dtypes"),
]  # fmt: skip


@pytest.mark.parametrize(("mistake", "error", "message"), CASES, ids=[m[:40] for _, _, m in CASES])
def test_mistakes_are_told(mistake: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        mistake()


def test_messages_name_the_line_of_the_user() -> None:
    here = inspect.currentframe()
    assert here is not None
    with pytest.raises(ValueError, match="cannot be negative") as caught:
        te.compute((2, -3), lambda i, j: 0.0)
    assert f"{__file__}:{here.f_lineno - 1}" in str(caught.value)
    with pytest.raises(ValueError, match="do not broadcast") as caught:
        v + te.placeholder((9,))
    assert f"{__file__}:{here.f_lineno - 1}" in str(caught.value)


def test_operations_know_where_they_were_written() -> None:
    here = inspect.currentframe()
    assert here is not None
    y = te.compute((8,), lambda i: te.exp(v[i]))
    assert y.op.where == f"{__file__}:{here.f_lineno - 1}"
    z = v @ v
    assert z.op.where == f"{__file__}:{here.f_lineno - 1}"


def test_after_a_mistake_all_is_as_before() -> None:
    for mistake, error, _ in CASES:
        with pytest.raises(error):
            mistake()
    y = te.compute((8,), lambda i: v[i] * 2)
    assert te.interpret(y, {v: np.ones(8, "float32")}).tolist() == [2.0] * 8
