"""The one-liner: all tests that fit what was given, one local test that decides, one report.

.. code-block:: python

    found = assay.check(posterior, theta, x, x_o)  # a flow, or anything with sample(x, n)
    found = assay.check(calibration, x_o=assay.Draws(x_o, theta_o))  # or samples made before
    print(found.verdict)
    found.report("report.html")

**What decides** is the local moment test wherever it applies: latents of a flow, or enough draws
of q at each x. It is exact for the neighbourhood of x_o, and quick enough to tell what it would
have seen. With fewer draws it is least squares under :class:`assay.LocalExchange`, or
:func:`assay.region` where there are too many observations for it.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from .bases import StandardNormal
from .classifiers.mlp import MLP
from .classifiers.ridge import Ridge
from .copies import Classifier
from .diagnostics.coverage import coverage
from .diagnostics.lc2st import lc2st
from .diagnostics.lpit import lpit
from .diagnostics.moments import moments
from .diagnostics.region import region
from .diagnostics.sbc import sbc
from .diagnostics.tarp import tarp
from .door import as_tensors, check_count, check_kind, check_number
from .effects import effects
from .findings import Findings
from .flows import flow_sample, flow_to_base
from .io import savable, save
from .neighbourhoods import Nearest
from .nulls import Exchange, KnownBase, LocalExchange
from .power import Repeatable, power
from .randomness import Seed, seed_of, stream
from .report import write
from .samples import Calibration, Draws, Embed
from .trust import TrustMap, judged
from .version import versions

__all__ = ["Check", "Posterior", "Suite", "check"]

# Draws of q at each x that the classifier sees, and the pairs that it is trained on at most.
FEW, MOST_TRAINED = 1, 10_000
# Observations up to which every one has refitted nulls of its own.
MOST_REFITTED = 10
# Repetitions of planted errors at observations of the calibration.
CLOUD_RUNS = 12
# Draws of q at each x that ranks ask for.
FEWEST_DRAWS = 4
# The share of x that are near an observation.
NEAR = 0.2
# Draws beyond the number of parameters, where they are made here.
ENOUGH = 4


class Posterior(Protocol):
    """A posterior to be checked; a :class:`~assay.flows.Flow` has an inverse besides."""

    def sample(self, x: Tensor, n: int) -> Any:
        """Returns n draws (n, m) at one observation x, with shape (...,)."""


@dataclass(frozen=True)
class Suite:
    """How a check is run.

    Args:
        alpha: The level.
        nulls: Null copies of the local test.
        classifier: What scores the draws at x_o, for PP-plots and pair plots; None for none.
        fitted: Its null copies.
        k: Draws of q that are made at each x where a posterior is given; more than that where
            there are many parameters.
        draws: Draws of q that are made at each x_o, likewise.
        pairs: Pairs that global tests look at, at most.
        cloud: Observations of the calibration at which q is judged besides, at most.
        smallest: The size of error that must not go unseen where q is trusted.
    """

    alpha: float = 0.05
    nulls: int = 199
    classifier: Classifier | None = MLP()
    fitted: int = 99
    k: int = 16
    draws: int = 1000
    pairs: int = 1000
    cloud: int = 30
    smallest: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < check_number("alpha", self.alpha) < 0.5:
            raise ValueError(f"alpha: expected a number between 0 and 0.5; got {self.alpha}.")
        for name, least in (("nulls", 1), ("fitted", 9), ("k", 1), ("draws", 1), ("pairs", 10)):
            object.__setattr__(self, name, check_count(name, getattr(self, name), least))
        object.__setattr__(self, "cloud", check_count("cloud", self.cloud, 0))
        check_number("smallest", self.smallest)
        if self.classifier is not None:
            check_kind("classifier", self.classifier, "a classifier such as MLP()", "fit")
        if (1 + self.nulls) * self.alpha < 1 - 1e-9:
            raise ValueError(
                f"nulls: expected at least {int(np.ceil(1 / self.alpha)) - 1} for level "
                f"{self.alpha:g}; got {self.nulls}, with which nothing can be rejected."
            )


@savable
@dataclass(frozen=True, eq=False, repr=False)
class Check(Findings):
    """What :func:`check` found; it can be printed, saved and reported."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves it, to be read by :func:`assay.load`.

        Args:
            path: The file to write.
        """
        save(self, path)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Writes one HTML file that works without a network.

        Args:
            path: The file to write.
        """
        write(self, path)


def check(
    posterior: Posterior | Callable[[Tensor, int], Any] | Calibration,
    theta: Any = None,
    x: Any = None,
    x_o: Any = None,
    suite: Suite | None = None,
    *,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    embed: Embed | None = None,
    seed: Seed = 0,
) -> Check:
    """Checks q at one observation or many, by every test that fits what was given.

    Args:
        posterior: A flow, an object with ``sample(x, n)`` or such a function; or a calibration,
            with draws of q or of latents, and then neither `theta` nor `x`.
        theta: Parameters of calibration pairs, with shape (n, m), that q was not trained on.
        x: Their observations, with shape (n, ...).
        x_o: The observation, with shape (...,), or many, with shape (o, ...); or
            :class:`assay.Draws`, which a calibration with draws of q asks for.
        suite: How the check is run.
        names: Names of the parameters.
        labels: Names of the observations.
        embed: Turns observations into features, as in :class:`assay.Calibration`.
        seed: An int or a generator. The same seed gives the same check.

    Example:
        >>> theta, noise = torch.randn(2, 400, 1, generator=torch.Generator().manual_seed(0))
        >>> narrow = lambda x, n: x / 2 + 0.3 * torch.randn(n, 1)
        >>> suite = Suite(classifier=None, cloud=0)
        >>> found = check(narrow, theta, theta + noise, [0.5], suite, names=["mu"])
        >>> found.verdicts
        ('rejected',)
        >>> found.effects[0].sentence
        'mu is ... % too narrow; the 90 % region covers about ... % (... to ... %); ...'
    """
    suite = Suite() if suite is None else suite
    check_kind("suite", suite, "a Suite()", "alpha", "classifier")
    seed, start = seed_of(seed), time.perf_counter()
    with tqdm(total=5, desc="checking", unit="part", disable=None) as bar:
        bar.set_postfix_str("drawing")
        given = _given(posterior, theta, x, x_o, suite, embed, seed)
        words = _words(given, names, labels)
        bar.update()
        found = _Run(given, suite, seed, bar).parts(words[0])
    settings = {
        **given.local.summary,
        "seed": seed,
        "suite": repr(suite),
        "call": _call(posterior, suite, seed),
        "seconds": time.perf_counter() - start,
        **versions(),
    }
    said: dict[str, Any] = {"names": words[0], "labels": words[1], "alpha": suite.alpha}
    return Check(**found, **said, settings=settings, remarks=_remarks(given, words[1]))


@dataclass(frozen=True, eq=False)
class _Given:
    """Samples as the tests need them.

    Args:
        local: What local tests look at: latents of a flow, or draws of q.
        sets: Pairs with draws of q, for global tests; None where there are none.
        draws: The observations, with a leading axis.
    """

    local: Calibration
    sets: Calibration | None
    draws: Draws

    @property
    def named(self) -> bool:
        """Whether errors are told in parameters rather than latents."""
        return self.local.base is None or self.local.flow is not None

    @property
    def closed(self) -> bool:
        """Whether the moment test applies."""
        if self.local.base is not None:
            return isinstance(self.local.base, StandardNormal)
        return (self.local.k or 0) >= self.local.m + 2


def _given(
    posterior: Any, theta: Any, x: Any, x_o: Any, suite: Suite, embed: Embed | None, seed: int
) -> _Given:
    if x_o is None:
        raise ValueError("x_o: expected the observation to be checked; got None.")
    draws = x_o if isinstance(x_o, Draws) else Draws(x_o, n=suite.draws)
    if isinstance(posterior, Calibration):
        if theta is not None or x is not None or embed is not None:
            raise ValueError(
                "theta: expected None with a calibration, which holds theta, x and embed; got "
                "more. Use check(calibration, x_o=Draws(x_o, theta_o))."
            )
        return _from_calibration(posterior, draws, suite, seed)
    sampler = _Function(posterior) if not hasattr(posterior, "sample") else posterior
    if not callable(getattr(sampler, "sample", None)) or not callable(
        getattr(sampler, "function", sampler.sample)
    ):
        raise TypeError(
            "posterior: expected an object with sample(x, n), a function of x and n, or a "
            f"Calibration; got {type(posterior).__name__}."
        )
    if theta is None or x is None:
        raise ValueError(
            "theta, x: expected calibration pairs that the posterior was not trained on; got "
            "None. Use check(posterior, theta, x, x_o)."
        )
    return _from_posterior(sampler, theta, x, draws, suite, embed, seed)


@dataclass(frozen=True, eq=False)
class _Function:
    """A function of x and n as a posterior."""

    function: Any

    def sample(self, x: Tensor, n: int) -> Any:
        """Returns n draws at one observation."""
        return self.function(x, n)


def _from_calibration(calibration: Calibration, draws: Draws, suite: Suite, seed: int) -> _Given:
    single = calibration.place(draws).single
    many = Draws(draws.x[None], _leading(draws.theta), draws.n) if single else draws
    some = calibration.subset(_rows(len(calibration), suite.pairs, seed))
    if calibration.base is None:
        calibration.observe(many, seed)
        return _Given(calibration, some, many)
    base = calibration.base.sample(len(some) * suite.k, stream(seed, "base"))
    latents = base.to(some.theta).unflatten(0, (len(some), suite.k))
    return _Given(calibration, replace(some, theta_q=latents, base=None, flow=None), many)


def _leading(theta: Tensor | None) -> Tensor | None:
    """Draws with a leading axis of observations."""
    return theta if theta is None or theta.ndim == 3 else theta[None]


def _from_posterior(
    posterior: Any, theta: Any, x: Any, draws: Draws, suite: Suite, embed: Embed | None, seed: int
) -> _Given:
    pairs = as_tensors({"theta": theta, "x": x})
    theta, x = pairs["theta"], pairs["x"]
    if theta.ndim != 2 or x.ndim < 2 or len(x) != len(theta):
        raise ValueError(
            "theta, x: expected shapes (n, m) and (n, ...), a row of x for each row of theta; "
            f"got {tuple(theta.shape)} and {tuple(x.shape)}."
        )
    flow = hasattr(posterior, "theta_to_base") and hasattr(posterior, "base")
    rows = _rows(len(theta), suite.pairs if flow else len(theta), seed)
    # As many as the moment test asks for, and some more.
    k = max(suite.k, theta.shape[1] + ENOUGH)
    drawn = _drawn(posterior, x[rows], k, seed, "draws")
    sets = Calibration(theta[rows], x[rows], drawn, embed)
    place = sets.place(draws)
    at = (
        draws.theta
        if draws.theta is not None
        else _drawn(posterior, place.x, draws.n, seed, "observations")
    )
    many = Draws(place.x, _leading(at))
    if not flow:
        return _Given(sets, sets.subset(_rows(len(sets), suite.pairs, seed)), many)
    # Some pairs have draws, which prove that the flow is one q; latents are those of all pairs.
    base = sets.to_latent(posterior, seed).base
    z = flow_to_base(posterior, theta.to(sets.theta), x.to(sets.x))
    return _Given(Calibration(z, x, None, embed, base=base, flow=posterior), sets, many)


def _drawn(posterior: Any, x: Tensor, n: int, seed: int, purpose: str) -> Tensor:
    """Draws (b, n, m) of q at observations (b, ...)."""
    bar = tqdm(
        x, f"drawing: {purpose}", unit="x", disable=None if len(x) > 100 else True, leave=None
    )
    streams = (stream(seed, purpose, i) for i in range(len(x)))
    try:
        return torch.stack([flow_sample(posterior, at, n, next(streams)) for at in bar])
    except TypeError as error:
        raise TypeError(
            f"posterior: expected sample(x, n), which takes one observation x, a tensor of shape "
            f"{tuple(x.shape[1:])}, and returns n draws (n, m); calling it so failed with: {error}"
        ) from error


def _rows(n: int, most: int, seed: int) -> np.ndarray:
    """At most so many of n rows, at random, in their order."""
    if n <= most:
        return np.arange(n)
    chosen = torch.randperm(n, generator=stream(seed, "rows"))[:most]
    return np.sort(chosen.numpy())


@dataclass(frozen=True, eq=False)
class _Run:
    """The tests, one after the other.

    Args:
        given: Samples.
        suite: How they are run.
        seed: The seed of all of it.
        bar: Progress, in five parts of which the first was to make the samples.
    """

    given: _Given
    suite: Suite
    seed: int
    bar: Any

    def parts(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The parts of a check, by name."""
        self.bar.set_postfix_str("local test")
        test = self._local()
        local = test(self.given.draws)
        said = names if self.given.named else None
        found: dict[str, Any] = {"local": local, "effects": effects(self._told(local), said)}
        self.bar.update()
        self.bar.set_postfix_str("what it would have seen")
        found |= self._judged(test, local)
        self.bar.update()
        self.bar.set_postfix_str("classifier")
        found |= self._classified(said)
        self.bar.update()
        self.bar.set_postfix_str("global tests")
        found |= self._global(names)
        self.bar.update()
        self.bar.set_postfix_str("done")
        return found

    def _local(self) -> Any:
        """The test that decides."""
        calibration, nulls, seed = self.given.local, self.suite.nulls, self.seed
        if self.given.closed:
            null = Exchange(nulls) if calibration.base is None else KnownBase(nulls)
            return moments(calibration, null=null, seed=seed)
        count = len(self.given.draws.x)
        if count > MOST_REFITTED:
            return region(calibration, Ridge(), null=Exchange(max(999, nulls)), seed=seed)
        # As many nulls as Holm's adjustment asks for.
        enough = max(nulls, int(np.ceil(count / self.suite.alpha)) - 1)
        return lc2st(calibration, Ridge(), LocalExchange(enough), seed=seed)

    def _told(self, local: Any) -> Any:
        """A result that tells effects: the local test's own, or that of a fit over all sets."""
        if getattr(local, "null_probabilities", local) is not None:
            return local
        null = Exchange(self.suite.fitted)
        return lc2st(self.given.local, Ridge(), null, seed=self.seed)(self.given.draws)

    def _judged(self, test: Repeatable, local: Any) -> dict[str, Any]:
        if not self.given.closed:
            return {"seen": None, "trust": None, "cloud": None}
        seen = power(test, self.given.draws, seed=self.seed, alpha=self.suite.alpha)
        trust = judged(local, seen, self.suite.smallest, self.suite.alpha)
        return {"seen": seen, "trust": trust, "cloud": self._cloud(test)}

    def _cloud(self, test: Repeatable) -> TrustMap | None:
        """Verdicts at observations of the calibration, which x alone chooses."""
        calibration = self.given.local
        if not self.suite.cloud:
            return None
        rows = _rows(len(calibration), self.suite.cloud, self.seed)
        there = Draws(calibration.x[rows])
        seen = power(test, there, seed=self.seed, alpha=self.suite.alpha, n=CLOUD_RUNS)
        return judged(test(there), seen, self.suite.smallest, self.suite.alpha)

    def _classified(self, names: tuple[str, ...] | None) -> dict[str, Any]:
        if self.suite.classifier is None:
            return dict.fromkeys(("classified", "ratio", "health"))
        calibration = self.given.local
        if len(calibration) > MOST_TRAINED:
            calibration = calibration.subset(_rows(len(calibration), MOST_TRAINED, self.seed))
        if calibration.theta_q is not None:
            calibration = replace(calibration, theta_q=calibration.theta_q[:, :FEW])
        default = Exchange() if calibration.base is None else KnownBase()
        null = replace(getattr(self.suite.classifier, "null", default), n=self.suite.fitted)
        test = lc2st(calibration, self.suite.classifier, null, seed=self.seed)
        found = test(self.given.draws)
        ratio = effects(found, names, exponent=test.health.exponent)
        return {"classified": found, "ratio": ratio, "health": test.health}

    def _global(self, names: tuple[str, ...]) -> dict[str, Any]:
        sets, seed = self.given.sets, self.seed
        if sets is None or (sets.k or 0) < FEWEST_DRAWS:
            return dict.fromkeys(("pits", "sbc", "coverage", "tarp"))
        # Conditional PITs come from whitened sets, as moments do.
        pits = lpit(self.given.local, seed=seed)(self.given.draws) if self.given.closed else None
        return {
            "pits": pits,
            "sbc": replace(sbc(sets, seed=seed), names=names),
            "coverage": replace(coverage(sets, seed=seed), names=names),
            "tarp": tarp(sets, seed=seed),
        }


def _remarks(given: _Given, labels: tuple[str, ...]) -> tuple[str, ...]:
    """What is to be said of the samples."""
    found = []
    if not given.closed and given.local.base is None:
        found.append(
            f"There are only {given.local.k} draws of q at each x: with {given.local.m + 2} or "
            "more, the local moment test decides, what it would have seen is told, and tests over "
            "all x are run."
        )
    strange = [label for label, own in zip(labels, _own(given), strict=True) if not own]
    if strange:
        found.append(
            f"The draws theta_o at {', '.join(strange)} lie outside those of q at the nearest x: "
            "are they draws of q there, and in the same units?"
        )
    return tuple(found)


def _own(given: _Given) -> list[bool]:
    """Whether draws at each observation are like those of q at the nearest x.

    They are not where fewer than a twentieth lie in the range of those, in some parameter.
    """
    draws, theta_q = given.draws, given.local.theta_q
    place = given.local.place(draws)
    if theta_q is None or draws.theta is None:
        return [True] * len(place.x)
    near = Nearest((NEAR,)).inside(given.local.features, place.features)[:, 0]
    found = []
    for rows, theta in zip(near, draws.theta.to(theta_q), strict=True):
        there = theta_q[rows].flatten(0, 1)
        low, high = there.amin(0), there.amax(0)
        inside = ((theta >= low) & (theta <= high)).double().mean(0)
        found.append(bool((inside >= 0.05).all()))
    return found


def _words(
    given: _Given, names: Sequence[str] | None, labels: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of parameters and of observations."""
    m, o = given.local.m, len(given.draws.x)
    kind = "theta" if given.named else "latent"
    return (
        _named("names", names, m, tuple(f"{kind}[{j}]" for j in range(m))),
        _named("labels", labels, o, tuple(f"x_o[{i}]" for i in range(o)) if o > 1 else ("x_o",)),
    )


def _named(
    argument: str, given: Sequence[str] | None, count: int, default: tuple[str, ...]
) -> tuple[str, ...]:
    if given is None:
        return default
    each = (given,) if isinstance(given, str) else given
    # A name stands in one line.
    found = tuple(" ".join(str(name).split()) for name in each)
    if len(found) != count or len(set(found)) < count:
        raise ValueError(f"{argument}: expected {count} different names; got {found!r}.")
    return found


def _call(posterior: Any, suite: Suite, seed: int) -> str:
    """The call that gives the same check again."""
    default = Suite()
    changed = {k: v for k, v in vars(suite).items() if v != getattr(default, k)}
    how = f", Suite({', '.join(f'{k}={v!r}' for k, v in changed.items())})" if changed else ""
    what = (
        f"calibration, x_o=draws{how.replace(', Suite', ', suite=Suite')}"
        if isinstance(posterior, Calibration)
        else f"posterior, theta, x, x_o{how}"
    )
    return f"assay.check({what}, seed={seed})"
