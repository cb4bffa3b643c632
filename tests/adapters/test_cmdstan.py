"""CmdStan: diagnostic files in its format, with their output files and without."""

import numpy as np
import pytest
from checks import check_scores, check_stein, check_table, entries

import steincv as scv

pytestmark = pytest.mark.filterwarnings("ignore")  # of a library's own making

# as CmdStan 2.37 writes them
HEADER = """# stan_version_major = 2
# stan_version_minor = 37
# stan_version_patch = 0
# model = gamma_model
# method = sample (Default)
#   sample
#     num_samples = {samples}
#     num_warmup = 30
#     save_warmup = {save}
#     thin = 2
#     adapt
#       engaged = true (Default)
#       gamma = 0.05 (Default)
#       delta = 0.8 (Default)
#       kappa = 0.75 (Default)
#       t0 = 10 (Default)
#       init_buffer = 75 (Default)
#       term_buffer = 50 (Default)
#       window = 25 (Default)
#       save_metric = false (Default)
#     algorithm = hmc (Default)
#       hmc
#         engine = nuts (Default)
#           nuts
#             max_depth = 10 (Default)
#         metric = diag_e (Default)
#         metric_file =  (Default)
#         stepsize = 1 (Default)
#         stepsize_jitter = 0 (Default)
#     num_chains = 2
# id = {id} (Default)
# data
#   file = data.json
# init = 2 (Default)
# random
#   seed = 1
# output
#   file = {output}
#   diagnostic_file = {diagnostic}
#   refresh = 100 (Default)
#   sig_figs = 17
#   profile_file = profile.csv (Default)
#   save_cmdstan_config = false (Default)
# num_threads = 1 (Default)
"""
SAMPLER = "lp__,accept_stat__,stepsize__,treedepth__,n_leapfrog__,divergent__,energy__"
ADAPTED = """# Adaptation terminated
# Step size = 0.8
# Diagonal elements of inverse mass matrix:
# 1, 1, 1, 1, 1
"""
END = "# \n#  Elapsed Time: 0.002 seconds (Warm-up)\n#                0.005 seconds (Sampling)\n# \n"


def log_density(u):
    """tau = exp(u[0]) is Gamma(3, 1); b is a matrix of standard normals, column by column."""
    return 3 * u[0] - np.exp(u[0]) - 0.5 * np.sum(u[1:] ** 2)


def write(folder, seed, number, samples=400, save_warmup=True):
    """The output and diagnostic files of one chain; the unconstrained draws after warm-up."""
    rng = np.random.default_rng(seed)
    rows = (15 if save_warmup else 0) + samples // 2
    u = np.concatenate([np.log(rng.gamma(3, size=(rows, 1))), rng.normal(size=(rows, 4))], axis=1)
    if save_warmup:
        u[:15] += 100  # not to be mistaken for draws
    settings = {"samples": samples, "save": str(save_warmup).lower(), "id": number}
    header = HEADER.format(output="out.csv", diagnostic="diagnostic.csv", **settings)
    sampler = np.column_stack([np.apply_along_axis(log_density, 1, u), np.tile([0, 0, 0, 7, 0, 0], (rows, 1))])
    gradient = np.column_stack([np.exp(u[:, 0]) - 3, u[:, 1:]])  # of the potential
    names = ["tau", "b.1.1", "b.2.1", "b.1.2", "b.2.2"]
    twice = 2 * np.exp(u[:, :1])
    tables = {
        f"diagnostic_{number}.csv": (
            [*names, *(f"p_{n}" for n in names), *(f"g_{n}" for n in names)],
            np.column_stack([sampler, u, rng.normal(size=u.shape), gradient]),
        ),
        f"out_{number}.csv": ([*names, "twice"], np.column_stack([sampler, twice / 2, u[:, 1:], twice])),
    }
    for name, (columns, numbers) in tables.items():
        lines = [",".join(f"{x:.17g}" for x in row) + "\n" for row in numbers]
        if name.startswith("out"):  # only this file tells of the adaptation
            lines.insert(rows - samples // 2, ADAPTED)
        (folder / name).write_text(f"{header}{SAMPLER},{','.join(columns)}\n{''.join(lines)}{END}")
    return u[rows - samples // 2 :]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    draws = np.stack([write(folder, seed, number) for seed, number in ((0, 1), (1, 2))])
    return folder, draws


def diagnostics(folder):
    return [folder / "diagnostic_1.csv", str(folder / "diagnostic_2.csv")]


def test_files(run):
    folder, draws = run
    samples = scv.from_cmdstan(diagnostics(folder))
    np.testing.assert_array_equal(samples.draws, draws)
    assert samples.names == ("tau", "b[0, 0]", "b[1, 0]", "b[0, 1]", "b[1, 1]")
    assert samples.gradients == 7 * 400
    check_scores(samples, log_density)
    check_stein(samples)
    b = np.swapaxes(draws[..., 1:].reshape(2, 200, 2, 2), -1, -2)  # column by column
    check_table(samples, entries("tau", np.exp(draws[..., 0])) | entries("b", b))
    np.testing.assert_allclose(
        scv.estimate(samples, "twice", scv.Polynomial(1)).values[..., 0], 2 * np.exp(draws[..., 0])
    )


def test_files_alone(run, tmp_path):
    """Without the output file the table is about the coordinates."""
    folder, draws = run
    (tmp_path / "diagnostic_1.csv").write_bytes((folder / "diagnostic_1.csv").read_bytes())
    samples = scv.from_cmdstan(tmp_path / "diagnostic_1.csv")
    result = check_table(samples, dict(zip(samples.names, draws[0].mean(axis=0), strict=True)))
    assert result.labels[0] == "tau"


def test_without_warmup(tmp_path):
    draws = write(tmp_path, 3, 1, save_warmup=False)
    np.testing.assert_array_equal(scv.from_cmdstan(str(tmp_path / "diagnostic_1.csv")).draws[0], draws)


def test_a_fit(run):
    """What CmdStanPy makes of these files."""
    cmdstanpy = pytest.importorskip("cmdstanpy")
    folder, draws = run
    fit = cmdstanpy.from_csv([str(folder / "out_1.csv"), str(folder / "out_2.csv")], method="sample")
    with pytest.raises(scv.InputError, match=r"the fit kept no gradients. CmdStanPy: .*save_latent_dynamics=True"):
        scv.from_cmdstan(fit)
    fit.runset._diagnostic_files = [str(file) for file in diagnostics(folder)]
    samples = scv.from_cmdstan(fit)
    np.testing.assert_array_equal(samples.draws, draws)
    assert scv.estimate(samples, method=scv.Polynomial(1)).labels[:2] == ("tau", "b[0, 0]")


def test_what_cannot_be_used(run, tmp_path):
    folder, _ = run
    one, two = diagnostics(folder)
    with pytest.raises(scv.InputError, match=r"out_1.csv: not a diagnostic file of CmdStan; .* save_latent_dynamics"):
        scv.from_cmdstan(folder / "out_1.csv")
    with pytest.raises(scv.InputError, match=r"gone.csv: no such file"):
        scv.from_cmdstan(tmp_path / "gone.csv")
    text = one.read_text().splitlines()
    (tmp_path / "cut.csv").write_text("\n".join(text[:-50]))
    with pytest.raises(scv.InputError, match=r"cut.csv: holds \d+ draws after warm-up, expected 200: the run was"):
        scv.from_cmdstan(tmp_path / "cut.csv")
    (tmp_path / "empty.csv").write_text("# nothing = here\n")
    with pytest.raises(scv.InputError, match=r"empty.csv: not a file of draws of CmdStan"):
        scv.from_cmdstan(tmp_path / "empty.csv")
    write(tmp_path, 5, 1, samples=300)
    with pytest.raises(scv.InputError, match=r"diagnostic_2.csv: its columns or draws are not those of"):
        scv.from_cmdstan([tmp_path / "diagnostic_1.csv", two])
    (tmp_path / "out_1.csv").write_bytes((folder / "out_1.csv").read_bytes())
    with pytest.raises(scv.InputError, match=r"out_1.csv: belongs to another run than"):
        scv.from_cmdstan([tmp_path / "diagnostic_1.csv"])
    pytest.importorskip("cmdstanpy")
    with pytest.raises(scv.InputError, match=r"`fit` must be a cmdstanpy.CmdStanMCMC or diagnostic files, got int"):
        scv.from_cmdstan(3)
