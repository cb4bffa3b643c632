"""The league as a picture: a row per posterior, a mark per method, gains on a logarithmic axis."""

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from .models import make
from .tables import FIRST_VERSION, RESULTS, Player, names, players, scores

MOST = 1e6  # gains beyond are drawn at the edge


def draw(methods: list[str]) -> None:
    """Draw league.png: the earlier version hollow, the others filled, a thin line down to the worst functional."""
    chosen = names()
    shown = [player for player in players() if player.method in methods]
    figure, ax = plt.subplots(figsize=(8.5, 1.2 + 0.3 * len(chosen)), layout="constrained")
    for k, player in enumerate(shown):
        _marks(ax, player, chosen, shift=0.5 * (k / max(len(shown) - 1, 1) - 0.5), color=f"C{k}")
    ax.axvline(1.0, color="0.6", lw=0.8)
    ax.set(xscale="log", ylim=(len(chosen) - 0.4, -0.6), xlabel="true gain: how many times more draws it is worth")
    ax.set_yticks(np.arange(len(chosen)), [f"{name}  {make(name).dim}" for name in chosen])
    ax.grid(axis="x", lw=0.3)
    ax.legend(loc="lower right", fontsize=8, frameon=False)
    RESULTS.mkdir(parents=True, exist_ok=True)
    figure.savefig(RESULTS / "league.png", dpi=110)
    plt.close(figure)


def _marks(ax: plt.Axes, player: Player, chosen: list[str], shift: float, color: str) -> None:
    label, old = player.label, player.version == FIRST_VERSION
    for row, name in enumerate(chosen):
        s = scores().get((name, player))
        if s is None:
            continue
        y = row + shift
        if s.failed:
            ax.plot(1.0, y, "x", color=color, ms=5, label=label)
        else:
            median = min(s.median, MOST)
            ax.plot([min(s.worst, median), median], [y, y], "-", color=color, lw=0.7, alpha=0.6)
            ax.plot(median, y, "o", color=color, mfc="white" if old else color, ms=5, label=label)
        label = None
