"""Simulators with a prior, observations and a posterior that is known."""

from .bernoulli_glm import BernoulliGLM, BernoulliGLMRaw
from .gamma_poisson import GammaPoisson
from .gaussian_linear_uniform import GaussianLinearUniform
from .gaussian_mixture import GaussianMixture
from .jansen_rit import JansenRit
from .linear_gaussian import ConjugateGaussian, StateSpace
from .perturbed import Perturbed
from .slcp import SLCP
from .task import Exact, Observations, Task
from .two_moons import TwoMoons

__all__ = [
    "BENCHMARK",
    "SLCP",
    "BernoulliGLM",
    "BernoulliGLMRaw",
    "ConjugateGaussian",
    "Exact",
    "GammaPoisson",
    "GaussianLinearUniform",
    "GaussianMixture",
    "JansenRit",
    "Observations",
    "Perturbed",
    "StateSpace",
    "Task",
    "TwoMoons",
    "task",
]

# The six tasks of the benchmark, in the order of the paper's figures.
BENCHMARK: tuple[type[Task], ...] = (
    *(SLCP, TwoMoons, GaussianMixture),
    *(GaussianLinearUniform, BernoulliGLM, BernoulliGLMRaw),
)
STUDIES: tuple[type[Task], ...] = (ConjugateGaussian, StateSpace, GammaPoisson, JansenRit)
TASKS = {kind.name: kind for kind in (*BENCHMARK, *STUDIES)}


def task(name: str) -> Task:
    """A task by its name.

    Args:
        name: Its name.

    Example:
        >>> task("two_moons")
        TwoMoons(m=2, d=2)
    """
    if name not in TASKS:
        raise ValueError(f"name: expected one of {', '.join(sorted(TASKS))}; got {name!r}.")
    return TASKS[name]()
