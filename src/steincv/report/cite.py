"""What to cite: the software, the paper behind it, and the papers of the families that a result used."""

from collections.abc import Iterable

SOFTWARE = """@software{{steincv,
  title   = {{steincv: control variates from {{Stein}}'s identity for {{MCMC}}}},
  author  = {{{{The steincv developers}}}},
  version = {{{version}}},
}}"""

NEURAL = """@inproceedings{wan2019neural,
  title     = {Neural Control Variates for {Monte} {Carlo} Variance Reduction},
  author    = {Wan, Ruosi and Zhong, Mingjun and Xiong, Haoyi and Zhu, Zhanxing},
  booktitle = {Machine Learning and Knowledge Discovery in Databases (ECML PKDD)},
  year      = {2019},
}"""

POLYNOMIAL = """@article{mira2013zero,
  title   = {Zero variance {Markov} chain {Monte} {Carlo} for {Bayesian} estimators},
  author  = {Mira, Antonietta and Solgi, Reza and Imparato, Daniele},
  journal = {Statistics and Computing},
  volume  = {23},
  year    = {2013},
}"""

KERNEL = """@article{oates2017control,
  title   = {Control functionals for {Monte} {Carlo} integration},
  author  = {Oates, Chris J. and Girolami, Mark and Chopin, Nicolas},
  journal = {Journal of the Royal Statistical Society, Series B},
  volume  = {79},
  year    = {2017},
}"""

PAPERS = {"Polynomial(": POLYNOMIAL, "Kernel(": KERNEL}


def bibtex(methods: Iterable[str]) -> str:
    """Return BibTeX of the software, the paper it implements, and the papers of the `methods` that were used."""
    from .. import __version__

    used = list(methods)
    papers = [entry for name, entry in PAPERS.items() if any(name in method for method in used)]
    return "\n\n".join([SOFTWARE.format(version=__version__), NEURAL, *papers])
