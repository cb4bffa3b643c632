"""Makes the pictures of the documentation: why, trace, geometry, demo, and report where there is a browser."""

import os
import re
import shutil
import tempfile
from contextlib import chdir
from importlib.resources import files
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import steincv as scv
from steincv.demo import constrain_eight_schools
from steincv.report.figures import CONTROLLED, GRID, INK, PLAIN, demo_figure
from steincv.samples.files import read_samples

DOCS = Path(__file__).parents[1] / "docs"
# A density with two humps, and an f that is no polynomial.
WEIGHTS, CENTERS, WIDTHS = np.array([0.6, 0.4]), np.array([-1.1, 1.5]), np.array([0.8, 0.6])
DRAWS, REPLICATIONS, SEED = 200, 400, 0
METHOD = scv.Kernel("rational quadratic", degree=1)


def f(x):
    return x + np.cos(2 * x)


def parts(x):
    return WEIGHTS * np.exp(-0.5 * ((x[..., None] - CENTERS) / WIDTHS) ** 2) / (WIDTHS * np.sqrt(2 * np.pi))


def density(x):
    return parts(x).sum(axis=-1)


def samples_at(x):
    score = (parts(x) * (CENTERS - x[..., None]) / WIDTHS**2).sum(axis=-1) / density(x)
    return scv.Samples(x[..., None], score[..., None])


def draw(rng):
    which = rng.choice(2, size=(4, DRAWS // 4), p=WEIGHTS)
    return rng.normal(CENTERS[which], WIDTHS[which])


def why():
    """f, f + g, and what their means do over many runs."""
    rng = np.random.default_rng(SEED)
    figure = Figure(figsize=(10.4, 3.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))

    x = draw(rng)
    grid = np.linspace(-3.4, 3.2, 400)
    fitted = METHOD.fit(samples_at(x), f(x))
    flat = f(grid) + fitted(samples_at(grid[None]))[0, :, 0]
    fine = np.linspace(-8, 8, 200_001)
    truth = float(np.sum(density(fine) * f(fine)) * (fine[1] - fine[0]))
    left.fill_between(grid, -4.2, -4.2 + 4 * density(grid), color=GRID, linewidth=0)
    left.plot(x.ravel(), np.full(x.size, -4.35), "|", color=INK, alpha=0.35, markersize=7)
    left.plot(grid, f(grid), color=PLAIN, linewidth=2.5)
    left.plot(grid, flat, color=CONTROLLED, linewidth=2.5)
    left.text(2.0, 2.9, "f", color=PLAIN, fontsize=14)
    left.text(2.35, truth + 0.25, "f + g", color=CONTROLLED, fontsize=14)
    left.text(2.45, -3.55, "the density\nand its draws", color=INK, fontsize=10)
    left.set_ylim(-4.6, 4)
    left.set_xlabel("x")
    left.set_title("g flattens f, and does not move its mean", fontsize=12, color=INK, loc="left")

    runs = []
    for _ in range(REPLICATIONS):
        y = draw(rng)
        result = scv.estimate(samples_at(y), f(y), METHOD)
        runs.append((float(result.plain.mean), float(result.mean)))
    plain, controlled = np.array(runs).T
    bins = np.linspace(truth - 3.2 * plain.std(), truth + 3.2 * plain.std(), 41)
    right.hist(controlled, bins, color=CONTROLLED, label="mean of f + g")
    right.hist(plain, bins, color=PLAIN, alpha=0.85, label="mean of f")
    right.axvline(truth, color=INK, linewidth=1, linestyle=":")
    right.set_yticks([])
    right.set_xlabel(f"estimate from {DRAWS} draws; dotted: the truth")
    right.set_title(f"{REPLICATIONS} runs", fontsize=12, color=INK, loc="left")
    right.legend(frameon=False, loc="upper left")
    for ax in (left, right):
        ax.spines[["top", "right", "left"]].set_visible(False)
        ax.set_yticks([])
    figure.savefig(DOCS / "why.png", dpi=130)
    print(f"why.png: sd of the plain mean {plain.std():.4f}, of the controlled one {controlled.std():.5f}")
    print(f"         bias of the controlled mean {controlled.mean() - truth:.5f}, truth {truth:.5f}")


def of_page(page, picture):
    """Run the code of a page, and keep the picture that it makes."""
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE))
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        exec(compile(code, page, "exec"), {})
        shutil.copy(picture, DOCS / picture)


def demo():
    """The figure of the demo, and its page as a browser shows it."""
    stored = read_samples(str(files("steincv") / "data" / "eight_schools.npz"))
    result = scv.estimate(scv.Samples(stored.draws, stored.scores, stored.names, constrain_eight_schools))
    demo_figure(result, DOCS / "demo.png")
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        print("report.png: no browser here, left as it is")
        return
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        result.report(os.path.join(folder, "report.html"))
        window = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = window.new_page(viewport={"width": 1180, "height": 745})
        page.goto(f"file://{folder}/report.html")
        page.screenshot(path=DOCS / "report.png")
        window.close()


if __name__ == "__main__":
    why()
    of_page("index.md", "trace.png")
    of_page("howto/geometry.md", "geometry.png")
    demo()
