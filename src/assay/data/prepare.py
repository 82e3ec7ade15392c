"""What a check looks at: pairs with draws of q, observations with draws there, what is near.

They come from a calibration, from a posterior with pairs, or from a posterior with a simulator.
The test that decides looks at latents where the posterior is a flow, since they say more than
draws do. Everything else looks at draws of q in parameters.

A first part of simulations has parameters from the prior, and says where x_o lies among all
observations. Others have parameters from a proposal around q at x_o: tests are exact, since it
depends on x_o and on draws of q there alone.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from .._support.inputs import check_count, check_finite, check_kind, check_names, cpu
from .._support.random import stream
from ..neighbourhood import FEW_FEATURES, Distance, DistanceForQ, Nearest, as_nearest
from ..printing import readable
from .calibration import Calibration, Latents
from .draw import Drawing, Draws, Sampler, draw_pairs
from .guards import autocorrelation
from .posterior import AnotherQ, Embed, as_posterior, check_sets, latents
from .proposal import RESERVE, Around, NoCompanions, companions
from .simulate import Runner, Simulations, one_of, parameters

# Draws of q at each observation, and the share of them that must be in the range of those nearby.
OBSERVED_DRAWS, OWN = 1000, 0.05
# With a simulator, draws of q at each x beyond the number of parameters.
ENOUGH = 4
# The share of simulations from the prior, and how many there are at least, up to half of all.
FIRST, FEWEST_FIRST = 0.2, 200
# The share of simulations that repeat a draw of q at x_o; at least so many of each, and at most.
PREDICTIVE, LEAST, MOST = 0.1, 19, 199
# The share of pairs around x_o that is near: of a single x_o, and at least.
MOST_NEAR, LEAST_NEAR = 0.8, 0.2


@dataclass(frozen=True, eq=False)
class Samples:
    """What a check looks at."""

    pairs: Calibration  # with draws of q, in parameters; latents if a calibration has nothing else
    test_pairs: Calibration  # the same for the test that decides, in latents where q is a flow
    prior_pairs: Calibration  # the same, or those from the prior beside pairs around x_o
    observed: Draws  # the observations, with a leading axis, and draws of q there
    near: Nearest
    remarks: tuple[str, ...]  # sentences about the samples
    # Simulations (o, n, ...) of one draw of q at each observation, and these draws (o, m).
    predicted: tuple[Tensor, Tensor] | None = None
    names: tuple[str, ...] = ()  # of the parameters
    labels: tuple[str, ...] = ()  # of the observations


def prepare(
    posterior: Any,
    theta: Any,
    x: Any,
    x_o: Any,
    source: Simulations | None = None,
    *,
    near: float | Nearest | None = None,
    draws: int = 16,
    embed: Embed | None = None,
    drawing: Drawing | None = None,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    seed: int = 0,
) -> Samples:
    """Makes the samples of a check, or refuses what does not fit together."""
    near = None if near is None else as_nearest(near)
    draws, drawing = check_count("draws", draws), Drawing() if drawing is None else drawing
    check_kind("drawing", drawing, "a Drawing(), or None", Drawing)
    if x_o is None:
        raise ValueError("x_o: expected the observation to be checked; got None.")
    paired = theta is not None or x is not None
    if source is not None:
        if paired or isinstance(posterior, Calibration):
            raise ValueError(
                "simulator: expected it in place of pairs; got both. Use check(posterior, "
                "simulator=simulator, prior=prior, x_o=x_o), or check(posterior, theta, x, x_o)."
            )
        given = x_o if isinstance(x_o, Draws) else Draws(x_o, n=OBSERVED_DRAWS)
        samples = _from_simulator(posterior, given, source, draws, embed, drawing, seed)
        if near is not None:
            samples = replace(samples, near=samples.pairs.nearest(near))
    elif isinstance(posterior, Calibration):
        if paired or embed is not None:
            raise ValueError(
                "theta: expected None with a calibration, which holds theta, x and embed; got "
                "more. Use check(calibration, x_o=Draws(x_o, theta_o))."
            )
        samples = _from_calibration(posterior, x_o, near, draws, seed)
    else:
        if theta is None or x is None:
            raise ValueError(
                "theta, x: expected calibration pairs that the posterior was not trained on; got "
                "None. Use check(posterior, theta, x, x_o)."
            )
        sampler, pairs = draw_pairs(posterior, theta, x, draws, embed, drawing, seed)
        samples = _from_pairs(sampler, Calibration(**pairs), x_o, near)
    own_names, o = samples.pairs.parameter_names, len(samples.observed.x)
    if names is not None:
        own_names = check_names("names", names, samples.pairs.m)
        if len(set(map(readable, own_names))) < len(own_names):
            raise ValueError(f"names: expected names that read differently; got {own_names!r}.")
    own_labels = ("x_o",) if o == 1 else tuple(f"x_o[{i}]" for i in range(o))
    if labels is not None:
        own_labels = check_names("labels", labels, o)
    remarks = tuple(dict.fromkeys((*samples.remarks, *_remarks(samples, own_labels))))
    return replace(samples, remarks=remarks, names=own_names, labels=own_labels)


def _from_calibration(
    calibration: Calibration, x_o: Any, near: Nearest | None, draws: int, seed: int
) -> Samples:
    pairs, given = calibration, _observed(x_o, calibration)
    if isinstance(calibration, Latents):
        sets = calibration.sets(draws, stream(seed, "base"))
        about: Any = {"layout": calibration.layout, "embed": calibration.embed}
        about["names"] = tuple(f"latent[{j}]" for j in range(calibration.m))
        pairs = Calibration(calibration.theta, calibration.x, sets[:, 1:], **about)
    observed = calibration.observe(given, seed)
    if given.theta is None:
        given = Draws(given.x, observed.draws)
    return Samples(pairs, calibration, pairs, given, calibration.nearest(near), pairs.remarks)


def _from_pairs(sampler: Sampler, pairs: Calibration, x_o: Any, near: Any) -> Samples:
    observed = _observed(x_o, pairs, sampler)
    test_pairs, remark = _test_pairs(sampler, pairs, observed)
    near, many = as_nearest(near), pairs.features.shape[1] > FEW_FEATURES
    if near.distance is None and many and isinstance(test_pairs, Latents):
        # Base draws are other ones in each copy: near for q by its draws alone.
        by_q = DistanceForQ.fit(pairs.features, cast(Tensor, pairs.theta_q))
        near = replace(near, distance=by_q)
    remarks = (*pairs.remarks, remark) if remark else pairs.remarks
    return Samples(pairs, test_pairs, pairs, observed, pairs.nearest(near), remarks)


def _from_simulator(
    posterior: Any, given: Draws, source: Simulations, k: int, embed: Any, how: Drawing, seed: int
) -> Samples:
    check_finite("x_o", given.x)
    prior, n, runner = source.prior, source.n, source.runner(given.x, seed)
    rows = given.x.reshape(-1, *runner.shape)
    sampler, o = Sampler(as_posterior(posterior, rows), seed, how), len(rows)
    first = max(round(FIRST * n), min(FEWEST_FIRST, n // 2))
    repeats = min(round(PREDICTIVE * n / o), MOST)
    repeats = repeats if repeats >= LEAST else 0
    counts = first, n - first - o * repeats, o * repeats
    # From the prior.
    theta, x, runner = runner.run("prior", partial(parameters, prior), counts[0])
    k = max(k, theta.shape[1] + ENOUGH)
    of_q = sampler.draw(x, k, "draws", "simulation {} of the prior")
    theta, x, theta_q = theta[of_q.kept], x[of_q.kept], of_q.theta.to(theta)
    wide = Calibration(theta, x, theta_q, embed, remarks=of_q.left_out)
    observed = _observed(given, wide, sampler)
    # Around q at x_o.
    proposal = Around(wide.observe(observed, seed).draws, prior)
    theta, x, runner = runner.run("around", partial(parameters, proposal), counts[1])
    of_q = sampler.draw(x, RESERVE * k, "draws around x_o", "simulation {} around x_o")
    theta, x, theta_q = theta[of_q.kept], x[of_q.kept], of_q.theta.to(theta)
    pairs, near = wide, None
    about: Any = {"embed": embed, "remarks": of_q.remarks + of_q.left_out}
    with suppress(NoCompanions):
        about |= companions(theta, theta_q, prior, proposal, k, seed)
        pairs, near = Calibration(theta, x, **about), max(LEAST_NEAR, MOST_NEAR / o)
    # Of one draw of q at each x_o.
    one, made = one_of(cast(Tensor, observed.theta), seed).to(theta), []
    for i in range(o if repeats else 0):
        _, x, after = runner.repeat(f"predictive-{i}", one[i], repeats)
        made.append(x)
        runner = replace(after, rows=runner.rows)
    fewest = min(map(len, made), default=0)
    predicted = (torch.stack([x[:fewest] for x in made]), one) if fewest else None
    made_how = _how_made(runner, counts, o, around=pairs is not wide)
    remarks = made_how, *pairs.remarks, *wide.remarks
    return Samples(pairs, pairs, wide, observed, pairs.nearest(near), remarks, predicted)


def _how_made(runner: Runner, counts: tuple[int, int, int], o: int, *, around: bool) -> str:
    """How simulations of the prior, around o observations and of draws of q there were made."""
    where = "x_o" if o == 1 else f"the {o} observations"
    more = f", {counts[2]} repeat a draw of q there" if counts[2] else ""
    rows = f"{runner.rows} at a time" if runner.rows > 1 else "one at a time"
    far = "Only the first decide: q at x_o is far from q at what it makes."
    sentences = [
        f"{counts[0]} simulations have parameters from the prior, {counts[1]} have parameters "
        f"drawn around q at {where}{more} ({rows}).",
        "Only the second decide." if around else far,
    ]
    if runner.failed:
        error = f"the first: {runner.error}" if runner.error else "NaN or infinity"
        sentences.append(
            f"{runner.failed} of them failed ({error}) and were left out: q is tested against the "
            "posterior given that a simulation succeeds. This is what a network learns if failed "
            "pairs are left out of its training. A posterior that comes from a likelihood is "
            "another one if failures depend on parameters."
        )
    if not runner.repeats:
        sentences.append(
            "The simulator keeps a random generator of its own: the same seed does not give the "
            "same simulations, and processes that are copies of each other may repeat them."
        )
    return " ".join(sentences)


def _observed(x_o: Any, pairs: Calibration, sampler: Sampler | None = None) -> Draws:
    """Observations (o, ...) like those of pairs, with draws there; none is left out."""
    if not isinstance(x_o, Draws):
        layout = pairs.layout if isinstance(x_o, Mapping) else None
        x_o = Draws(x_o, n=OBSERVED_DRAWS, layout=layout)
    x_o = x_o.many(pairs.observation(x_o).x)
    if sampler is None or x_o.theta is not None:
        return x_o
    remedy = (
        "Is x_o like the observations that the posterior was trained on? Draws that were made "
        "elsewhere can be given as x_o=Draws(x_o, theta_o)."
    )
    sampler = replace(sampler, how=replace(sampler.how, failures=0.0))
    theta = sampler.draw(x_o.x, x_o.n, "observations", "x_o[{}]", remedy).theta
    return replace(x_o, theta=theta)


def _test_pairs(sampler: Sampler, pairs: Calibration, observed: Draws) -> tuple[Calibration, str]:
    """What the test that decides looks at, and a remark on it.

    Latents of a flow to which its draws belong, everywhere, near observations and there;
    coordinates in which q is nearly normal; or draws.
    """
    q, members = sampler.posterior, pairs.members
    flow, coordinates = q.flow, q.coordinates
    if flow is not None:
        try:
            z = pairs.to_latent(flow, sampler.seed)
            observation = z.observe(observed, sampler.seed)
            near = Nearest(distance=Distance()).inside(pairs.features, observation.features)
            groups = torch.cat([torch.ones_like(near[:1]), near])
            check_sets(flow, z.base, members[:, 1:], pairs.x, groups)
            theta, each = cast(Tensor, observed.theta).to(members), cpu.eye(len(near)).bool()
            check_sets(flow, z.base, theta, observation.x, each)
        except AnotherQ:
            return pairs, (
                "The flow's inverse does not belong to the draws that its sample(x, n) returns, "
                "as if these were truncated to the prior. q is what is sampled: it is tested with "
                "draws."
            )
        return z, ""
    if coordinates is not None:
        x = pairs.x.repeat_interleave(members.shape[1], 0)
        u = latents(coordinates, members.flatten(0, 1), x, finite=False).reshape(members.shape)
        # A true parameter at the end of its range may have no finite latent.
        if u.isfinite().all():
            return pairs.with_members(u[:, 0], u[:, 1:]), (
                "Draws are compared with true parameters in the latent coordinates of the "
                "network's flow, which is exact for the truncated q."
            )
    return pairs, ""


def _remarks(samples: Samples, labels: Sequence[str]) -> list[str]:
    """Remarks on draws: constant ones, a chain, or other draws at x_o than at the nearest x."""
    pairs, members, remarks = samples.pairs, samples.pairs.members[:, 1:], []
    if (members == members[:1, :1]).all((0, 1)).any():
        remarks.append("q's draws of a parameter are all the same: tests over all x are left out.")
    chain = autocorrelation(members)
    if chain:
        remarks.append(chain)
    centres, strange = pairs.observation(samples.observed).features, []
    inside = samples.near.inside(pairs.features, centres)  # (o, n)
    theta_o = cast(Tensor, samples.observed.theta).to(members)
    for label, rows, theta in zip(labels, inside, theta_o, strict=True):
        there = members[rows].flatten(0, 1)
        within = (theta >= there.amin(0)) & (theta <= there.amax(0))
        if not (within.double().mean(0) >= OWN).all():
            strange.append(label)
    if strange:
        remarks.append(
            f"The draws theta_o at {', '.join(strange)} lie outside those of q at the nearest x: "
            "are they draws of q there, and in the same units?"
        )
    return remarks
