"""Simulators with a prior, observations and a posterior that is known.

A name or numbers come in; pairs of the joint, draws of the true posterior and posteriors that are
wrong by design come out. No posterior is trained here.
"""

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

__all__ = ["BENCHMARK", "Exact", "Observations", "Perturbed", "Task", "task"]
__all__ += ["SLCP", "TwoMoons", "GaussianMixture"]
__all__ += ["GaussianLinearUniform", "BernoulliGLM", "BernoulliGLMRaw"]
__all__ += ["ConjugateGaussian", "StateSpace", "GammaPoisson", "JansenRit"]

# The six tasks of the benchmark, in the order of the paper's figures.
BENCHMARK: tuple[type[Task], ...] = (
    *(SLCP, TwoMoons, GaussianMixture),
    *(GaussianLinearUniform, BernoulliGLM, BernoulliGLMRaw),
)
STUDIES: tuple[type[Task], ...] = (ConjugateGaussian, StateSpace, GammaPoisson, JansenRit)
TASKS = {kind.name: kind for kind in (*BENCHMARK, *STUDIES)}


def task(name: str) -> Task:
    """A task by its name.

    Example:
        >>> task("two_moons")
        TwoMoons(m=2, d=2)
    """
    if not isinstance(name, str) or name not in TASKS:
        raise ValueError(f"name: expected one of {', '.join(sorted(TASKS))}; got {name!r}.")
    return TASKS[name]()
