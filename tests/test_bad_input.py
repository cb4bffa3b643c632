"""Bad input to every family: an `InputError` that names array, place, number and fix, or a documented answer.

Never a bare traceback of JAX or NumPy, never a NaN called success. Warnings are errors here, so a silent overflow or
division by zero on the way fails as well.
"""

import re
from dataclasses import dataclass

import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from catalogue import CATALOGUE, every_family

import steincv as scv

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 30, 2))
F = np.sin(X[..., 0]) + X[..., 1]
GOOD = scv.Samples(X, -X)


def put(array, index, value):
    changed = np.array(array, dtype=np.asarray(value).dtype if isinstance(value, complex) else float)
    changed[index] = value
    return changed


@pytest.fixture(autouse=True)
def as_users_have_it():
    """Without the types checked at run time, which only the tests have: the library must refuse wrong types itself."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


# --- refused -----------------------------------------------------------------------------------------

# What is given, and what the message must say: the array, the place or number, and what is expected.
BAD_SAMPLES = {
    "nan in draws": (put(X, (1, 7, 0), np.nan), -X, r"`draws` holds 1 non-finite .* 240; .*nan at index \(1, 7, 0\)"),
    "inf in draws": (put(X, (0, 0, 1), np.inf), -X, r"`draws` holds 1 non-finite .*inf at index \(0, 0, 1\)"),
    "nan in scores": (X, put(X, (slice(2), 3, 1), np.nan), r"`scores` holds 2 non-finite .*nan at index \(0, 3, 1\)"),
    "-inf in scores": (X, put(X, (3, 29, 1), -np.inf), r"`scores` holds 1 non-finite .*-inf at index \(3, 29, 1\)"),
    "beyond float64's comfort": (
        put(X, (0, 1, 0), 1e305),
        -X,
        r"`draws` holds 1 entries of size 1e\+300 .*\(0, 1, 0\)",
    ),
    "huge scores": (X, -1e200 * X, r"`scores` holds .* at index \(0, 0, 0\), which is .* Look at that draw"),
    "empty": (np.empty((0, 2)), np.empty((0, 2)), r"`draws` is empty: it has shape \(0, 2\)"),
    "no dimensions": (np.empty((4, 30, 0)), np.empty((4, 30, 0)), r"`draws` is empty: .*\(4, 30, 0\)"),
    "one draw": (X[:1, :1], -X[:1, :1], "holds 1 chains of 1 draws; .* at least 10 draws, 4 in every chain"),
    "nine draws": (X[:1, :9], -X[:1, :9], "holds 1 chains of 9 draws; .* at least 10"),
    "three draws a chain": (X[:, :3], -X[:, :3], "holds 4 chains of 3 draws; .* 4 in every chain"),
    "a vector": (X[0, :, 0], -X[0, :, 0], r"`draws` has shape \(30,\), expected .* write draws\[:, None\]"),
    "a number": (3.0, -3.0, r"`draws` has shape \(\), expected \(chain, draw, dim\)"),
    "four axes": (X[None], -X[None], r"`draws` has shape \(1, 4, 30, 2\), expected \(chain, draw, dim\)"),
    "mismatched draws": (X, -X[:, :-1], r"`draws` has shape \(4, 30, 2\) but `scores` has shape \(4, 29, 2\)"),
    "mismatched dim": (X, -X[..., :1], r"`scores` has shape \(4, 30, 1\): there must be one score"),
    "swapped axes": (X, -X.swapaxes(0, 1), r"`scores` has shape \(30, 4, 2\)"),
    "complex": (X + 0j, -X, "`draws` has dtype complex128, expected real numbers"),
    "strings": (X.astype(str), -X, "`draws` has dtype <U.*, expected real numbers"),
    "objects": (X.astype(object), -X, "`draws` has dtype object, expected real numbers"),
    "dates": (X.astype("timedelta64[s]"), -X, "`draws` has dtype timedelta64.*, expected real numbers"),
    "ragged": ([[1.0, 2.0], [3.0]], [[1.0, 2.0], [3.0]], "`draws` (cannot be read as an array|has dtype object)"),
    "nothing": (None, -X, "`draws` has dtype object"),
    "a constant coordinate": (put(X, (..., 1), 5.0), -X, r"Coordinate 1 \(x\[1\]\) has the value 5 .* Leave it out"),
    "a zero coordinate": (put(X, (..., 0), 0.0), -X, r"Coordinate 0 \(x\[0\]\) has the value 0 "),
    "a doubled coordinate": (X[..., [0, 0]], -X[..., [0, 0]], r"coordinates 0 .*1 .* linearly dependent .* Leave out"),
}


@every_family
@pytest.mark.parametrize("name", BAD_SAMPLES)
def test_bad_samples(row, name):
    draws, scores, message = BAD_SAMPLES[name]
    with pytest.raises(scv.InputError, match=message):
        scv.estimate(scv.Samples(draws, scores), None, row.method)


BAD_F = {
    "nan": (put(F, (2, 5), np.nan), r"`f` holds 1 non-finite entries of 120; the first is nan at index \(2, 5\)"),
    "a function with nans": (lambda x: jnp.log(x[0]), r"`f` holds \d+ non-finite .* nan at index \(\d, \d+\)"),
    "a wrong number of chains": (F[:3], r"`f` have shape \(3, 30\), expected \(4, 30\)"),
    "a wrong number of draws": (F[:, 1:], r"`f` have shape \(4, 29\), expected \(4, 30\)"),
    "swapped axes": (F.T, r"`f` have shape \(30, 4\), expected \(4, 30\)"),
    "a number": (3.0, r"`f` have shape \(\), expected \(4, 30\)"),
    "text": ("x[9]", "`f` has dtype <U4, expected real numbers"),
    "complex values": (F + 1j, "`f` has dtype complex128"),
    "no outputs": (np.empty((4, 30, 0)), r"`f` is empty: it has shape \(4, 30, 0\)"),
    "a function that raises": (lambda x: x["tau"], "`f` failed when it was evaluated at the draws: TypeError"),
    "an untraceable one that raises": (lambda x: [][int(x[0])], "`f` failed .*: IndexError"),
    "a function of nothing": (lambda x: None, "`f` returned a NoneType, expected a number"),
    "a function of tuples": (lambda x: (x[0], x[1]), "`f` returned a tuple, expected a number"),
    "a function of nested dicts": (lambda x: {"a": {"b": x[0]}}, "`a` returned a dict, expected a number"),
    "an empty dict": ({}, "`f` is an empty dict"),
    "a function of an empty dict": (lambda x: {}, "`f` returned an empty dict"),
    "a dict with a wrong shape": ({"tau": F[:3]}, r"`tau` have shape \(3, 30\), expected \(4, 30\)"),
    "a dict with nan": ({"tau": put(F, (0, 0), np.nan)}, r"`tau` holds 1 non-finite .* at index \(0, 0\)"),
    "the same label twice": ({"a": X, "a[0]": F}, r"Several outputs of `f` are called a\[0\]"),
}


@every_family
@pytest.mark.parametrize("name", BAD_F)
def test_bad_f(row, name):
    f, message = BAD_F[name]
    with pytest.raises(scv.InputError, match=message):
        scv.estimate(GOOD, f, row.method)


BAD_OPTIONS = {
    "more folds than chains": ({"folds": 5}, "`folds` is 5 but there are 4 chains, .* Use folds=4 or fewer"),
    "one fold": ({"folds": 1}, "`folds` must be a whole number of at least 2, got 1"),
    "half a fold": ({"folds": 2.5}, "`folds` must be a whole number of at least 2, got 2.5"),
    "a negative gap": ({"gap": -1}, "`gap` must be a whole number of at least 0, got -1"),
    "an unknown stat": ({"stat": "median"}, "`stat` must be .*, got 'median'"),
    "only the sd": ({"stat": ("sd",)}, r"`stat` must be .*, got \('sd',\)"),
    "a number for a stat": ({"stat": 3}, "`stat` must be .*, got 3"),
    "a negative seed": ({"seed": -1}, "`seed` must be a whole number of at least 0, got -1"),
    "a seed of text": ({"seed": "0"}, "`seed` must be a whole number of at least 0, got '0'"),
    "all held out": ({"cross_fit": False, "test_fraction": 1.0}, "`test_fraction` must lie strictly between 0 and 1"),
    "a fraction of text": ({"cross_fit": False, "test_fraction": "half"}, "`test_fraction` must .* got 'half'"),
    "too little held out": ({"cross_fit": False, "test_fraction": 0.07}, "`test_fraction` = 0.07 leaves 4 chains of 2"),
}


@every_family
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_bad_options(row, name):
    options, message = BAD_OPTIONS[name]
    with pytest.raises(scv.InputError, match=message):
        scv.estimate(GOOD, F, row.method, **options)


@every_family
def test_bad_fits(row):
    with pytest.raises(scv.InputError, match=r"`values` has shape \(3, 30\), expected \(4, 30\)"):
        row.method.fit(GOOD, F[:3])
    with pytest.raises(scv.InputError, match=r"`values` holds 1 non-finite .* \(0, 2\)"):
        row.method.fit(GOOD, put(F, (0, 2), np.nan))
    with pytest.raises(scv.InputError, match="3 draws to fit on; at least 4"):
        row.method.fit(scv.Samples(X[0, :3], -X[0, :3]), F[0, :3])
    with pytest.raises(scv.InputError, match="fitted in 2 dimensions, `samples` has 1"):
        row.method.fit(GOOD, F)(scv.Samples(X[..., :1], -X[..., :1]))
    with pytest.raises(scv.InputError, match=r"`seed` must be a whole number of at least 0, got 1\.5"):
        row.method.fit(GOOD, F, seed=1.5)


BAD_FIELDS = {
    "negative degree": (lambda: scv.Polynomial(-1), "`degree` must be a whole number of at least 1, got -1"),
    "degree zero": (lambda: scv.Polynomial(0), "`degree` must be a whole number of at least 1, got 0"),
    "a broken degree": (lambda: scv.Polynomial(1.5), "`degree` must be a whole number of at least 1, got 1.5"),
    "a true degree": (lambda: scv.Polynomial(True), "`degree` must be a whole number of at least 1, got True"),
    "negative penalty": (lambda: scv.Polynomial(2, -1.0), r"'penalty' parameter of Polynomial must .* Got -1.0"),
    "nan penalty": (lambda: scv.Polynomial(2, float("nan")), r"'penalty' parameter of Polynomial must .* Got nan"),
    "penalty in words": (lambda: scv.Polynomial(2, "some"), r"'penalty' parameter of Polynomial must .* Got 'some'"),
    "zero length scale": (lambda: scv.Kernel(lengthscale=0), "'lengthscale' parameter of Kernel must .* Got 0 "),
    "negative landmarks": (lambda: scv.Kernel(landmarks=-3), "'landmarks' parameter of Kernel must .* Got -3"),
    "unknown kernel": (lambda: scv.Kernel("box"), "'kernel' parameter of Kernel must be one of .* Got 'box'"),
    "empty stack": (lambda: scv.Stack([]), "'members' of Stack must be one or more methods"),
    "a stack of names": (lambda: scv.Stack(["polynomial"]), "'members' of Stack must .* Got \\['polynomial'\\]"),
    "a stack of one number": (lambda: scv.Stack(3), "'members' of Stack must .* Got 3"),
    "names that are too few": (lambda: scv.Samples(X, -X, ["a"]), "`names` must hold 2 different strings, .* got 1"),
    "names that repeat": (lambda: scv.Samples(X, -X, ["a", "a"]), "got 2, of which 1 different"),
    "a name for all": (lambda: scv.Samples(X, -X, "ab"), "`names` is the string 'ab'"),
    "names of numbers": (lambda: scv.Samples(X, -X, [1, 2]), "`names` must hold strings only; entry 0 is 1"),
    "a number of names": (lambda: scv.Samples(X, -X, 2), "`names` is 2, expected a sequence of 2 strings"),
    "constrain no function": (lambda: scv.Samples(X, -X, constrain={"a": 1}), "`constrain` must be a function"),
    "method in words": (lambda: scv.estimate(GOOD, F, "kernel"), "`method` must be a method such as .* got 'kernel'"),
    "method not made": (lambda: scv.estimate(GOOD, F, scv.Kernel), "`method` must be a method such as"),
    "samples no Samples": (lambda: scv.estimate(X, F), "`samples` must be a steincv.Samples, got ndarray"),
    "level of 95": (lambda: scv.estimate(GOOD, F).interval(95), "`level` must lie strictly between 0 and 1, got 95"),
    "level in words": (lambda: scv.estimate(GOOD, F).interval("95%"), "`level` must .* got '95%'"),
    "constrain of arrays": (lambda: scv.estimate(scv.Samples(X, -X, constrain=lambda x: x)), "`constrain` returned an"),
}


@pytest.mark.parametrize("name", BAD_FIELDS)
def test_bad_fields(name):
    make, message = BAD_FIELDS[name]
    with pytest.raises(scv.InputError, match=message):
        make()


def test_an_input_error_is_a_value_error():
    assert issubclass(scv.InputError, ValueError)


@pytest.mark.parametrize(("degree", "dim"), [(9, 60), (2000, 2000), (10**6, 30_000)])
def test_more_features_than_memory_are_refused_with_numbers(degree, dim):
    x = RNG.normal(size=(12, dim))
    with pytest.raises(
        scv.InputError, match=rf"12 draws in {dim} dimensions has [\d,]+ features and needs about .* GiB"
    ):
        scv.Polynomial(degree).fit(scv.Samples(x, -x), x[:, 0])


# --- answered ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Odd:
    """Unusual input with a documented answer: these statuses are there for each output (more may be).

    A family that cannot fit it at all may refuse, if it says `or_refused`.
    """

    samples: scv.Samples
    f: object = None
    options: tuple = ()
    statuses: tuple[str, ...] = ()
    or_refused: str | None = None


def normal(*shape):
    x = np.random.default_rng(1).normal(size=shape)
    return scv.Samples(x, -x)


COPIES = np.repeat(X[:, :10], 3, axis=1)
ODD = {
    "a constant f": Odd(GOOD, np.full((4, 30), 7.5), statuses=("constant",)),
    "f = 0": Odd(GOOD, np.zeros((4, 30)), statuses=("constant",)),
    "a constant function": Odd(GOOD, lambda x: 2.0, statuses=("constant",)),
    "f constant up to rounding": Odd(GOOD, 1e8 + 1e-9 * F, statuses=("constant",)),
    "an indicator": Odd(GOOD, X[..., 0] > 0),
    "a rare event": Odd(GOOD, put(np.zeros((4, 30)), (2, 3), 1.0)),
    "integers": Odd(scv.Samples(np.round(3 * X).astype(int), np.round(-3 * X).astype(int)), np.round(F).astype(int)),
    "float32": Odd(scv.Samples(X.astype("f4"), -X.astype("f4")), F.astype("f4")),
    "lists": Odd(scv.Samples(X.tolist(), (-X).tolist()), F.tolist()),
    "jax arrays": Odd(scv.Samples(jnp.asarray(X), -jnp.asarray(X)), jnp.asarray(F)),
    "not contiguous": Odd(scv.Samples(np.asfortranarray(X)[::-1], -X[::-1]), F[::-1]),
    "one chain": Odd(scv.Samples(X.reshape(-1, 2), -X.reshape(-1, 2)), F.reshape(-1)),
    "one chain, a gap": Odd(scv.Samples(X.reshape(-1, 2), -X.reshape(-1, 2)), F.reshape(-1), (("gap", 5),)),
    "two chains": Odd(scv.Samples(X[:2], -X[:2]), F[:2]),
    "many short chains": Odd(normal(30, 4, 2), statuses=()),
    "one dimension": Odd(scv.Samples(X[..., :1], -X[..., :1]), np.sin(X[..., 0])),
    "ten draws": Odd(scv.Samples(X[0, :10], -X[0, :10]), F[0, :10], statuses=("low ess",)),
    "fewer draws than dimensions": Odd(
        normal(2, 10, 25), statuses=("low ess",), or_refused=r"has 350 polynomial features .* only 10 distinct draws"
    ),
    "duplicated draws": Odd(scv.Samples(COPIES, -COPIES), np.repeat(F[:, :10], 3, axis=1)),
    "duplicated chains": Odd(scv.Samples(X[[0, 0, 1, 1]], -X[[0, 0, 1, 1]]), F[[0, 0, 1, 1]]),
    "all chains the same": Odd(scv.Samples(X[[0, 0, 0, 0]], -X[[0, 0, 0, 0]]), F[[0, 0, 0, 0]]),
    "nearly dependent coordinates": Odd(scv.Samples(X @ [[1, 1], [0, 1e-4]], -X @ [[1, 0], [-1e4, 1e4]]), F),
    "tiny f": Odd(GOOD, 1e-250 * F),
    "huge f": Odd(GOOD, 1e250 * F),
    "huge and tiny coordinates": Odd(scv.Samples(X * [1e-200, 1e200], -X / [1e-200, 1e200]), F),
    "a large offset": Odd(scv.Samples(X + 1e6, -X), F),
    "an outlier in f": Odd(GOOD, put(F, (0, 0), 1e12)),
    "zero scores": Odd(scv.Samples(X, 0 * X), F, statuses=("stein mean",)),
    "chains stuck apart": Odd(scv.Samples(X + 50 * np.arange(4)[:, None, None], -X), None, (), ("chains disagree",)),
    "mean and sd": Odd(GOOD, F, (("stat", ("mean", "sd")),)),
    "mean and sd of a constant": Odd(GOOD, np.ones((4, 30)), (("stat", ("mean", "sd")),), ("constant",)),
    "mean and sd of huge f": Odd(GOOD, 1e250 * F, (("stat", ("mean", "sd")),)),
    "held out": Odd(GOOD, F, (("cross_fit", False),)),
    "no guard": Odd(GOOD, RNG.normal(size=(4, 30)), (("guard", False),)),
}


# Each new shape compiles the networks anew, so those meet the inputs that could matter to them.
FOR_NETWORKS = (
    "a constant f",
    "a rare event",
    "ten draws",
    "fewer draws than dimensions",
    "duplicated draws",
    "huge f",
    "huge and tiny coordinates",
    "an outlier in f",
    "zero scores",
)
ANSWERED = [
    pytest.param(row, name, id=f"{row.name}-{name}")
    for row in CATALOGUE
    for name in (FOR_NETWORKS if row.precision == "network" else ODD)
]


@pytest.mark.parametrize(("row", "name"), ANSWERED)
def test_odd_input_has_a_documented_answer(row, name):
    """Finite numbers, an error bar that is no NaN, and the statuses that the documentation promises."""
    odd = ODD[name]
    try:
        result = scv.estimate(odd.samples, odd.f, row.method, **dict(odd.options))
    except scv.InputError as error:
        if odd.or_refused is None:
            raise
        assert re.search(odd.or_refused, str(error))  # noqa: PT017
        return
    for each in (result, *([result.sd] if result.sd is not None else [])):
        for number in (each.mean, each.standard_error, each.ess, each.interval(), each.controlled, each.variance_ratio):
            assert np.isfinite(number).all()
        assert (each.standard_error >= 0).all()
        assert (each.ess > 0).all()
        if "guard" not in dict(odd.options):
            assert (each.standard_error <= each.plain.standard_error * (1 + 1e-12)).all()
    for found in result.status:
        names = {status.name for status in found}
        # an exact mean needs no effective draws: the verdict takes the one back where it says the other
        assert set(odd.statuses) - ({"low ess"} if "exact" in names else set()) <= names
    # with the guard, no answer is further from the plain mean than its interval could explain
    distance = np.abs(result.mean - result.plain.mean) / np.maximum(result.plain.standard_error, 1e-300)
    assert (distance < 8).all() or "constant" in odd.statuses


def test_answers_to_constants_are_the_constants():
    result = scv.estimate(GOOD, np.full((4, 30), 7.5), scv.Polynomial(2), stat=("mean", "sd"))
    assert float(result.mean) == 7.5
    assert float(result.standard_error) == 0
    assert result.method == ("plain",)
    assert float(result.sd.mean) == 0
    assert "constant" in result.gained()


def test_what_was_given_is_not_changed():
    x, s, f = X.copy(), -X, F.copy()
    for row in CATALOGUE:
        scv.estimate(scv.Samples(x, s), f, row.method)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(s, -X)
    np.testing.assert_array_equal(f, F)
