"""What every status means, in plain words, and what to do next. The page and the documentation say the same."""

from typing import NamedTuple

from ..judging.diagnostics import Code


class Meaning(NamedTuple):
    title: str
    meaning: str
    next_step: str


MEANINGS = {
    Code.STEIN_MEAN: Meaning(
        "The scores do not fit the draws",
        "Some averages of draws and scores are zero whenever the scores are the gradient of the log density that the "
        "draws come from. One of them is too far from zero to be chance. A control variate built on these scores would "
        "shift the mean.",
        "At one draw, compare the score with finite differences of the log density. In unconstrained coordinates the "
        "log Jacobian belongs to that density. Then look at whether the chains have mixed.",
    ),
    Code.CHAINS_DISAGREE: Meaning(
        "The chains disagree",
        "The chains do not explore the same values, so they have not mixed. No mean over them can be trusted, with or "
        "without control variates.",
        "Run the chains longer, start them elsewhere, or reparametrise the model. Come back when R-hat is near 1.",
    ),
    Code.COPIED_CHAINS: Meaning(
        "Two chains are the same",
        "Two chains hold the same draws, so there are fewer independent chains than it seems, and every error bar is "
        "too short. Most often the chains were started with one seed.",
        "Give each chain a seed of its own and run them again, or leave the copies out.",
    ),
    Code.HEAVY_TAIL: Meaning(
        "A heavy tail",
        "A few draws far out dominate the mean. Its variance may be infinite, and then every error bar is too short.",
        "Estimate a bounded function instead, such as a probability, or its logarithm. Or reparametrise the model.",
    ),
    Code.RARE_DRAWS: Meaning(
        "Draws that have not come may decide",
        "A handful of draws far out carries almost all of the error; at the others f plus its control variate hardly "
        "varies. How many of them came is luck, so the standard error is more often too small than too large. The "
        "interval is widened for that, by the tail index of what is left; here the tails of f itself are long too, or "
        "the few draws stand apart from all others, and the widened interval may still be too short.",
        "Use the interval, and read the gain as a rough guide. More draws help. Compare with a simpler method, such as "
        "Polynomial(2).",
    ),
    Code.SLOW_CHAINS: Meaning(
        "More gain than slow chains can know",
        "Many draws count as one, and f plus its control variate is nearly constant where the chains have been. Where "
        "they have not been, it may be anything. An error bar comes from the draws that there are, so it may be far "
        "too short, though the mean is usually much better than the plain one.",
        "Run the chains longer, or with a sampler that moves faster. Compare with a simpler method, such as "
        "Polynomial(2).",
    ),
    Code.SHORT_CHAINS: Meaning(
        "Many short chains",
        "There are more chains than draws in each. How slowly a chain moves cannot be seen in so few draws; the error "
        "bar then comes from how far the means of the chains are apart, which is right if each chain began where the "
        "density is.",
        "If the first axis is that of the draws, swap the first two: draws are (chain, draw, dim).",
    ),
    Code.UNEVEN_WEIGHTS: Meaning(
        "Uneven weights",
        "A few draws carry most of the weight, and the tail of the weights is so heavy that their variance may be "
        "infinite: draws that would matter as much may not have come yet. Error bars may be too short.",
        "Use a proposal that is wider and has heavier tails than the density, or, in sequential Monte Carlo, more "
        "temperatures on the way.",
    ),
    Code.LOW_OVERLAP: Meaning(
        "Too little overlap",
        "Bridge sampling compares the posterior with a normal distribution in good coordinates. Here hardly a draw of "
        "one could have come from the other: a few draws decide the log evidence, and its error bar may be too short.",
        "Run the sampler longer: the proposal is fitted to the draws. In many dimensions use a ladder of temperatures, "
        "`log_evidence`, instead.",
    ),
    Code.LOW_ESS: Meaning(
        "Few effective draws",
        "Neighbouring draws resemble each other, so they count for fewer independent ones. The mean is fine. Its error "
        "bar is itself a rough estimate.",
        "Run the sampler longer, or read the interval as a rough guide.",
    ),
    Code.TOO_MANY_FEATURES: Meaning(
        "More features than draws",
        "The control variate has more coefficients than draws to fit them on. It leans on its penalty. The error bar "
        "is still honest, because it comes from draws that the fit has not seen.",
        "Use a lower degree, or more draws.",
    ),
    Code.NO_GAIN: Meaning(
        "No gain",
        "No control variate took out more noise than chance would. The plain mean is reported, so nothing was lost.",
        "Nothing needs doing. More draws may let a richer method help; where f is a coin flip in the "
        "parameters, nothing will.",
    ),
    Code.FEW_BEYOND: Meaning(
        "Few draws beyond this point",
        "A quantile or a probability far out in the tail rests on the few draws that lie beyond it. What they do not "
        "show no control variate can know, so the plain estimate is reported.",
        "Run the sampler longer, or ask for a level or a threshold nearer to the middle.",
    ),
    Code.TIED: Meaning(
        "Many draws are equal",
        "f takes this very value at many draws, so its distribution function jumps there, and a quantile has no error "
        "bar of the usual kind. The plain quantile is one of the values of f, and is reported.",
        "Ask for probabilities instead: P(f > c) between two values can be controlled.",
    ),
    Code.EXACT: Meaning(
        "Exact",
        "Draw by draw, f plus its control variate is the same number up to round-off. That number is the mean: there "
        "is no sampling error left.",
        "Nothing needs doing. This happens, for example, for polynomials of a Gaussian.",
    ),
    Code.CONSTANT: Meaning(
        "Constant",
        "f has the same value at every draw, so its mean is known.",
        "Nothing needs doing, unless you expected it to vary.",
    ),
}
"""The most serious first: the order in which they are shown."""
