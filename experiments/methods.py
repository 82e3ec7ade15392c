"""Methods: every test of the comparison as a function of a setting, published or ours.

Each returns statistics and p-values at the observations. The names say which column they belong
to: those that begin with ``published`` follow the paper, the others are this library's. Networks
and nulls are its defaults. Neighbourhoods are the nearest fifth, so that tests with a local claim
can be compared; ``score``, the test that decides in ``assay.check``, has its own default.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ShuffleSplit

import assay
from assay.neighbourhood import Nearest

from . import published
from .material import Setting
from .networks import Batched, Classifier, Network, two_layers
from .published import Trial, together

__all__ = ["METHODS", "ORACLES", "STACKED", "Found", "published_lc2st", "several"]

Found = dict[str, list[float]]
Method = Callable[[Setting, int], Found]

# Draws of q at each x for the score test, and what is near an observation.
DRAWS, NEAR = 16, Nearest(0.2)


def _plain(statistic: Any, pvalue: Any) -> Found:
    return {
        "statistic": [float(f"{v:.6g}") for v in np.asarray(statistic, float).ravel()],
        "pvalue": [float(f"{v:.6g}") for v in np.asarray(pvalue, float).ravel()],
    }


def _tested(result: Any) -> Found:
    return _plain(result.statistic, result.pvalue)


def _published(statistic: torch.Tensor, null: torch.Tensor) -> Found:
    return _plain(statistic.cpu(), published.pvalue(statistic, null).cpu())


# How a network is trained.
Make = Callable[[Network], Classifier]


def _fitted(settings: Sequence[Setting], trials: list[Trial], make: Make = Batched) -> list[Any]:
    return together(make(two_layers(settings[0].task.m)), trials)


def published_lc2st(
    settings: Sequence[Setting], nulls: int, *, free: bool = True, make: Make = Batched
) -> list[Found]:
    """L-C2ST as published; or, where permutations are not free, but for its null."""
    trials = []
    for setting in settings:
        sets, device = setting.sets(1), setting.device
        assert sets.theta_q is not None
        there = setting.x_o.to(device), setting.theta_o.to(device)
        pairs = sets.theta, sets.x, sets.theta_q[:, 0]
        trial = published.trial_of_lc2st(pairs, there, nulls, free=free, run=setting.run)
        trials.append(trial)
    return [_published(*found) for found in _fitted(settings, trials, make)]


def published_lc2st_nf(
    settings: Sequence[Setting], nulls: int, *, make: Make = Batched
) -> list[Found]:
    """L-C2ST-NF as published."""
    trials = []
    for setting in settings:
        pairs = setting.latents.theta, setting.latents.x
        x_o = setting.x_o.to(setting.device)
        trial = published.trial_of_lc2st_nf(pairs, x_o, nulls, setting.draws, run=setting.run)
        trials.append(trial)
    return [_published(*found) for found in _fitted(settings, trials, make)]


def published_c2st(settings: Sequence[Setting], nulls: int) -> list[Found]:
    """The oracle as published: MSE, with as many draws to train as there are pairs."""
    trials = []
    for setting in settings:
        n, device = setting.pairs + setting.draws, setting.device
        for o, (wrong, right) in enumerate(zip(setting.q(n), setting.exact(n), strict=True)):
            samples, key = (wrong.to(device), right.to(device)), (setting.run, o)
            trials.append(published.trial_of_c2st(samples, setting.pairs, nulls, key))
    found = _fitted(settings, trials)
    mse, null = (torch.stack([f[i] for f in found]) for i in (0, 1))
    count = len(found) // len(settings)
    return [_published(*one) for one in zip(mse.split(count), null.split(count), strict=True)]


def c2st(setting: Setting, nulls: int) -> Found:
    """The oracle with our network and exchanged labels, judged on as many draws again."""
    q, exact = setting.q(2 * setting.pairs), setting.exact(2 * setting.pairs)
    found = []
    for right, wrong in zip(exact, q, strict=True):
        both = right.to(setting.device), wrong.to(setting.device)
        null = assay.Exchange(nulls)
        result = assay.c2st(
            *both,
            null=null,
            evaluation=ShuffleSplit(1, test_size=0.5, random_state=0),
            seed=setting.seed,
        )
        found.append(result["mse"])
    return _plain([f.statistic for f in found], [f.pvalue for f in found])


def lc2st(setting: Setting, nulls: int) -> Found:
    """The network in parameters, one draw of q at each x."""
    test = assay.lc2st(setting.sets(1), null=assay.Exchange(nulls), seed=setting.seed)
    return _tested(test(setting.there))


def lc2st_nf(setting: Setting, nulls: int) -> Found:
    """The network in latents."""
    test = assay.lc2st(setting.latents, null=assay.KnownBase(nulls), seed=setting.seed)
    return _tested(test(assay.Draws(setting.x_o, n=setting.draws)))


def ridge(setting: Setting, nulls: int) -> Found:
    """Least squares in parameters, several draws of q at each x."""
    null = assay.Exchange(nulls)
    test = assay.lc2st(setting.sets(4), assay.Ridge(), null, seed=setting.seed)
    return _tested(test(setting.there))


def ridge_nf(setting: Setting, nulls: int) -> Found:
    """Least squares in latents."""
    null = assay.Exchange(nulls)
    test = assay.lc2st(setting.latents, assay.Ridge(), null, seed=setting.seed)
    return _tested(test(assay.Draws(setting.x_o, n=setting.draws)))


def score(setting: Setting, nulls: int) -> Found:
    """What decides in ``assay.check``: the local score test, several draws of q at each x."""
    test = assay.score(setting.sets(DRAWS), null=nulls, seed=setting.seed)
    return _tested(test(setting.x_o))


def score_nf(setting: Setting, nulls: int) -> Found:
    """The same of latents."""
    test = assay.score(setting.latents, null=nulls, seed=setting.seed)
    return _tested(test(setting.x_o))


def local_exchange(setting: Setting, nulls: int) -> Found:
    """Least squares in parameters under the local null, exact for the nearest fifth."""
    null = assay.LocalExchange(nulls, NEAR)
    test = assay.lc2st(setting.sets(4), assay.Ridge(), null, seed=setting.seed)
    return _tested(test(setting.there))


def local_exchange_nf(setting: Setting, nulls: int) -> Found:
    """Least squares in latents under the local null, exact for the nearest fifth."""
    null = assay.LocalExchange(nulls, NEAR)
    test = assay.lc2st(setting.latents, assay.Ridge(), null, seed=setting.seed)
    return _tested(test(assay.Draws(setting.x_o, n=setting.draws)))


def lhpd(setting: Setting, nulls: int) -> Found:
    """Local HPD in closed form, from the flow's own density."""
    sets = setting.sets(100)
    test = assay.lhpd(sets, setting.flow.log_prob, NEAR, nulls, seed=setting.seed)
    return _tested(test(setting.x_o))


# As published, the classifiers of several runs are fitted in one stack.
STACKED: dict[str, Callable[[Sequence[Setting], int], list[Found]]] = {
    "published C2ST": published_c2st,
    "published L-C2ST": published_lc2st,
    "published L-C2ST-NF": published_lc2st_nf,
}


def _alone(name: str, setting: Setting, nulls: int) -> Found:
    return STACKED[name]([setting], nulls)[0]


METHODS: dict[str, Method] = {
    **{name: partial(_alone, name) for name in STACKED},
    "C2ST": c2st,
    "L-C2ST": lc2st,
    "L-C2ST-NF": lc2st_nf,
    "Ridge": ridge,
    "Ridge-NF": ridge_nf,
    "score": score,
    "score-NF": score_nf,
    "LocalExchange": local_exchange,
    "LocalExchange-NF": local_exchange_nf,
    "local HPD": lhpd,
}
ORACLES = ("published C2ST", "C2ST")


def several(name: str, settings: Sequence[Setting], nulls: int) -> list[Found]:
    """What a method finds in several runs of one kind."""
    if name in STACKED:
        return STACKED[name](settings, nulls)
    return [METHODS[name](setting, nulls) for setting in settings]
