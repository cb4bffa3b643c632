"""What can go wrong, as values whose text is the message.

A `Code` is the kind of thing that happened; its value is the sentence a user reads, with the
numbers filled in. Where the answer would be meaningless the sentence is raised as an `InputError`;
otherwise it is attached to the result.
"""

import enum
from dataclasses import dataclass

#: Why a member of the default went no further than the first fold.
RACED = "added too little on the first fold"


class Code(enum.Enum):
    """The kinds of status; each value is the text of its message."""

    LOW_ESS = (
        "only {ess:.0f} effective draws: the error bar itself is uncertain. Run the sampler longer, "
        "or read the interval as a rough guide."
    )
    NO_GAIN = (
        "control variates did not help here (estimated variance ratio {ratio:.2f}), so the plain mean "
        "is reported. Nothing was lost; more draws may let a richer method help."
    )
    STEIN_MEAN = (
        "the Stein mean of {worst} is off zero by {z:.1f} standard errors, which correct draws and "
        "scores almost never show. Likely: scores of another density or in constrained coordinates "
        "without the Jacobian, a support with an edge, or chains that have not mixed. The controlled "
        "mean is not to be trusted; check `scores` against grad(log density) at one draw."
    )
    HEAVY_TAIL = (
        "the values of f have a heavy tail (Pareto k = {khat:.2f} > {limit:.2f}): the variance may be "
        "infinite and error bars too short. Estimate a bounded function of it, or reparametrise."
    )
    RARE_DRAWS = (
        "about {carriers:.0f} of the draws, far out, carry the error bar, and others as far may not have come yet: "
        "the standard error is more often too small than too large. The interval is widened for that; use it, and "
        "read the gain as a rough guide. More draws help, and a simpler method, such as Polynomial(2), to compare with."
    )
    SLOW_CHAINS = (
        "the chains moved so slowly that {draws:.0f} of their draws count as one, and the gain ({gain:.0f}) is more "
        "than f has effective draws ({ess:.0f}): what lies where they have not been is missing from the error bar, "
        "which may be far too short. Run them longer, or compare with Polynomial(2)."
    )
    CHAINS_DISAGREE = (
        "the chains disagree (split R-hat {rhat:.3f} > {limit:.3f}): they have not mixed and no mean over "
        "them can be trusted. Run longer or improve the sampler first."
    )
    UNEVEN_WEIGHTS = (
        "the weights have a heavy tail (Pareto k = {khat:.2f} > {limit:.2f}): of all draws a few carry most of the "
        "weight (effective size {ess:.0f}), and error bars may be too short. Use a proposal with heavier tails, or "
        "more temperatures on the way."
    )
    LOW_OVERLAP = (
        "the posterior and the proposal hardly overlap (by {overlap:.1%}, or {draws:.0f} effective draws): the log "
        "evidence rests on these few, and its error bar may be too short. More draws make a better proposal; or use a "
        "ladder of temperatures (`log_evidence`)."
    )
    FEW_BEYOND = (
        "about {count:.0f} effective draws lie beyond this point: they do not know that tail, so the plain estimate is "
        "reported. Run the sampler longer, or ask for a point nearer to the middle."
    )
    TIED = (
        "{share:.0%} of the draws have exactly this value of f: where f is discrete a quantile is one of its values, "
        "so the plain one is reported. A probability can be controlled: steincv.probability."
    )
    EXACT = "f + g is constant to round-off: the estimate is exact for this f (relative spread {spread:.0e})."
    CONSTANT = "f is constant over all draws, so its mean is known exactly and there is nothing to reduce."
    TOO_MANY_FEATURES = (
        "{features} features on {draws} fitting draws: the fit leans on its penalty. Fewer features "
        "(a lower degree) or more draws would be safer."
    )


#: Codes that say the estimate itself, not only its error bar, may be wrong.
ALARMS = frozenset({Code.STEIN_MEAN, Code.CHAINS_DISAGREE})


@dataclass(frozen=True)
class Status:
    """One thing that happened: its `code` and a `message` with the numbers in it."""

    code: Code
    message: str

    @classmethod
    def of(cls, code: Code, **numbers: object) -> "Status":
        return cls(code, code.value.format(**numbers))

    @property
    def name(self) -> str:
        """A short name for tables: `no gain`, `low ess`, ..."""
        return self.code.name.lower().replace("_", " ")

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"
