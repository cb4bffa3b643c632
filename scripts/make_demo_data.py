"""Makes src/steincv/data/eight_schools.npz: 4 chains x 1000 draws of NUTS, with scores, in float64."""

from pathlib import Path

import blackjax
import jax
import numpy as np
from arviz_stats.base import array_stats

import steincv.demo as demo

SEED, CHAINS, WARMUP, DRAWS, TARGET_ACCEPTANCE = 20240, 4, 1000, 1000, 0.9
FILE = Path(__file__).parents[1] / "src" / "steincv" / "data" / "eight_schools.npz"


def chain(key):
    """One chain from a dispersed point: adapt, then (draws, scores, divergences)."""
    at, warm, run = jax.random.split(key, 3)
    first = jax.random.uniform(at, (len(demo.NAMES),), minval=-2.0, maxval=2.0)
    adapt = blackjax.window_adaptation(
        blackjax.nuts, demo.eight_schools_logdensity, target_acceptance_rate=TARGET_ACCEPTANCE
    )
    (state, parameters), _ = adapt.run(warm, first, WARMUP)
    step = blackjax.nuts(demo.eight_schools_logdensity, **parameters).step

    def move(state, key):
        state, info = step(key, state)
        return state, (state.position, state.logdensity_grad, info.is_divergent)

    return jax.lax.scan(move, state, jax.random.split(run, DRAWS))[1]


def main():
    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(SEED), CHAINS)
        draws, scores, divergent = (np.asarray(a) for a in jax.jit(jax.vmap(chain))(keys))
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, draws=draws, scores=scores, names=np.array(demo.NAMES))
    print(f"{FILE}: {FILE.stat().st_size / 1000:.0f} kB, {divergent.sum()} divergences")
    for i, name in enumerate(demo.NAMES):
        rhat, ess = array_stats.rhat(draws[..., i]), array_stats.ess(draws[..., i])
        print(f"{name:8s} mean {draws[..., i].mean():7.3f}  R-hat {rhat:.4f}  ESS {ess:6.0f}")


if __name__ == "__main__":
    main()
