r"""The paper's embedding of an image: the two convolutions with pooling and relu of the classifier, 147 numbers."""

from dataclasses import dataclass
from typing import Any

import jax

from steincv.runtime.validation import InputError

from .classifier import SHAPES, Filters, activations, check_images, patches


@dataclass(frozen=True)
class ImageEmbedding:
    r"""$\psi(x)$ of `Amortised(images, embed=ImageEmbedding())`: 28 x 28 images to 147 numbers."""

    def init(self, key: Any, context: Any, out: int) -> Any:
        check_images(context)
        if out != 147:
            raise InputError(f"The paper's embedding has 147 outputs, got width = {out}. Use width=147.")
        keys = jax.random.split(key, 4)
        return [
            jax.random.normal(k, shape) / (shape[0] ** 0.5 if len(shape) > 1 else 10.0)
            for k, shape in zip(keys, SHAPES[:4], strict=True)
        ]

    def __call__(self, params: Any, context: Any) -> Any:
        return activations(Filters(*params), patches(context)).T
