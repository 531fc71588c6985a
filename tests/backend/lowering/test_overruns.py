"""What a kernel says of an index out of bounds: which element it is, as the reference says it, point by point."""

import re
import tracemalloc

import numpy as np
import pytest

import tedsl as te

n = te.var("n")
TABLE = te.placeholder((10, 4), name="x")
INDEX = te.placeholder((n,), "int32", name="idx")
PLACES = np.array([3, 0, 9, 12, 2, -5, 7], "int32")


def told(kern, feeds):
    with pytest.raises(IndexError) as error:
        kern(*feeds)
    return str(error.value)


def looked_up():
    return te.compute((n, 4), lambda i, j: TABLE[INDEX[i], j], name="y")


def counted():
    r = te.reduce_axis(n, name="r")
    return te.scatter((10,), axes=[r], index=(INDEX[r] + 1,), value=TABLE[0, 0], name="counts")


def guarded():
    return te.compute((n,), lambda i: te.select(INDEX[i] >= 0, TABLE[INDEX[i], 1], 0), name="y")


def twice():
    return te.compute((n,), lambda i: te.sum(lambda k: TABLE[INDEX[te.abs(INDEX[k])], 0]), name="y")


def behind():
    doubled = te.compute((n,), lambda i: INDEX[i] * 2, name="doubled")
    return te.compute((n,), lambda i: TABLE[doubled[i], 0] + TABLE[i % 4, 1], name="y")


def stepwise():
    return te.scan((n,), lambda h, t: te.select(t == 0, TABLE[0, 0], h[t - 1] + TABLE[INDEX[t], 0]), name="h")


def own_steps():
    return te.scan((n,), lambda h, t: te.select(t == 0, TABLE[0, 0], h[INDEX[t] - 2] + t), name="h")


@pytest.mark.parametrize("make", [looked_up, counted, guarded, twice, behind, stepwise, own_steps])
def test_kernel_and_reference_name_the_same_element(make):
    outputs = make()
    feeds = {TABLE: np.ones((10, 4), "float32"), INDEX: PLACES}
    if outputs.op.name == "h":
        feeds[INDEX] = np.array([3, 0, 9, 12, 2, 5, 7], "int32")
    with pytest.raises(IndexError) as error:
        te.interpret(outputs, feeds)
    kern = te.build([TABLE, INDEX], outputs)
    said = [told(kern, feeds.values()) for _ in range(2)]  # a prepared call says no less
    if make is stepwise:  # the reference looks at one step after another, and has not seen the others
        assert "is out of bounds: it is 12 at t = 3, where idx[3] is 12 (its range: 0 to 12)" in said[0]
        said = [text.replace("0 to 12", "12 to 12") for text in said]
    assert said == [str(error.value)] * 2


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (looked_up, "it is 12 at i = 3, j = 0, where idx[3] is 12 (its range: -5 to 12)"),
        (counted, "it is 10 at r = 2, where idx[2] is 9 (its range: -4 to 13)"),
        (guarded, "it is 12 at i = 3, where idx[3] is 12 (its range: 0 to 12)"),
        (twice, "it is 9 at k = 2, where idx[2] is 9 (its range: 0 to 12)"),
        (behind, "it is 18 at i = 2, where doubled[2] is 18 (its range: -10 to 24)"),
    ],
)
def test_element_value_and_range_are_those_of_the_data(make, text):
    assert text in told(te.build([TABLE, INDEX], make()), [np.ones((10, 4), "float32"), PLACES])


def test_steps_of_a_program_name_their_elements():
    sent = te.extern(lambda a: a + 1, (n,), "int32", [INDEX], name="sent")
    y = te.compute((n,), lambda i: TABLE[sent[i], 0], name="y")
    text = told(te.build([TABLE, INDEX], y), [np.ones((10, 4), "float32"), PLACES])
    assert "it is 10 at i = 2, where sent[2] is 10 (its range: -4 to 13)" in text


def test_range_is_that_of_all_points_of_a_large_array():
    places = np.arange(3_000_000, dtype="int32") % 10
    places[[10, 2_999_999]] = 11, -7
    y = te.compute((n,), lambda i: TABLE[INDEX[i], 0], name="y")
    text = told(te.build([TABLE, INDEX], y), [np.ones((10, 4), "float32"), places])
    assert "it is 11 at i = 10, where idx[10] is 11 (its range: -7 to 11)" in text


def test_what_is_too_much_to_look_at_is_told_by_its_extremes(monkeypatch):
    monkeypatch.setattr("tedsl.reference.overruns.MOST_POINTS", 3)
    text = told(te.build([TABLE, INDEX], looked_up()), [np.ones((10, 4), "float32"), PLACES])
    assert "it is -5 (those outside: -5 to 12), expected 0 <= index < 10" in text


def test_numbers_beyond_int32_are_told_as_they_are():
    far = te.placeholder((n,), "int64", name="far")
    y = te.compute((n,), lambda i: TABLE[far[i], 0], name="y")
    text = told(te.build([TABLE, far], y), [np.ones((10, 4), "float32"), np.array([1, 2**40])])
    assert f"it is {2**40} at i = 1, where far[1] is {2**40}" in text


def test_a_table_that_is_read_is_not_copied():
    table = te.placeholder((n, 8), name="table")
    places = te.placeholder((2,), "int32", name="places")
    kern = te.build([table, places], te.compute((2, 8), lambda i, j: table[places[i], j], name="y"))
    large = np.zeros((500_000, 8), "float32")
    kern(large, np.zeros(2, "int32"))
    tracemalloc.start()
    text = told(kern, [large, np.array([1, 500_000], "int32")])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "it is 500000 at i = 1, j = 0, where places[1] is 500000" in text
    assert most < large.nbytes / 4


@pytest.mark.parametrize("size", [8, 64, 200])
def test_it_is_said_of_what_the_user_defined_not_of_what_a_schedule_makes_of_it(size):
    """The rows are reduced by lanes, in a stage of its own with loops of its own."""
    x, rows = te.placeholder((size, size), name="x"), te.placeholder((size,), "int32", name="rows")
    largest = te.compute((size,), lambda i: te.max(lambda k: x[rows[i], k]), name="largest")
    total = te.compute((), lambda: te.sum(lambda i: largest[i] * largest[i]), name="total")
    places = np.arange(size, dtype="int32")
    places[5] = -2
    for outputs in (largest, [largest, total]):
        message = told(te.build([x, rows], outputs), (np.ones((size, size), "float32"), places))
        assert message.startswith(f"compute 'largest' at {__file__}")
        assert f"it is -2 at i = 5, k = 0, where rows[5] is -2 (its range: -2 to {size - 1})" in message


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64"])
@pytest.mark.parametrize("place", [(0, 0), (131, 17), (299, 299)])
def test_one_element_of_many_is_found_wherever_it_is(dtype, place):
    """So many that threads look for it, in pieces whose last one is shorter."""
    index = te.placeholder((300, 300), dtype, name="index")
    x = te.placeholder((300, 100), name="x")
    y = te.compute((300, 300), lambda i, j: x[i, index[j, i]], name="y")  # looked at in the order of memory
    kern = te.build([x, index], y)
    nest = str(kern.loop_nest())
    assert "parallel task" in nest.partition("consume lanes_y")[0]
    places = np.full((300, 300), 99, dtype)
    values = np.arange(30000, dtype="float32").reshape(300, 100)
    assert np.array_equal(kern(values, places), np.broadcast_to(values[:, 99:], (300, 300)))
    out = np.full((300, 300), 7, "float32")
    places[place] = wrong = -1 if dtype[0] == "i" else 255
    with pytest.raises(IndexError, match=f"it is {wrong} at i = {place[1]}, j = {place[0]}"):
        kern(values, places, out=out)
    assert (out == 7).all()  # nothing is written


@pytest.mark.parametrize("shape", [(3, 30011), (70001,), (20, 3500), (7000, 11), (1, 65536), (40, 40, 3, 17)])
def test_pieces_of_any_loop_cover_all_of_it(shape):
    index, x = te.placeholder(shape, "int64", name="index"), te.placeholder((5,), name="x")
    kern = te.build([x, index], te.compute(shape, lambda *i: x[index[i]], name="y"))
    assert "parallel task" in str(kern.loop_nest()).partition("consume lanes_y")[0]
    values, places = np.arange(5, dtype="float32"), np.full(shape, 2, "int64")
    assert (kern(values, places) == 2).all()
    for place in (0, 17, np.prod(shape) // 2, np.prod(shape) - 1):
        places.flat[place] = 5 + place
        assert f"index[{', '.join(map(str, np.unravel_index(place, shape)))}] is {5 + place}" in told(
            kern, [values, places]
        )
        places.flat[place] = 2


def test_a_lookup_and_its_gradient_have_one_check():
    index, x = te.placeholder((8, 50), "int64", name="index"), te.placeholder((8, 30), name="x")
    y = te.ops.gather(x, 1, index)
    head = te.placeholder(y.shape, name="head")
    kern = te.build([x, index, head], [y, te.differentiate(y, x, head=head)])
    assert kern.source("stmt").count("produce check_") == 1


def test_checks_of_other_bounds_or_conditions_stay_apart():
    long, short = te.placeholder((8,), name="long"), te.placeholder((5,), name="short")
    y = te.compute((n,), lambda i: te.select(i > 2, long[INDEX[i]], 0) + te.select(i > 1, short[INDEX[i]], 0), name="y")
    kern = te.build([long, short, INDEX], y)
    feeds = [np.ones(8, "float32"), np.ones(5, "float32")]
    for places, found in (([9, 9, 4, 4], None), ([0, 0, 0, 8], 8), ([0, 0, 6, 0], 6)):
        data = [*feeds, np.array(places, "int32")]
        if found is None:
            assert (kern(*data) == [0, 0, 1, 2]).all()
        else:
            assert f"it is {found} at" in told(kern, data)


@pytest.mark.parametrize("shape", [(7000, 11), (30, 5, 3), (50, 1)])
def test_short_rows_of_indices_are_looked_at_as_they_lie(shape):
    index, x = te.placeholder(shape, "int64", name="index"), te.placeholder((shape[0], 6), name="x")
    kern = te.build([x, index], te.compute(shape, lambda i, *j: x[i, index[(i, *j)]] * (i + 1), name="y"))
    loads = re.findall(r"uint64x16\(index\[ramp\(.*?, ([^,]+), 16\)", kern.source("stmt"))
    assert loads == ["1"]
    rng = np.random.default_rng(0)
    values, places = rng.normal(size=(shape[0], 6)).astype("float32"), rng.integers(0, 6, shape)
    picked = np.take_along_axis(values, places.reshape(shape[0], -1), 1).reshape(shape)
    scale = np.arange(1, shape[0] + 1, dtype="float32").reshape(-1, *(1 for _ in shape[1:]))
    assert np.array_equal(kern(values, places), picked * scale)
    place = tuple(n - 1 for n in shape)
    places[place] = -3
    assert f"index[{', '.join(map(str, place))}] is -3" in told(kern, [values, places])


def test_a_checked_lookup_beside_a_result_of_short_rows():
    x, index, row = te.placeholder((300, 3), name="x"), te.placeholder((40,), "int32", name="index"), te.placeholder(40)
    outputs = [
        te.compute((300, 3), lambda i, j: x[i, j] * 2.0, name="doubled"),
        te.compute((40,), lambda k: row[index[k]], name="picked"),
    ]
    kern = te.build([x, index, row], outputs)
    values, line = np.arange(900, dtype="float32").reshape(300, 3), np.arange(40, dtype="float32")
    doubled, picked = kern(values, np.arange(40)[::-1].astype("int32"), line)
    assert np.array_equal(doubled, values * 2)
    assert np.array_equal(picked, line[::-1])
    assert "it is 41" in told(kern, [values, np.full(40, 41, "int32"), line])


def number_of_checks(conditions):
    """Of as many stages as conditions, each of which reads a table of its own at the same places where one holds."""
    inputs = [te.placeholder((8,), "int32", name="p"), te.placeholder((8,), name="w")]
    places, weights = inputs
    total = 0.0
    for k, condition in enumerate(conditions):
        inputs.append(te.placeholder((8,), name=f"x{k}"))
        read = te.compute(
            (8,), lambda i, x=inputs[-1], c=condition: te.select(c(weights, i), x[places[i]], 0.0), name=f"y{k}"
        )
        total = total + read
    kern = te.build(inputs, total, schedule=te.Schedule(total))
    arrays = [np.arange(8, dtype="int32"), np.ones(8, "float32"), *[np.ones(8, "float32")] * len(conditions)]
    kern(*arrays)
    arrays[0][5] = 8
    assert "index `p[i]` of dimension 0 of x" in told(kern, arrays)
    return kern.source("stmt").count("halide_error_requirement_failed")


def test_a_check_under_more_conditions_than_another_of_the_same_places_is_not_made():
    positive, late = (lambda w, i: w[i] > 0), (lambda w, i: i > 2)
    both = lambda w, i: (i > 2) & (w[i] > 0)  # noqa: E731
    assert number_of_checks([positive, both]) == 1
    assert number_of_checks([both, positive]) == 1
    assert number_of_checks([both, late, positive]) == 2
    assert number_of_checks([positive, late]) == 2
    assert number_of_checks([both, both, lambda w, i: i >= 0]) == 1
