r"""The neural family: the paper's NCV and CNCV, and a default that is far better when draws are few."""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ...runtime.compile_cache import compile_cache
from ...runtime.memory import reserve
from ...runtime.validation import InputError, whole_number
from ..method import Control, Method, Problem
from .potential_fit import fit_potentials, pad, validation_draws
from .stretch import Stretch
from .trials import Custom, Potential, Trial, VectorField

if TYPE_CHECKING:
    from .training import State, Task

# Regularisation strengths that "auto" chooses among by validation error.
PENALTIES = (0.0, 1e-3, 1e-2)
# With fewer draws than this, or |mean f| below sd f, the paper advises to pre-train the centre.
SMALL = 1000


@dataclass(frozen=True)
class Neural(Method):
    r"""$g = \nabla\cdot\Phi + \Phi\cdot s$ with a network $\Phi$, fitted by the paper's constrained objective

    $$ \min_{w,\mu} \frac1n \sum_i \big[(f_i + g_i - \mu)^2 + \lambda g_i^2\big]. $$

    **Arguments:**

    - `trial`: `Potential(...)` (the default), `VectorField(...)`, `ScalarField(...)`, or any Equinox module or function
      from R^dim to R^dim. A potential with one hidden layer of tanh is fitted by Adam and Gauss-Newton with its linear
      part solved exactly, all outputs on one trunk (see `_potential_fit`); everything else by Adam, one network an
      output, all outputs, folds, penalties and members in one compiled program.
    - `penalty`: $\lambda$; "auto" chooses among a few by validation error.
    - `center`: whether $\mu$ is learned. Without it this is the unconstrained NCV, which overfits few draws.
    - `center_start`: where $\mu$ starts: "mean" of f, "zero", "pretrain" (with a large $\lambda$ until converged, then
      all other weights drawn anew), or "auto", the paper's rule: "pretrain" for few draws or sd f > |mean f|.
    - `steps`, `batch`, `rate`: Adam's steps, minibatch size and learning rate.
    - `decay`: decay/n times the squared weights is added to the objective, as a Gaussian prior on them would.
    - `ensemble`: how many networks are averaged for each output. An average of control variates is one.
    - `early_stop`: keep the best weights on validation draws (the middle fifth of every chain).
    - `solver`: "auto", or "adam" to have a potential trained as every other network.
    - `objective`: what the linear part of a shallow potential makes small: "variance", or for slow chains "spectral",
      the variance of the mean, as in `Polynomial`.
    - `checkpoint`: a file to keep the state of a long fit in; the same call takes it up again. `progress`: a bar.

    >>> import numpy as np, steincv as scv
    >>> x = np.random.default_rng(0).normal(size=(4, 150, 2))
    >>> result = scv.estimate(scv.Samples(x, -x), np.tanh(x[..., 0]), scv.Neural())
    >>> bool(result.variance_ratio < 0.1)
    True

    Reference: Wan, Zhong, Xiong, Zhu (2019), Neural Control Variates for Monte Carlo Variance Reduction, ECML PKDD.
    """

    trial: Any = field(default_factory=Potential)
    penalty: float | Literal["auto"] = "auto"
    center: bool = True
    center_start: str = "mean"
    steps: int = 3000
    batch: int = 128
    rate: float = 5e-3
    decay: float = 0.05
    ensemble: int = 2
    early_stop: bool = True
    solver: str = "auto"
    objective: str = "variance"
    checkpoint: str | None = None
    progress: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.trial, Trial):
            if not callable(self.trial):
                raise InputError(
                    f"The 'trial' parameter of Neural must be a trial function. Got {self.trial!r} instead."
                )
            object.__setattr__(self, "trial", Custom(self.trial))
        for name in ("steps", "batch", "ensemble"):
            whole_number(name, getattr(self, name), 1)
        self._positive("rate", self.rate, 0, strict=True)
        self._positive("decay", self.decay, 0)
        if self.penalty != "auto":
            self._positive("penalty", self.penalty, 0)
        choices = {"center_start": ("mean", "zero", "pretrain", "auto"), "solver": ("auto", "adam")}
        choices["objective"] = ("variance", "spectral")
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"The '{name}' parameter of Neural must be one of {', '.join(map(repr, allowed))}. "
                    f"Got {getattr(self, name)!r} instead."
                )

        if self.objective != "variance" and not self._is_shallow():
            raise InputError(
                f"objective={self.objective!r} is for a network whose last layer is solved for: Neural(Potential()), "
                f'solver="auto" and no checkpoint; or use Polynomial(2, objective={self.objective!r}).'
            )

    @staticmethod
    def _positive(name: str, value: Any, low: float, strict: bool = False) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not np.isfinite(value) or value < low or (strict and value == low):
            bounds = f"{'(' if strict else '['}{low}, inf)"
            raise InputError(f"The '{name}' parameter of Neural must be a number in {bounds}. Got {value!r} instead.")

    @property
    def together(self) -> bool:  # type: ignore[override]
        """Whether folds go into one compiled program. A shallow potential needs none, so each can have a worker."""
        return not self._is_shallow()

    def _is_shallow(self) -> bool:
        trial = self.trial
        shallow = isinstance(trial, Potential) and trial.depth == 1 and trial.activation == "tanh"
        return shallow and self.solver == "auto" and self.center and self.checkpoint is None

    def solve(self, problems: Sequence[Problem], seed: int) -> list[Control]:
        trial = self.trial
        if self._is_shallow():  # needs no compiler
            settings = {"width": trial.width, "degree": trial.degree, "objective": self.objective}
            return fit_potentials(problems, seed, **settings)
        with compile_cache():
            own = trial.solve(self, problems, seed)
            if own is not None:
                return own
            return _fit_networks(self, problems, seed)


def NCV(trial: Any = None, **settings: Any) -> Neural:
    r"""The paper's unconstrained objective, mean $(f+g)^2$: no centre, no penalty. Overfits few draws."""
    return _as_published(trial, {"decay": 0.0, **settings}, penalty=0.0, center=False)


def CNCV(trial: Any = None, penalty: float | Literal["auto"] = 1e-3, center: bool = True, **settings: Any) -> Neural:
    r"""The paper's constrained objective, mean $[(f+g-\mu)^2 + \lambda g^2]$, with its 2 x 40 sigmoid network.

    `CNCV(penalty=0)` and `CNCV(center=False)` are the schemes in between; the paper's four are all settings of this.
    The paper does not say how its networks were optimised. Here: Adam with a little weight decay, which matters at
    n = 500 (variance ratio .03 instead of .16 on its synthetic problem). `CNCV(decay=0)` is the bare objective.
    """
    return _as_published(trial, settings, penalty=penalty, center=center)


def _as_published(trial: Any, settings: dict[str, Any], **objective: Any) -> Neural:
    """One network trained to the end, as in the paper: no early stopping, no ensemble."""
    published = {"steps": 10_000, "rate": 5e-3, "ensemble": 1, "early_stop": False}
    return Neural(VectorField() if trial is None else trial, **{**published, **objective, **settings})


def _fit_networks(method: Neural, problems: Sequence[Problem], seed: int) -> list[Control]:
    """All networks of all problems, outputs, penalties and members at once."""
    import jax
    import jax.numpy as jnp

    from .training import Batch, Settings, train

    stretches = [Stretch.of(p) for p in problems]
    problems = [stretch.problem(p) for stretch, p in zip(stretches, problems, strict=True)]
    outputs, dim = problems[0].y.shape[1], problems[0].z.shape[1]
    rows = max(len(p.z) for p in problems)
    choose = method.penalty == "auto"
    penalties = PENALTIES if method.penalty == "auto" else (float(method.penalty),)
    validate = method.early_stop or choose
    held = [validation_draws(len(p.z), p.chains) if validate else np.zeros(len(p.z), dtype=bool) for p in problems]
    data = Batch(
        _stack([p.z for p in problems], rows),
        _stack([p.s for p in problems], rows),
        _stack([p.y for p in problems], rows),
        _stack([~h for h in held], rows),
        _stack(held, rows),
    )
    grid = (len(problems), outputs, len(penalties), method.ensemble)
    networks = int(np.prod(grid))
    size = sum(
        np.prod(x.shape) for x in jax.tree.leaves(jax.eval_shape(lambda k: method.trial.init(k, dim), _key(seed)))
    )
    reserve(
        f"Training {networks} networks of {int(size):,} weights on {rows} draws in {dim} dimensions",
        4.0 * networks * (5 * size + 8 * method.batch * dim) + 4.0 * len(problems) * rows * (2 * dim + outputs),
        "Use a smaller network or ensemble, or fewer outputs at a time.",
    )
    task = grid_of_tasks(method, problems, grid, penalties, [len(p.z) for p in problems], seed)
    batch = int(min(method.batch, rows))
    settings = Settings(method.trial, method.steps, batch, method.rate, method.center, validate)
    run = functools.partial(train, data, checkpoint=method.checkpoint, progress=method.progress)
    if method.center and _pretrains(method, problems):
        large = task._replace(penalty=jnp.ones_like(task.penalty), key=jax.random.split(_key(seed + 1), len(task.key)))
        task = task._replace(center=run(large, settings, checkpoint=None).center)
    state = run(task, settings)
    return controls(method.trial, state, grid, penalties, choose, problems, stretches)


def grid_of_tasks(
    method: Neural,
    problems: Sequence[Problem],
    grid: tuple[int, int, int, int],
    penalties: Sequence[float],
    draws: Sequence[int],
    seed: int,
) -> "Task":
    """One network for every place of `grid`: problems x outputs x penalties x members. `draws` of every problem."""
    import jax
    import jax.numpy as jnp

    from .training import Task

    index = np.stack(np.meshgrid(*map(np.arange, grid), indexing="ij"), -1).reshape(-1, 4)
    # f about its mean is what is fitted, so a centre of 0 in the paper's sense is minus the mean here
    zero = -np.stack([p.offset for p in problems])[index[:, 0], index[:, 1]]
    start = np.zeros(len(index)) if method.center and method.center_start != "zero" else zero
    # The same starting points in every fold: which fold is which then does not matter.
    keys = jax.random.split(_key(seed), method.ensemble)
    return Task(
        jnp.asarray(index[:, 0]),
        jnp.asarray(index[:, 1]),
        jnp.asarray(np.array(penalties)[index[:, 2]], jnp.float32),
        jnp.asarray((method.decay / np.array(draws))[index[:, 0]], jnp.float32),
        jnp.asarray(start, jnp.float32),
        keys[index[:, 3]],
    )


def controls(
    trial: Trial,
    state: "State",
    grid: tuple[int, int, int, int],
    penalties: Sequence[float],
    choose: bool,
    problems: Sequence[Problem],
    stretches: Sequence[Stretch],
) -> list[Control]:
    """What was trained, `grid` being problems x outputs x penalties x members: for every output its best penalty."""
    import jax

    from .training import unravel

    errors = np.asarray(state.best_error).reshape(grid)
    which = errors.mean(-1).argmin(-1) if choose else np.zeros(grid[:2], dtype=int)
    weights = jax.vmap(unravel(trial, problems[0].z.shape[1]))(state.best)
    params = jax.tree.map(lambda x: np.asarray(x).reshape(*grid, *x.shape[1:]), weights)
    centers = np.asarray(state.center).reshape(grid)
    return [
        _control(trial, params, i, which[i], [penalties[k] for k in which[i]], centers[i], p, stretches[i])
        for i, p in enumerate(problems)
    ]


def _control(
    trial: Trial,
    params: Any,
    i: int,
    which: np.ndarray,
    penalty: list[float],
    centers: np.ndarray,
    problem: Problem,
    stretch: Stretch,
) -> Control:
    import jax

    outputs = np.arange(len(which))
    chosen = jax.tree.map(lambda x: x[i, outputs, which], params)  # (out, member, ...)
    if not all(np.isfinite(x).all() for x in jax.tree.leaves(chosen)):
        raise InputError("Training diverged: the weights are not finite. Use a smaller `rate`.")
    info = {
        "penalty": penalty,
        "center": (centers[outputs, which].mean(-1) + problem.offset).tolist(),
        "weights": int(sum(np.prod(x.shape[2:]) for x in jax.tree.leaves(chosen))),
    }
    return Control(_evaluator(trial, chosen, stretch), info)


def _evaluator(trial: Trial, params: Any, stretch: Stretch) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    import jax

    def evaluate(z: np.ndarray, s: np.ndarray) -> np.ndarray:
        z, s = stretch(z, s)
        with jax.default_matmul_precision("highest"):
            return np.asarray(_average(trial)(params, np.float32(z), np.float32(s)), dtype=np.float64)

    return evaluate


@functools.lru_cache(maxsize=32)
def _average(trial: Trial) -> Callable:
    """g of every output, averaged over its members, `(n, out)`."""
    import jax

    from .training import control

    one = functools.partial(control, trial)
    members = jax.vmap(one, (0, None, None))
    return jax.jit(lambda params, z, s: jax.vmap(members, (0, None, None))(params, z, s).mean(1).T)


def _pretrains(method: Neural, problems: Sequence[Problem]) -> bool:
    if method.center_start == "auto":
        return any(len(p.z) < SMALL or bool((np.abs(p.offset) < 1).any()) for p in problems)
    return method.center_start == "pretrain"


def _key(seed: int) -> Any:
    import jax

    return jax.random.key(seed)


def _stack(arrays: Sequence[np.ndarray], rows: int) -> Any:
    import jax.numpy as jnp

    return jnp.asarray(np.stack([pad(a, rows) for a in arrays]), jnp.float32)
