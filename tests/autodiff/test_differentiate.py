"""The interface of `differentiate`: inputs, heads, overrides, edges, results, errors."""

import copy
import itertools

import numpy as np
import pytest

import tedsl as te
from autodiff import differentiate, gradcheck, hvp, jvp, vjp
from tedsl.lang.traverse import stages_of
from tedsl.reference import interpret

RNG = np.random.default_rng(7)


def placeholder(shape, name, dtype="float64"):
    return te.placeholder(shape, dtype, name=name)


def matmul(a, b, name="C"):
    k = te.reduce_axis(a.shape[1], name="k")
    return te.compute((a.shape[0], b.shape[1]), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name=name)


@pytest.fixture
def product():
    a, b = placeholder((2, 3), "A"), placeholder((3, 4), "B")
    c = matmul(a, b)
    i, j = te.reduce_axis(2), te.reduce_axis(4)
    loss = te.compute((), lambda: te.sum(c[i, j] * c[i, j], axis=(i, j)), name="loss")
    feeds = {a: RNG.normal(size=(2, 3)), b: RNG.normal(size=(3, 4))}
    return a, b, c, loss, feeds


class TestInputs:
    def test_a_list_gives_a_sequence_in_order(self, product):
        a, b, c, loss, feeds = product
        grads = differentiate(loss, [b, a])
        db, da = grads
        assert len(grads) == 2
        assert isinstance(grads, tuple)
        assert copy.deepcopy(grads)[a] is da
        assert da in grads
        assert a not in grads
        assert grads[a] is da
        assert grads[0] is db
        expected = 2 * feeds[a] @ feeds[b]
        got_b, got_a = interpret([db, da], feeds)
        np.testing.assert_allclose(got_a, expected @ feeds[b].T)
        np.testing.assert_allclose(got_b, feeds[a].T @ expected)

    def test_a_single_tensor_gives_a_single_tensor(self, product):
        a, b, c, loss, feeds = product
        assert isinstance(differentiate(loss, a), te.Tensor)

    def test_none_means_every_placeholder_and_all_adjoints(self, product):
        a, b, c, loss, feeds = product
        grads = differentiate(loss)
        assert grads.inputs == (a, b) or [t.name for t in grads.inputs] == ["A", "B"]
        np.testing.assert_allclose(interpret(grads.adjoints[c], feeds), 2 * feeds[a] @ feeds[b])
        assert list(grads.adjoint_summands[c]) == [loss] or next(iter(grads.adjoint_summands[c])) is loss
        assert set(grads.adjoint_summands) == set(grads.adjoints)
        assert grads.adjoint_summands[loss] == {}

    def test_an_intermediate_is_an_input_too(self, product):
        a, b, c, loss, feeds = product
        dc, da = differentiate(loss, [c, a])
        np.testing.assert_allclose(interpret(dc, feeds), 2 * feeds[a] @ feeds[b])
        np.testing.assert_allclose(interpret(da, feeds), 2 * feeds[a] @ feeds[b] @ feeds[b].T)

    def test_an_input_without_a_path_is_zero_and_explain_says_so(self, product):
        a, b, c, loss, feeds = product
        other = placeholder((5,), "other")
        grads = differentiate(loss, [a, other])
        np.testing.assert_array_equal(interpret(grads[other], feeds), np.zeros(5))
        assert "dother is zero" in str(grads.explain())

    def test_what_is_no_tensor_is_named(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(TypeError, match=r"output must be tensors, found int 3, at .*test_differentiate"):
            differentiate(3, a)
        with pytest.raises(TypeError, match="inputs must be tensors, found float"):
            differentiate(loss, 1.0)
        with pytest.raises(TypeError, match=r"a head must be a tensor, an array or a number, found dict"):
            differentiate(loss, a, head={})
        with pytest.raises(TypeError, match=r"the head of .*: expected dtype float64, found complex128"):
            differentiate(loss, a, head=np.ones((), complex))
        with pytest.raises(ValueError, match="1 output but 2 heads"):
            differentiate(loss, a, head=[None, None])
        i = te.reduce_axis(2)
        with pytest.raises(
            TypeError, match=r"output must be tensors, found Read .*; an expression becomes a tensor by"
        ):
            differentiate(a[i, 0], a)
        with pytest.raises(ValueError, match=r"override of A : .* reads no tensor.*; override what reads it"):
            differentiate(loss, a, override={a: lambda tensor, deps, adjoint: []})
        with pytest.raises(ValueError, match=r"output is empty, at .*test_differentiate"):
            differentiate([], a)
        with pytest.raises(TypeError, match="override must be a dict"):
            differentiate(loss, a, override=[a])
        with pytest.raises(TypeError, match="fdiff must be a function"):
            differentiate(loss, a, fdiff=3)

    def test_an_integer_input_is_refused(self):
        idx = te.placeholder((3,), "int32", name="idx")
        x = placeholder((4,), "x")
        y = te.compute((3,), lambda i: x[idx[i]])
        with pytest.raises(TypeError, match=r"idx : int32\[3\].*only floats have gradients"):
            differentiate(y, [idx])
        with pytest.raises(te.GradientError):
            differentiate(y, [idx])
        with pytest.raises(te.GradientError, match="jvp: idx"):
            jvp(y, [x, idx], [placeholder((4,), "v"), te.placeholder((3,), "int32", name="w")])
        assert [t.name for t in differentiate(y, head=placeholder((3,), "h")).inputs] == ["x"]

    def test_an_unknown_adjoint_names_those_there_are(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(KeyError, match="there are adjoints of"):
            differentiate(loss, [a])[placeholder((2,), "stranger")]


class TestHeads:
    def test_a_head_of_the_output_shape(self, product):
        a, b, c, loss, feeds = product
        head = placeholder((2, 4), "head")
        h = RNG.normal(size=(2, 4))
        np.testing.assert_allclose(interpret(differentiate(c, a, head=head), {**feeds, head: h}), h @ feeds[b].T)

    def test_a_prefix_goes_before_the_input_shape(self, product):
        a, b, c, loss, feeds = product
        head = placeholder((5, 6, 2, 4), "head")
        h = RNG.normal(size=(5, 6, 2, 4))
        da = differentiate(c, a, head=head)
        assert da.shape == (5, 6, 2, 3)
        np.testing.assert_allclose(interpret(da, {**feeds, head: h}), h @ feeds[b].T)

    def test_no_head_of_a_tensor_gives_the_jacobian(self, product):
        a, b, c, loss, feeds = product
        jacobian = interpret(differentiate(c, a), feeds)
        assert jacobian.shape == (2, 4, 2, 3)
        np.testing.assert_allclose(jacobian, np.einsum("ip,kj->ijpk", np.eye(2), feeds[b]))

    def test_the_jacobian_of_a_tensor_by_itself_is_the_identity(self):
        x = placeholder((3,), "x")
        np.testing.assert_array_equal(interpret(differentiate(x, x), {x: np.zeros(3)}), np.eye(3))

    def test_several_outputs_add_up(self, product):
        a, b, c, loss, feeds = product
        other = te.compute((2, 3), lambda i, j: te.sin(a[i, j]))
        heads = [placeholder((2, 4), "h0"), placeholder((2, 3), "h1")]
        h0, h1 = RNG.normal(size=(2, 4)), RNG.normal(size=(2, 3))
        da = differentiate([c, other], [a], head=heads)[0]
        got = interpret(da, {**feeds, heads[0]: h0, heads[1]: h1})
        np.testing.assert_allclose(got, h0 @ feeds[b].T + h1 * np.cos(feeds[a]))

    def test_several_outputs_without_heads_are_refused(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(ValueError, match="need head"):
            differentiate([c, loss], [a])

    def test_a_head_of_the_wrong_shape_or_dtype(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(ValueError, match=r"head h : float64\[2, 5\] must have the shape"):
            differentiate(c, a, head=placeholder((2, 5), "h"))
        with pytest.raises(TypeError, match="must be float64"):
            differentiate(c, a, head=placeholder((2, 4), "h", "float32"))

    def test_a_large_jacobian_warns_and_a_huge_one_is_refused(self):
        x = placeholder((6000,), "x")
        y = te.compute((6000,), lambda i: te.exp(x[i]))
        with pytest.warns(ResourceWarning, match="275 MB") as caught:
            differentiate(y, x)
        assert caught[0].filename == __file__
        x = placeholder((30000,), "x")
        y = te.compute((30000,), lambda i: te.exp(x[i]))
        with pytest.raises(ValueError, match="6866 MB") as refused:
            differentiate(y, x)
        assert isinstance(refused.value, te.GradientError)


class TestOverrides:
    def test_one_tensor(self, product):
        a, b, c, loss, feeds = product
        calls = []

        def rule(tensor, deps, adjoint):
            calls.append((tensor, deps, adjoint.shape))
            return [te.compute(dep.shape, lambda i, j, dep=dep: 7.0 * te.cast(dep[i, j], "float64")) for dep in deps]

        grads = differentiate(loss, [a, b], override={c: rule})
        (tensor, deps, shape) = calls[0]
        assert len(calls) == 1
        assert tensor is c
        assert deps[0] is a
        assert deps[1] is b
        assert shape == (2, 4)
        np.testing.assert_allclose(interpret(grads[a], feeds), 7 * feeds[a])

    def test_skipping_stages_and_blocking_a_path(self):
        x, w = placeholder((4,), "x"), placeholder((4,), "w")
        t = te.compute((4,), lambda i: te.exp(x[i]) * w[i], name="t")
        u = te.compute((4,), lambda i: te.log(t[i]), name="u")
        head = placeholder((4,), "head")

        def rule(tensor, deps, adjoint):
            assert tensor is u
            assert deps[0] is x
            return [adjoint, None]

        grads = differentiate(u, [x, w], head=head, override={u: ([x, w], rule)})
        feeds = {x: np.ones(4), w: np.ones(4), head: np.arange(4.0)}
        np.testing.assert_array_equal(interpret(grads[x], feeds), np.arange(4.0))
        np.testing.assert_array_equal(interpret(grads[w], feeds), np.zeros(4))

    def test_in_second_order(self):
        x = placeholder((), "x")
        y = te.compute((), lambda: x * x, name="y")
        z = te.compute((), lambda: te.sin(y), name="z")

        def rule(tensor, deps, adjoint):
            return [te.compute((), lambda: adjoint * te.cos(y))]

        dx = differentiate(z, x, override={z: ([y], rule)})
        ddx = differentiate(dx, x)
        value = 0.7
        expected = 2 * np.cos(value**2) - 4 * value**2 * np.sin(value**2)
        np.testing.assert_allclose(interpret(ddx, {x: np.array(value)}), expected)

    def test_in_a_jacobian_the_adjoint_has_the_prefix(self):
        x = placeholder((3,), "x")
        y = te.compute((3,), lambda i: x[i] * x[i], name="y")
        z = te.compute((3,), lambda i: 2 * y[i], name="z")
        seen = []

        def rule(tensor, deps, adjoint):
            seen.append(adjoint.shape)
            return te.compute(adjoint.shape, lambda p, i: adjoint[p, i] * 2 * x[i])

        jacobian = differentiate(z, x, override={y: rule})
        assert seen == [(3, 3)]
        np.testing.assert_allclose(interpret(jacobian, {x: np.arange(3.0)}), np.diag(4 * np.arange(3.0)))

    def test_never_used(self, product):
        a, b, c, loss, feeds = product
        stray = te.compute((2,), lambda i: a[i, 0], name="stray")
        with pytest.raises(ValueError, match=r"override of stray : float64\[2\] is never used"):
            differentiate(loss, [a], override={stray: lambda t, deps, g: [None]})

    @pytest.mark.parametrize(
        ("result", "error", "message"),
        [
            (lambda t: [placeholder((9,), "bad"), None], ValueError, r"override of 'C' must return shape \(2, 3\)"),
            (lambda t: [placeholder((2, 3), "bad", "float32"), None], TypeError, "must return float64"),
            (lambda t: [None], ValueError, "returned 1 adjoints for 2 dependencies"),
            (lambda t: [object(), None], TypeError, "must return tensors, arrays or numbers, found object"),
        ],
    )
    def test_wrong_results(self, product, result, error, message):
        a, b, c, loss, feeds = product
        with pytest.raises(error, match=message):
            differentiate(loss, [a, b], override={c: lambda t, deps, g: result(t)})

    def test_a_single_gradient_explains_itself_as_several_do(self, product):
        a, b, c, loss, feeds = product
        assert str(differentiate(loss, a).explain()) == str(differentiate(loss, [a]).explain())
        with pytest.raises(TypeError, match=r"is no gradient.*te\.differentiate\(y, x\)\.explain"):
            c.explain()

    def test_explain_tells_what_was_given(self, product):
        a, b, c, loss, feeds = product
        given = differentiate(loss, [a, b], override={c: ([a], lambda t, deps, g: [g @ b.T])}).explain()
        assert [(r.consumer.name, r.source.name) for r in given.reads if r.kind == "override"] == [("C", "A")]
        edges = differentiate(loss, [a, b], fdiff=vjp).explain()
        assert [r.source.name for r in edges.reads if r.kind == "fdiff"] == ["C", "A", "B"]
        assert "C         A" in str(given)

    def test_the_adjoints_of_an_override_may_be_gradients(self, product):
        """Any sequence will do, so that a rule can differentiate another program."""
        a, b, c, loss, feeds = product
        again = a @ b

        def rule(t, deps, g):
            return differentiate(again, deps, head=g)

        found, expected = differentiate(loss, [a, b], override={c: rule}), differentiate(loss, [a, b])
        for have, want in zip(interpret(list(found), feeds), interpret(list(expected), feeds), strict=True):
            np.testing.assert_allclose(have, want)

    def test_a_single_dependency_needs_no_list(self, product):
        a, b, c, loss, feeds = product
        given = te.compute((2, 3), lambda i, j: 7.0 * a[i, j])
        da = differentiate(loss, a, override={c: (a, lambda tensor, deps, adjoint: given)})
        np.testing.assert_allclose(interpret(da, feeds), 7 * feeds[a])

    def test_malformed(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(TypeError, match=r"must be \(deps, fn\) or fn"):
            differentiate(loss, [a], override={c: 3})
        with pytest.raises(TypeError, match="override maps tensors"):
            differentiate(loss, [a], override={"C": lambda *args: None})


class TestEdges:
    def test_fdiff_sees_each_edge_once(self, product):
        a, b, c, loss, feeds = product
        seen = []

        def fdiff(output, source, head):
            seen.append((output, source, head))
            return vjp(output, source, head)

        grads = differentiate(loss, [a, b], fdiff=fdiff)
        assert len(seen) == 3
        assert all(any(o is x and s is y for o, s, _ in seen) for x, y in [(loss, c), (c, a), (c, b)])
        assert all(head is grads.adjoints[output] for output, _, head in seen)
        plain = interpret(list(differentiate(loss, [a, b])), feeds)
        for have, want in zip(interpret(list(grads), feeds), plain, strict=True):
            np.testing.assert_allclose(have, want)

    def test_fdiff_replaces_the_rule(self, product):
        a, b, c, loss, feeds = product

        def fdiff(output, source, head):
            return (
                te.compute(source.shape, lambda i, j: 3.0 * source[i, j]) if output is c else vjp(output, source, head)
            )

        np.testing.assert_allclose(interpret(differentiate(loss, a, fdiff=fdiff), feeds), 3 * feeds[a])

    def test_vjp_refuses_what_is_no_edge(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(ValueError, match="not a direct input"):
            vjp(loss, a, placeholder((), "h"))

    def test_an_extern_needs_an_override(self):
        x = placeholder((3,), "x")
        y = te.extern(np.sin, (3,), "float64", [x])
        head = placeholder((3,), "h")
        with pytest.raises(te.GradientError, match=r"extern 'sin'.*override="):
            differentiate(y, x, head=head)
        rule = lambda t, deps, g: te.compute((3,), lambda i: g[i] * te.cos(x[i]))  # noqa: E731
        feeds = {x: np.arange(3.0), head: np.ones(3)}
        np.testing.assert_allclose(
            interpret(differentiate(y, x, head=head, override={y: rule}), feeds), np.cos(np.arange(3.0))
        )


class TestHigherOrder:
    def test_three_times(self):
        x = placeholder((), "x")
        tensor = te.compute((), lambda: te.sin(x) * x)
        for _ in range(3):
            tensor = differentiate(tensor, x)
        value = 0.3
        np.testing.assert_allclose(interpret(tensor, {x: np.array(value)}), -3 * np.sin(value) - value * np.cos(value))

    def test_hvp_against_the_dense_hessian(self, product):
        a, b, c, loss, feeds = product
        va, vb = placeholder((2, 3), "va"), placeholder((3, 4), "vb")
        directions = {va: RNG.normal(size=(2, 3)), vb: RNG.normal(size=(3, 4))}
        products = hvp(loss, [a, b], [va, vb])
        assert isinstance(products, tuple)
        gradients = list(differentiate(loss, [a, b]))
        step = 1e-6
        moved = [{a: feeds[a] + s * step * directions[va], b: feeds[b] + s * step * directions[vb]} for s in (1, -1)]
        up, down = (interpret(gradients, m) for m in moved)
        for have, hi, lo in zip(interpret(list(products), {**feeds, **directions}), up, down, strict=True):
            np.testing.assert_allclose(have, (hi - lo) / (2 * step), rtol=1e-6, atol=1e-6)

    def test_jvp_of_a_list_is_a_tuple(self, product):
        a, b, c, loss, feeds = product
        va = placeholder((2, 3), "va")
        result = jvp([c, loss], [a], [va])
        assert isinstance(result, tuple)
        tangent = RNG.normal(size=(2, 3))
        dc, dloss = interpret(list(result), {**feeds, va: tangent})
        np.testing.assert_allclose(dc, tangent @ feeds[b])
        np.testing.assert_allclose(dloss, 2 * np.sum(feeds[a] @ feeds[b] * (tangent @ feeds[b])))

    def test_arrays_and_numbers_are_constants_where_tensors_are_given(self, product):
        a, b, c, loss, feeds = product
        ones, other = placeholder((2, 3), "ones"), RNG.normal(size=(2, 3))
        fed = {**feeds, ones: np.ones((2, 3))}
        expected = interpret(hvp(loss, a, ones), fed)
        for given in (np.ones((2, 3)), 1.0, 1, [[1.0] * 3] * 2, np.ones((2, 3), "float32")):
            np.testing.assert_allclose(interpret(hvp(loss, a, given), feeds), expected)
            np.testing.assert_allclose(interpret(jvp(c, a, given), feeds), interpret(jvp(c, a, ones), fed))
        head = np.full((2, 4), 3.0)
        for given in (head, 3.0):
            np.testing.assert_allclose(interpret(differentiate(c, a, head=given), feeds), head @ feeds[b].T)
        for given, wanted in ((other, other), (2.0, np.full((2, 3), 2.0))):
            found = differentiate(loss, a, override={c: ([a], lambda t, deps, adjoint, g=given: [g])})
            np.testing.assert_allclose(interpret(found, feeds), wanted)

    def test_none_is_the_direction_of_an_input_that_stays(self, product):
        a, b, c, loss, feeds = product
        va, vb = RNG.normal(size=(2, 3)), RNG.normal(size=(3, 4))
        np.testing.assert_allclose(interpret(jvp(c, [a, b], [va, None]), feeds), va @ feeds[b])
        np.testing.assert_allclose(interpret(jvp(c, [a, b], [None, vb]), feeds), feeds[a] @ vb)
        np.testing.assert_array_equal(interpret(jvp(c, [a, b], [None, None]), feeds), np.zeros((2, 4)))
        expected = interpret(hvp(loss, [a, b], [va, np.zeros((3, 4))]), feeds)
        for found, wanted in zip(interpret(hvp(loss, [a, b], [va, None]), feeds), expected, strict=True):
            np.testing.assert_allclose(found, wanted)

    def test_bad_tangents(self, product):
        a, b, c, loss, feeds = product
        with pytest.raises(ValueError, match="2 inputs but 1 tangents"):
            jvp(c, [a, b], [a])
        with pytest.raises(TypeError, match="tangents must be tensors, arrays or numbers, found str 'one'"):
            jvp(c, a, "one")
        with pytest.raises(ValueError, match=r"vector of A .* must have its shape and dtype, found .*\[3, 2\]"):
            hvp(loss, a, np.ones((3, 2)))
        with pytest.raises(ValueError, match="must have its shape and dtype"):
            jvp(c, a, b)
        with pytest.raises(ValueError, match="0-rank"):
            hvp(c, a, a)


class TestGradcheck:
    def test_a_right_gradient_passes_and_prints(self, product):
        a, b, c, loss, feeds = product
        report = gradcheck(loss, [a, b], feeds)
        assert report
        assert "adjoint" in str(report)
        assert [p.input for p in report.pairs] == ["A", "B"]

    def test_a_wrong_gradient_is_found_and_told(self, product):
        a, b, c, loss, feeds = product

        def off_by_a_factor(tensor, deps, adjoint):
            return [te.compute((2, 3), lambda i, j: 1.01 * vjp(c, a, adjoint)[i, j]), vjp(c, b, adjoint)]

        with pytest.raises(te.GradientError, match="WRONG"):
            gradcheck(loss, [a, b], feeds, override={c: off_by_a_factor})
        report = gradcheck(loss, [a, b], feeds, override={c: off_by_a_factor}, raise_exception=False)
        assert not report
        assert report.worst.input == "A"

    def test_the_values_of_a_single_input_may_stand_for_themselves(self, product):
        a, b, c, loss, feeds = product
        x, s = placeholder((3,), "x"), placeholder((), "s")
        y = te.compute((3,), lambda i: te.sin(x[i]) * s)
        for values in ([1.0, 2.0, 3.0], (1, 2, 3), [np.ones(3)], np.ones(3), {x: [1, 2, 3], s: 2}):
            report = gradcheck(y, x, values)
            assert report.pairs[0].checked == 3
        assert gradcheck(y, s, 2.0)
        assert gradcheck(y, [s, x], [2, [1, 2, 3]]).values[x].dtype == np.float64
        with pytest.raises(ValueError, match="1 inputs but 2 values"):
            gradcheck(y, x, [np.ones(3), np.ones(3)])

    def test_an_element_is_an_output(self, product):
        a, b, c, loss, feeds = product
        assert gradcheck(c[1, 2] * c[0, 0] + a[0, 0], [a, b])
        da = differentiate(c[1, 2], a)
        np.testing.assert_array_equal(interpret(da[1, 0], feeds), feeds[b][0, 2])

    def test_bad_input(self, product):
        a, b, c, loss, feeds = product
        for outputs, inputs in ((3, a), (loss, 3), ([loss, None], [a])):
            with pytest.raises(TypeError, match=r"gradcheck: (in|out)puts must be tensors.*test_differentiate"):
                gradcheck(outputs, inputs)
        with pytest.raises(TypeError, match=r"keys of values are tensors, found str \('A'\)"):
            gradcheck(loss, [a], {"A": feeds[a]})
        with pytest.raises(te.GradientError, match="gradcheck: idx"):
            gradcheck(loss, te.placeholder((3,), "int32", name="idx"))

    def test_outputs_that_are_large_beside_their_derivatives(self):
        x, large = placeholder((3,), "x"), placeholder((), "large")
        y = te.compute((), lambda: te.sum(lambda i: te.sin(x[i])) + large)
        values = {x: np.linspace(0.3, 0.9, 3), large: 1e6 / 7}
        assert gradcheck(y, x, values)
        assert gradcheck(y, x, {**values, large: 1e15})
        assert not gradcheck(y, x, values, atol=1e-9, rtol=1e-9, raise_exception=False)
        wrong = {y: (x, lambda tensor, deps, adjoint: te.compute((3,), lambda i: 1.01 * adjoint * te.cos(x[i])))}
        assert not gradcheck(y, x, values, override=wrong, raise_exception=False)

    def test_kinks_are_set_aside(self):
        x = placeholder((3,), "x")
        y = te.compute((3,), lambda i: te.abs(x[i]))
        report = gradcheck(y, x, [np.array([0.0, 1.0, -1.0])])
        assert report.pairs[0].kinks <= 1
        assert report.pairs[0].checked >= 2


def test_two_calls_give_the_same_program(product):
    a, b, c, loss, feeds = product
    first, second = (str(differentiate(loss, [a, b]).explain()) for _ in range(2))
    assert first == second


def test_symbolic_sizes():
    n, m = te.var("n"), te.var("m")
    a, x = placeholder((n, m), "A"), placeholder((m,), "x")
    k = te.reduce_axis(m)
    y = te.compute((n,), lambda i: te.tanh(te.sum(a[i, k] * x[k], axis=k)))
    head = placeholder((n,), "head")
    da, dx = differentiate(y, [a, x], head=head)
    for rows, columns in itertools.product([1, 4], [1, 3]):
        A, X, H = RNG.normal(size=(rows, columns)), RNG.normal(size=columns), RNG.normal(size=rows)
        slope = H * (1 - np.tanh(A @ X) ** 2)
        got_a, got_x = interpret([da, dx], {a: A, x: X, head: H})
        np.testing.assert_allclose(got_a, np.outer(slope, X))
        np.testing.assert_allclose(got_x, slope @ A)


def test_the_jacobian_of_a_chain_leads_through_stages_that_read_the_prefix():
    rng = np.random.default_rng(0)
    x, w = te.placeholder((4, 3), "float64", name="x"), te.placeholder((3, 2), "float64", name="w")
    y = te.tanh(x @ w)
    a, b = rng.normal(size=(4, 3)), rng.normal(size=(3, 2))
    slope = 1 - np.tanh(a @ b) ** 2
    expected = np.einsum("ij,ik,jl->ijkl", slope, a, np.eye(2))
    np.testing.assert_allclose(interpret(differentiate(y, w), {x: a, w: b}), expected, atol=1e-14)


@pytest.mark.parametrize("readers", [8, 9, 10, 17, 18, 40])
def test_many_summands_are_added_in_order_by_stages_of_a_few(readers: int) -> None:
    x = te.placeholder((4,), "float32", name="x")
    parts = [te.compute((4,), lambda i, k=k: x[i] * (1.0 + k / 3)) for k in range(readers)]
    heads = [te.placeholder((4,), "float32", name=f"h{k}") for k in range(readers)]
    grads = te.differentiate(parts, [x], head=heads)
    arrays = np.random.default_rng(2).standard_normal((readers, 4)).astype("float32")
    found = te.interpret(grads[x], dict(zip(heads, arrays, strict=True)))
    summands = grads.adjoint_summands[x].values()
    assert len(summands) == readers
    expected = te.interpret(list(summands), dict(zip(heads, arrays, strict=True)))
    total = expected[0]
    for term in expected[1:]:
        total = total + term
    np.testing.assert_array_equal(found, total)
    np.testing.assert_array_equal(te.evaluate(grads[x], dict(zip(heads, arrays, strict=True))), total)
    assert max(len(op.inputs) for op in stages_of([grads[x]])) <= 9


def test_inputs_in_a_nest_give_adjoints_in_that_nest() -> None:
    """A dict was walked through by its keys, and refused for being text."""
    p = {
        "w": te.placeholder((3,), name="w"),
        "layers": [te.placeholder((), name="b"), (te.placeholder((3,), name="c"),)],
    }
    loss = (p["w"] * p["layers"][1][0]).sum() * p["layers"][0]
    grads = te.differentiate(loss, p)
    assert grads.keys() == p.keys()
    assert isinstance(grads["layers"][1], tuple)
    flat = te.differentiate(loss, [p["w"], p["layers"][0], p["layers"][1][0]])
    nested = [grads["w"], grads["layers"][0], grads["layers"][1][0]]
    assert [str(a) for a in nested] == [str(a) for a in flat]
    assert str(grads["w"]._explanation) == str(flat.explanation)


def test_reads_of_loops_written_out_in_python_are_told_once() -> None:
    x, w = te.placeholder((4, 6), name="x"), te.placeholder((6, 6), name="w")
    h = x
    for _ in range(12):
        h = te.tanh(h @ w)
    lines = str(differentiate(h.sum(), w).explain()).splitlines()
    assert len(lines) < 8
    assert sum("12 such reads" in line for line in lines) == 2
    image, taps = te.placeholder((32, 32), name="image"), te.placeholder((5,), name="taps")
    y = te.compute((32, 28), lambda i, j: sum(image[i, j + q] * taps[q] for q in range(5)))
    told = differentiate(y, [image, taps], head=te.ones((32, 28))).explain()
    assert [len(group) for group in told.groups] == [5, 5]
    few = te.compute((32, 28), lambda i, j: sum(image[i, j + q] for q in range(4)))
    assert [len(g) for g in differentiate(few, image, head=te.ones((32, 28))).explain().groups] == [1] * 4


def test_adjoints_are_found_by_name() -> None:
    x = placeholder((3,), "x")
    y = te.exp(x).named("y")
    grads = differentiate((y * y).sum(), [x])
    assert grads.adjoints["y"] is grads["y"] is grads.adjoints[y]
    assert grads.adjoint_summands["y"] is grads.adjoint_summands[y]
    assert grads["x"] is grads[0]
    for found in (grads, grads.adjoints):
        with pytest.raises(KeyError, match=r"no adjoint of 'z' was computed; there are adjoints of: .*y, x"):
            found["z"]
    doubled = differentiate((te.exp(x).named("y") * te.sin(x).named("y")).sum(), [x])
    with pytest.raises(KeyError, match="2 tensors are named 'y'; give the tensor itself"):
        doubled.adjoints["y"]
