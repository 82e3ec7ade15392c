"""What a check looks at: pairs with draws of q, observations with draws there, what is near.

They come from a calibration, from a posterior with pairs, or from a posterior with a simulator.
The test that decides looks at latents where the posterior is a flow, since they say more than
draws do, and at draws of q otherwise. Everything else looks at draws of q in parameters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from .._support.inputs import check_count, check_kind, check_names, cpu
from .._support.random import stream
from ..neighbourhood import FEW_FEATURES, Distance, DistanceForQ, Nearest, as_nearest
from ..printing import readable
from .calibration import Calibration, Latents
from .draw import Drawing, Draws, draw_observed, draw_pairs
from .guards import autocorrelation
from .posterior import AnotherQ, Embed, Flow, Posterior, check_sets, latents
from .simulate import Simulations, pairs_around
from .tables import Layout

# Draws of q that are made at each observation.
OBSERVED_DRAWS = 1000
# The share of draws at x_o that must lie in the range of draws at the nearest x.
OWN = 0.05


@dataclass(frozen=True)
class Options:
    """How samples for a check are made; see :func:`assay.check` for the fields."""

    near: float | Nearest | None
    draws: int
    seed: int
    embed: Embed | None
    drawing: Drawing
    names: Sequence[str] | None
    labels: Sequence[str] | None


@dataclass(frozen=True, eq=False)
class Prepared:
    """The samples of a check."""

    pairs: Calibration  # with draws of q, in parameters; latents if a calibration has nothing else
    test_pairs: Calibration  # the same for the test that decides, in latents where q is a flow
    prior_pairs: Calibration  # the same, or those from the prior beside pairs around x_o
    observed: Draws  # the observations, with a leading axis, and draws of q there
    near: Nearest
    names: tuple[str, ...]  # of the parameters
    labels: tuple[str, ...]  # of the observations
    remarks: tuple[str, ...]  # sentences about the samples
    # With a simulator: simulations of one draw of q at each observation, and these draws; whether
    # pairs were simulated around the observations.
    predicted: tuple[Tensor, Tensor] | None = None
    around: bool = False


def prepare(
    posterior: Any,
    theta: Any,
    x: Any,
    x_o: Any,
    options: Options,
    source: Simulations | None = None,
) -> Prepared:
    """Makes the samples of a check, or refuses what does not fit together."""
    if x_o is None:
        raise ValueError("x_o: expected the observation to be checked; got None.")
    calibrated, paired = isinstance(posterior, Calibration), theta is not None or x is not None
    if source is not None:
        if paired or calibrated:
            raise ValueError(
                "simulator: expected it in place of pairs; got both. Use check(posterior, "
                "simulator=simulator, prior=prior, x_o=x_o), or check(posterior, theta, x, x_o)."
            )
        return _from_simulator(posterior, x_o, options, source)
    if not calibrated:
        return _from_posterior(posterior, theta, x, x_o, options)
    if paired or options.embed is not None:
        raise ValueError(
            "theta: expected None with a calibration, which holds theta, x and embed; got "
            "more. Use check(calibration, x_o=Draws(x_o, theta_o))."
        )
    return _from_calibration(posterior, x_o, options)


def _from_calibration(calibration: Calibration, x_o: Any, options: Options) -> Prepared:
    given = _observed(x_o, calibration.layout)
    many = given.many(calibration.observation(given).x)
    pairs = calibration
    if isinstance(calibration, Latents):
        sets = calibration.sets(options.draws, stream(options.seed, "base"))
        embed, layout = calibration.embed, calibration.layout
        pairs = Calibration(calibration.theta, calibration.x, sets[:, 1:], embed, layout=layout)
        pairs = replace(pairs, names=tuple(f"latent[{j}]" for j in range(pairs.m)))
    observed = calibration.observe(many, options.seed)
    if many.theta is None:
        many = Draws(many.x, observed.draws)
    near = calibration.nearest(options.near)
    return _prepared(pairs, calibration, pairs, many, near, options)


def _from_posterior(posterior: Any, theta: Any, x: Any, x_o: Any, options: Options) -> Prepared:
    if theta is None or x is None:
        raise ValueError(
            "theta, x: expected calibration pairs that the posterior was not trained on; got "
            "None. Use check(posterior, theta, x, x_o)."
        )
    sampler, given = draw_pairs(
        posterior, theta, x, options.draws, options.embed, options.drawing, options.seed
    )
    pairs = Calibration(**given)
    x_o = _observed(x_o, pairs.layout)
    observed = x_o.many(pairs.observation(x_o).x)
    observed = draw_observed(sampler, observed, options.seed, options.drawing)
    test_pairs, remarks = _test_pairs(sampler, pairs, observed, options.seed)
    near = as_nearest(options.near)
    if near.distance is not None or not isinstance(test_pairs, Latents):
        near = pairs.nearest(near)
    elif pairs.features.shape[1] <= FEW_FEATURES:
        near = replace(near, distance=Distance())
    else:  # base draws are other ones in each copy: near for q by its draws alone
        by_q = DistanceForQ.fit(pairs.features, cast(Tensor, pairs.theta_q))
        near = replace(near, distance=by_q)
    return _prepared(pairs, test_pairs, pairs, observed, near, options, pairs.remarks + remarks)


def _from_simulator(posterior: Any, x_o: Any, options: Options, source: Simulations) -> Prepared:
    found = pairs_around(
        posterior,
        _observed(x_o, None),
        source,
        k=options.draws,
        embed=options.embed,
        drawing=options.drawing,
        seed=options.seed,
    )
    pairs, of_prior = found.near, found.prior
    near = pairs.nearest(found.share if options.near is None else options.near)
    remarks = found.sentence, *pairs.remarks, *of_prior.remarks
    prepared = _prepared(pairs, pairs, of_prior, found.draws, near, options, remarks)
    return replace(prepared, predicted=found.predicted, around=found.around)


def _prepared(
    pairs: Calibration,
    test_pairs: Calibration,
    prior_pairs: Calibration,
    observed: Draws,
    near: Nearest,
    options: Options,
    remarks: tuple[str, ...] = (),
) -> Prepared:
    o = len(observed.x)
    names = pairs.parameter_names
    if options.names is not None:
        names = check_names("names", options.names, pairs.m)
        if len(set(map(readable, names))) < len(names):
            raise ValueError(f"names: expected names that read differently; got {names!r}.")
    labels = ("x_o",) if o == 1 else tuple(f"x_o[{i}]" for i in range(o))
    if options.labels is not None:
        labels = check_names("labels", options.labels, o)
    remarks = tuple(dict.fromkeys((*remarks, *_remarks(pairs, observed, near, labels))))
    return Prepared(pairs, test_pairs, prior_pairs, observed, near, names, labels, remarks)


def _observed(x_o: Any, layout: Layout | None) -> Draws:
    """The observations, whose dicts are laid out as those of x."""
    if isinstance(x_o, Draws):
        return x_o
    return Draws(x_o, n=OBSERVED_DRAWS, layout=layout if isinstance(x_o, Mapping) else None)


_COORDINATES = (
    "Draws are compared with true parameters in the latent coordinates of the network's flow, "
    "which is exact for the truncated q."
)
_DRAWS_INSTEAD = (
    "The flow's inverse does not belong to the draws that its sample(x, n) returns, as if these "
    "were truncated to the prior. q is what is sampled: it is tested with draws."
)


def _test_pairs(
    sampler: Posterior, pairs: Calibration, observed: Draws, seed: int
) -> tuple[Calibration, tuple[str, ...]]:
    """What the deciding test looks at: latents of a flow, coordinates in which q is normal, draws.

    Latents are those of a flow to which its draws belong.
    """
    if sampler.flow is not None:
        try:
            return _as_latents(sampler.flow, pairs, observed, seed), ()
        except AnotherQ:
            return pairs, (_DRAWS_INSTEAD,)
    if sampler.coordinates is None:
        return pairs, ()
    members = pairs.members
    x = pairs.x.repeat_interleave(members.shape[1], 0)
    z = latents(sampler.coordinates, members.flatten(0, 1), x, finite=False)
    z = z.reshape(members.shape)
    # A true parameter at the end of its range may have no finite latent.
    if not z.isfinite().all():
        return pairs, ()
    return pairs.with_members(z[:, 0], z[:, 1:]), (_COORDINATES,)


def _as_latents(flow: Flow, pairs: Calibration, observed: Draws, seed: int) -> Latents:
    """Latents of a flow whose draws belong to it: everywhere, near observations and there."""
    z = pairs.to_latent(flow, seed)
    observation = z.observe(observed, seed)
    theta = pairs.members[:, 1:]
    near = Nearest(distance=Distance()).inside(pairs.features, observation.features)
    everywhere = torch.ones_like(near[:1])
    check_sets(flow, z.base, theta, pairs.x, torch.cat([everywhere, near]))
    each = cpu.eye(len(observation.x), dtype=torch.bool)
    check_sets(flow, z.base, cast(Tensor, observed.theta).to(theta), observation.x, each)
    return z


def _remarks(
    pairs: Calibration, observed: Draws, near: Nearest, labels: tuple[str, ...]
) -> list[str]:
    """Remarks on draws: constant ones, a chain, or other draws at x_o than at the nearest x."""
    remarks, members = list(pairs.remarks), pairs.members[:, 1:]
    if (members == members[:1, :1]).all((0, 1)).any():
        remarks.append("q's draws of a parameter are all the same: tests over all x are left out.")
    chain = autocorrelation(members)
    if chain:
        remarks.append(chain)
    inside = near.inside(pairs.features, pairs.observation(observed).features)
    strange = []
    for label, rows, theta in zip(labels, inside, cast(Tensor, observed.theta), strict=True):
        there = cast(Tensor, pairs.theta_q)[rows].flatten(0, 1)
        theta = theta.to(there)
        within = (theta >= there.amin(0)) & (theta <= there.amax(0))
        if not (within.double().mean(0) >= OWN).all():
            strange.append(label)
    if strange:
        remarks.append(
            f"The draws theta_o at {', '.join(strange)} lie outside those of q at the nearest x: "
            "are they draws of q there, and in the same units?"
        )
    return remarks


def options_of(**given: Any) -> Options:
    """Checked options."""
    if given["near"] is not None:
        given["near"] = as_nearest(given["near"])
    given["draws"] = check_count("draws", given["draws"])
    given["drawing"] = Drawing() if given["drawing"] is None else given["drawing"]
    check_kind("drawing", given["drawing"], "a Drawing(), or None", Drawing)
    return Options(**given)
