"""Distributions of numpyro, which a function of x returns."""

from typing import Any

import jax
import numpy as np

from ..data.posterior import fresh_key


def draws(distribution: Any, n: int) -> np.ndarray:
    """Draws (n, ...), with a key from the generator that is seeded before every call."""
    return np.asarray(distribution.sample(jax.random.PRNGKey(fresh_key()), (n,)))
