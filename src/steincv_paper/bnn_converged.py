"""Converged draws of the paper's classifier, by parallel tempering on an accelerator.

    python -m steincv_paper.bnn_converged OUT [--data FOLDER] [--seconds N] [--keep N]

Every chain is a ladder of powers of the likelihood, from the prior, of which draws are exact, to the posterior: HMC at
every rung, swaps of neighbours in between, even and odd ones in turn. Step sizes and the ladder are adapted in the
warm-up, the ladder so that all swaps are refused equally often (Syed et al. 2021, Non-reversible parallel tempering).
Chains share nothing after the warm-up. A restart is a state that comes to the posterior from the prior.

OUT/state.npz  where it stands, after every segment; the same command goes on from there
OUT/draws.npz  all draws kept: `bnn.Settings.converged` names this file, and `steincv reproduce bnn` judges it
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from steincv.runtime.arrays import read_arrays, whole_file
from steincv.runtime.compile_cache import compile_cache
from steincv.runtime.validation import InputError

from .bnn_draws import Problem


@dataclass(frozen=True)
class Plan:
    """Segments of `sweeps` sweeps; after the warm-up the last state of every `thin` sweeps is kept."""

    training: int = 200
    seen: int = 100
    unseen: int = 100
    chains: int = 32
    rungs: int = 16
    leapfrogs: int = 12
    warmup: int = 16
    segments: int = 65
    sweeps: int = 100
    thin: int = 10
    target: float = 0.8  # acceptance of HMC
    data: str = ""
    seed: int = 0  # of the images too
    run: int = 0  # another run of the same posterior


TINY = Plan(6, 2, 2, chains=4, rungs=3, leapfrogs=3, warmup=2, segments=2, sweeps=6, thin=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true", help="a few draws, to see whether it runs")
    parser.add_argument("--data", default="", help="digits, as steincv_paper.digits.load_digits reads them")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no segment that would end later")
    parser.add_argument("--run", type=int, default=0, metavar="N", help="which of several independent runs")
    parser.add_argument("--keep", type=int, metavar="N", help="only write N draws of every chain to OUT/kept.npz")
    given = parser.parse_args()
    plan = replace(TINY if given.tiny else Plan(), data=given.data, run=given.run)
    converged(plan, given.out, given.seconds, given.keep)


def converged(plan: Plan, out: Path, seconds: float = float("inf"), fewer: int | None = None) -> None:
    """Sample, or go on where `out` stands, and keep the draws."""
    out.mkdir(parents=True, exist_ok=True)
    problem = Problem.of(plan.data, plan.training, plan.seen, plan.unseen, plan.seed)
    with compile_cache(), jax.default_matmul_precision("highest"):
        state = sample(problem, plan, out / "state.npz", 0.0 if fewer else seconds)
    keep(problem, state, out / ("kept.npz" if fewer else "draws.npz"), fewer or state["draws"].shape[1])


# Sampling --------------------------------------------------------------------------------------------


def sample(problem: Problem, plan: Plan, path: Path, limit: float = float("inf")) -> dict[str, np.ndarray]:
    """Run every segment that is not done yet. A segment has its own key: a run that was stopped ends with the same."""
    names = ("x", "fresh", "step", "power", "refused", "restarts", "done", "draws", "seconds", "plan")
    start = time.perf_counter()
    identity = np.frombuffer(json.dumps(asdict(plan), sort_keys=True).encode(), dtype=np.uint8)
    if path.exists():
        state = read_arrays(path, list(names))
        if not np.array_equal(state["plan"], identity):
            raise InputError(f"{path}: is of another run; choose another folder.")
    else:
        dim = problem.model.dim
        first = np.random.default_rng([plan.seed, plan.run]).normal(size=(plan.chains, plan.rungs, dim))  # of the prior
        none = np.zeros((plan.chains, 0, dim), np.float32)
        power = np.linspace(0, 1, plan.rungs) ** 4
        fresh = np.zeros((plan.chains, plan.rungs), bool)
        state = dict(zip(names, (first.astype(np.float32), fresh, np.full(plan.rungs, 0.02), power,
                                 np.zeros(plan.rungs - 1), np.zeros(plan.chains), np.array(0), none, np.array(0.0),
                                 identity), strict=True))  # fmt: skip
    run = _program(problem, plan)
    took = 0.0  # by the last segment; the next will take as long
    while state["done"] < plan.warmup + plan.segments and time.perf_counter() - start + took < limit:
        begin, done = time.perf_counter(), int(state["done"])
        warm = done < plan.warmup
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(plan.seed), plan.run), done)
        now = (state["x"], state["fresh"], state["step"], state["power"])
        x, fresh, step, refused, restarts, draws = map(np.asarray, run(key, *now, warm))
        state |= {"x": x, "fresh": fresh, "refused": refused, "done": np.array(done + 1)}
        if warm:
            state |= {"step": step, "power": even(state["power"], refused)}
        else:
            state["draws"] = np.concatenate([state["draws"], draws], axis=1)
            state["restarts"] = state["restarts"] + restarts
        took = time.perf_counter() - begin
        state["seconds"] = state["seconds"] + took
        with whole_file(path, force=True) as file:
            np.savez(file, **state)  # type: ignore[arg-type]
        print(
            f"segment {done + 1}: {took:.1f} s; swaps refused {refused.mean():.2f}, at most {refused.max():.2f}; "
            f"{restarts.mean():.1f} restarts a chain; last step {step[-1]:.3g}",
            flush=True,
        )
    return state


def even(power: np.ndarray, refused: np.ndarray) -> np.ndarray:
    """Return powers between which equally many swaps would be refused, by interpolation."""
    barrier = np.concatenate([[0.0], np.cumsum(np.maximum(refused, 1e-3))])
    return np.interp(np.linspace(0, barrier[-1], len(power)), barrier, power)


def _program(problem: Problem, plan: Plan) -> Any:
    model, kernel = problem.model, blackjax.hmc.build_kernel()

    def likelihood(theta: Any) -> Any:
        return model.log_posterior(theta) - model.log_prior(theta)

    def move(key: Any, x: Any, step: Any, power: Any) -> tuple[Any, Any]:
        def density(theta: Any) -> Any:
            return model.log_prior(theta) + power * likelihood(theta)

        state, info = kernel(key, blackjax.hmc.init(x, density), density, step, jnp.ones(model.dim), plan.leapfrogs)
        exact = jax.random.normal(jax.random.fold_in(key, 1), x.shape)  # at the prior nothing need be proposed
        return jnp.where(power == 0, exact, state.position), info.acceptance_rate

    def sweep(carry: tuple, index: Any) -> tuple[tuple, Any]:
        key, x, fresh, step, power, warm = carry
        mine, swap = jax.random.split(jax.random.fold_in(key, index))
        keys = jax.random.split(mine, (plan.chains, plan.rungs))
        x, accepted = jax.vmap(jax.vmap(move), (0, 0, None, None))(keys, x, step, power)
        step = jnp.where(warm, step * jnp.exp(0.1 * (accepted.mean(0) - plan.target)), step)
        level = jax.vmap(jax.vmap(likelihood))(x)
        log_rate = (power[1:] - power[:-1]) * (level[:, :-1] - level[:, 1:])
        chance = jnp.exp(jnp.minimum(log_rate, 0.0))
        turn = (jnp.arange(plan.rungs - 1) % 2 == index % 2) & (jax.random.uniform(swap, chance.shape) < chance)
        none = jnp.zeros((plan.chains, 1), bool)
        up, down = jnp.concatenate([turn, none], 1)[..., None], jnp.concatenate([none, turn], 1)[..., None]
        x = jnp.where(up, jnp.roll(x, -1, 1), jnp.where(down, jnp.roll(x, 1, 1), x))
        # which states have been at the prior, where they are drawn anew, since they were last at the posterior
        fresh = fresh.at[:, 0].set(True)
        fresh = jnp.where(up[..., 0], jnp.roll(fresh, -1, 1), jnp.where(down[..., 0], jnp.roll(fresh, 1, 1), fresh))
        restarted = fresh[:, -1]
        return (key, x, fresh.at[:, -1].set(False), step, power, warm), (x[:, -1], 1 - chance.mean(0), restarted)

    def segment(key: Any, x: Any, fresh: Any, step: Any, power: Any, warm: Any) -> tuple:
        step, power = jnp.asarray(step, x.dtype), jnp.asarray(power, x.dtype)
        start = (key, x, fresh, step, power, warm)
        carry, (cold, refused, restarted) = jax.lax.scan(sweep, start, jnp.arange(plan.sweeps))
        cold = jnp.swapaxes(cold[plan.thin - 1 :: plan.thin], 0, 1)
        return carry[1], carry[2], carry[3], refused.mean(0), restarted.sum(0), cold

    return jax.jit(segment)


# What is kept ----------------------------------------------------------------------------------------


def keep(problem: Problem, state: dict[str, np.ndarray], file: Path, draws: int) -> None:
    """Write some draws of every chain, evenly spaced, with what `steincv reproduce bnn` says of the run."""
    there = state["draws"].shape[1]
    which = np.linspace(0, there - 1, min(draws, there)).round().astype(int)
    with whole_file(file, force=True) as out:
        np.savez_compressed(
            out,
            draws=state["draws"][:, which],
            digest=np.array(problem.digest),
            seconds=state["seconds"],
            restarts=state["restarts"].mean(),
        )


if __name__ == "__main__":
    main()
