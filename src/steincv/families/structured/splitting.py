"""A part of the draws to choose on: whole chains where there are three or more, else the last third of each."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int


class Split(NamedTuple):
    """Rows to fit on and rows to judge by."""

    fit: Int[np.ndarray, " n"]
    judge: Int[np.ndarray, " m"]

    @classmethod
    def of(cls, n: int, chains: int) -> "Split":
        """Split n draws, chain after chain, so that no draw is judged by a fit on its neighbours."""
        rows = np.arange(n)
        length = n // chains
        whole, tails = rows >= (chains - chains // 3) * length, rows % length >= length - length // 3
        judged = whole if chains >= 3 else tails
        return cls(rows[~judged], rows[judged])
