"""Statistical bars: how often the sentences of a check are true.

    python -m benchmarks.bars STUDY[,STUDY] [--share 1.0] [--workers 2] [--seconds 3600]
    python -m benchmarks.bars all

Each study has jobs of a design and a seed, whose results are kept in build/bars as they are made:
a run that was stopped goes on. The summary is written to results/bars/STUDY.json. With a share of
0.1, a tenth of the repetitions is made, those with the smallest seeds. The exit code is 1 if a
bar is clearly missed: if it lies outside of the 95 % interval of what was found.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
from tqdm import tqdm

import assay
from assay.answers.bounds import bounds
from assay.check import Check
from assay.neighbourhood import Nearest

from .designs import Design, bounded, gamma, lognormal, poisson, t5, wiggly
from .record import origin

Row = dict[str, Any]
# The name of a study, of a design, and a seed.
Job = tuple[str, str, int]
LEVEL = 0.05
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Study:
    """Repetitions of designs, and what is made of them."""

    name: str
    designs: tuple[str, ...]
    repetitions: int
    run: Callable[[str, int], Row]
    summary: Callable[[str, list[Row]], Row]


def rate(values: Any) -> dict[str, float]:
    """A rate with its 95 % interval."""
    values = np.asarray(list(values), float)
    interval = scipy.stats.binomtest(int(values.sum()), len(values)).proportion_ci(0.95)
    return {"rate": float(values.mean()), "low": interval.low, "high": interval.high}


# Bounds near x_o hold together, and at x_o row by row.

BOUNDED = (
    Design("normal, m = 1", m=1),
    Design("normal"),
    Design("normal, n = 300", n=300),
    Design("normal, n = 5000", n=5000),
    Design("normal, m = 5, correlated", m=5, correlation=0.5),
    Design("normal, m = 10", m=10),
    Design("normal, m = 20", m=20, n=2000, k=24),
    Design("wiggly mean", mean=wiggly),
    Design("wiggly mean, q 1.5 times too wide", mean=wiggly).wrong(width=1.5),
    Design("wiggly mean, q 0.5 sd too high", mean=wiggly).wrong(shift=0.5),
    Design("k = 2", k=2),
    Design("k = 4", k=4),
    Design("k = 64", k=64, m=5),
    Design("gamma, scale changes with x", gamma, m=5, scale=lambda x: (x[:, 1] / 2).exp()),
    Design("t, 5 degrees", t5, m=3),
    Design("lognormal", lognormal, m=3),
    Design("Poisson", poisson, m=3),
    Design("bounded", bounded, m=3),
    Design("bounded, unequal scales", bounded, m=3, scale=lambda x: 100 * (x[:, 0] / 2).exp()),
    replace(
        Design("width changes with x"), width=lambda x: (0.3 * x[:, 0]).exp(), name="width changes"
    ),
    replace(Design("mean changes with x"), shift=lambda x: 0.5 * x[:, 0], name="mean changes"),
    Design("d = 1", d=1, mean=lambda x: x[:, 0]),
    Design("d = 10", d=10),
    Design("d = 50", d=50),
    Design("latents", latents=True),
    Design("simulated around x_o", around=True),
    replace(Design("gamma, width / 1.5", gamma, m=5).wrong(width=1 / 1.5), name="gamma, / 1.5"),
)
BOUNDED_BY_NAME = {design.name: design for design in BOUNDED}
# Pairs from which population values of a design are taken.
POPULATION = 400_000


def population(
    design: Design, x: torch.Tensor, rows: torch.Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """The true bias and log width, averaged over some x as the bounds average them."""
    shift = torch.zeros(len(x)) if design.shift is None else design.shift(x)
    width = torch.ones(len(x)) if design.width is None else design.width(x)
    shift, width = shift[rows].double().numpy(), width[rows].double().numpy()
    # In units of q's scale at each x, which is its width there.
    bias, spread = np.mean(shift / width), 1.0
    inner = np.mean(1 / width**2) + np.var(shift / width)
    return np.array(bias / spread), np.array(math.log(spread / math.sqrt(inner)))


def bounded_once(name: str, seed: int) -> Row:
    design = BOUNDED_BY_NAME[name]
    calibration, x_o = design.make(seed)
    near = calibration.nearest(None)
    found = bounds(calibration, x_o, near, seed=seed)
    rows = near.inside(calibration.features, x_o[None].to(calibration.features))[0]
    last = design.m - 1
    true_bias, true_width = np.zeros(design.m), np.zeros(design.m)
    wrong = range(design.m) if design.all_wrong else (last,)
    for j in wrong:
        true_bias[j], true_width[j] = population(design, calibration.x, rows)
    widths = np.log([found.width_lower[0], found.width_upper[0]])
    hold = (found.bias_lower[0] <= true_bias + 1e-9) & (true_bias - 1e-9 <= found.bias_upper[0])
    wide = (widths[0] <= true_width + 1e-9) & (true_width - 1e-9 <= widths[1])
    slopes = _slopes_hold(design, found, calibration, near, x_o)
    at_bias, at_width = _at(design, x_o)
    at = found.at
    ends = np.log([at.width_lower[0, last], at.width_upper[0, last]])
    half = (found.bias_upper[0] - found.bias_lower[0]) / 2
    return {
        "hold": bool(hold.all() and wide.all() and slopes),
        "means": bool(hold.all()),
        "widths": bool(wide.all()),
        "slopes": slopes,
        "half_mean": float(np.nanmean(half)),
        "half_width": float(np.nanmean((widths[1] - widths[0]) / 2)),
        # None where nothing is said of the number.
        "at_mean": _holds(at_bias, at.bias_lower[0, last], at.bias_upper[0, last]),
        "at_width": _holds(at_width, *ends),
        "within": bool(found.within(0.5)[0]),
        "pairs": float(found.pairs_for(0.5)[0]),
        "oracle_mean": _oracle(design, float(found.near[0]))[0],
        "oracle_width": _oracle(design, float(found.near[0]))[1],
    }


def _holds(value: float, lower: float, upper: float) -> bool | None:
    return bool(lower <= value <= upper) if math.isfinite(lower + upper) else None


def _slopes_hold(design: Design, found: Any, cal: Any, near: Any, x_o: Any) -> bool:
    """Whether slopes that are zero lie in their intervals; others are not judged here."""
    if design.shift is not None and design.name == "mean changes":
        return True
    lower, upper = found.slope_lower[0], found.slope_upper[0]
    return bool(((lower <= 0) & (0 <= upper)).all())


def _at(design: Design, x_o: torch.Tensor) -> tuple[float, float]:
    """The true bias and log width at x_o, of the last parameter."""
    one = x_o[None]
    shift = 0.0 if design.shift is None else float(design.shift(one))
    width = 1.0 if design.width is None else float(design.width(one))
    return shift / width, math.log(width)


def _oracle(design: Design, near: float) -> tuple[float, float]:
    """Half-widths of intervals from q's own mean and width at every x, for as many rows.

    From as many simulations as the near ones are worth.
    """
    rows = 2 * design.m + min(3, design.d) * design.m
    critical = scipy.stats.norm.ppf(1 - 0.05 / (2 * rows))
    kurtosis = {gamma: 4.5, t5: 9.0, lognormal: 8.9, poisson: 3.5, bounded: 1.8}.get(
        design.law, 3.0
    )
    return critical / math.sqrt(near), critical * math.sqrt((kurtosis - 1) / near) / 2


def bounded_summary(name: str, rows: list[Row]) -> Row:
    ratio = np.mean([r["half_mean"] for r in rows]) / np.mean([r["oracle_mean"] for r in rows])
    wide = np.nanmean([r["half_width"] for r in rows]) / np.mean([r["oracle_width"] for r in rows])
    return {
        "hold": rate(r["hold"] for r in rows),
        **{
            key: rate(r[key] for r in rows if r[key] is not None)
            for key in ("at_mean", "at_width")
        },
        "at_width_known": float(np.mean([r["at_width"] is not None for r in rows])),
        "half_mean": float(np.mean([r["half_mean"] for r in rows])),
        "half_width": float(np.nanmean([r["half_width"] for r in rows])),
        "over_oracle": [float(ratio), float(wide)],
        "within": float(np.mean([r["within"] for r in rows])),
    }


# "Passed" is true: an error at the tolerance is within it by the bounds in at most 3 %.

TOLERATED = {
    f"{base.name}, {word}": base.wrong(shift=shift, width=width, name=f"{base.name}, {word}")
    for base in (
        Design("m = 2"),
        Design("m = 10", m=10),
        Design("m = 20", m=20, k=24),
        Design("m = 2, wiggly", mean=wiggly),
        Design("m = 10, wiggly", m=10, mean=wiggly),
    )
    for word, shift, width in (
        ("mean 0.5 sd", 0.5, 1.0),
        ("width x 1.5", 0.0, 1.5),
        ("width / 1.5", 0.0, 1 / 1.5),
    )
}


def tolerated_once(name: str, seed: int) -> Row:
    calibration, x_o = TOLERATED[name].make(seed)
    return {"within": bool(bounds(calibration, x_o, seed=seed).within(0.5)[0])}


def tolerated_summary(name: str, rows: list[Row]) -> Row:
    return {"within": rate(r["within"] for r in rows)}


# Exact normal q: passed, and named wrong.

EXACT = {
    "m = 1": Design("exact m = 1", m=1),
    "m = 2": Design("exact m = 2"),
    "m = 5": Design("exact m = 5", m=5),
    "m = 10": Design("exact m = 10", m=10),
    "m = 2, n = 500": Design("exact m = 2, n = 500", n=500),
}


def _rejected_over_all_x(found: Check) -> bool:
    """Whether a check says that SBC, coverage or TARP reject q."""
    sentences = [one for one in found.context if one.startswith("Over all x")]
    return any("do not reject" not in one for one in sentences)


def exact_once(name: str, seed: int) -> Row:
    design = EXACT[name]
    calibration, x_o = design.make(seed)
    mean = float(design.mean(x_o[None]))
    draws = assay.Draws(x_o, mean + torch.randn(100, design.m))
    found = assay.check(calibration, x_o=draws, classifier=None, seed=seed)
    return {
        "passed": bool(found.passed[0]),
        "within": bool(found.bounds.within(0.5)[0]),
        "rejected": found.verdicts[0] == "rejected",
        "outside": found.verdicts[0] == "outside",
        "over_all_x": _rejected_over_all_x(found),
        "verdict": found.verdicts[0],
    }


def exact_summary(name: str, rows: list[Row]) -> Row:
    keys = ("passed", "within", "rejected", "outside", "over_all_x")
    return {key: rate(r[key] for r in rows) for key in keys}


# Whether anything at all is called wrong, on exact data sets of five kinds.

KINDS = {
    "normal, one observation": (Design("kind normal", m=3, n=500), 1),
    "skewed, five observations": (Design("kind skewed", lognormal, m=2, n=1000), 5),
    "discrete": (Design("kind discrete", poisson, m=2, n=500, k=8), 2),
    "latents, three observations": (Design("kind latents", m=3, n=500, latents=True), 3),
    "heavy tails, ten features": (Design("kind heavy", t5, m=4, n=500, d=10), 1),
}


def any_error_once(name: str, seed: int) -> Row:
    design, o = KINDS[name]
    calibration, _ = design.make(seed)
    g = torch.Generator().manual_seed(7 * seed + 1)
    x_o = torch.randn(o, design.d, generator=g)
    given: Any = x_o
    if not design.latents:
        theta = design.mean(x_o)[:, None, None] + design.law((o, 100, design.m), g)
        given = assay.Draws(x_o, theta)
    found = assay.check(calibration, x_o=given, classifier=None, seed=seed)
    row = {
        "rejected": "rejected" in found.verdicts,
        "outside": "outside" in found.verdicts,
        "over_all_x": _rejected_over_all_x(found),
        "named": any(found.wrong(i) for i in range(o)),
    }
    return row | {"anything": any(row.values())}


def any_error_summary(name: str, rows: list[Row]) -> Row:
    keys = ("anything", "rejected", "outside", "over_all_x", "named")
    return {key: rate(r[key] for r in rows) for key in keys}


# Where a check is inconclusive and names a number of pairs, these settle it.

OPEN = {
    "m = 2, n = 100": Design("open m = 2", n=100),
    "m = 5, n = 150": Design("open m = 5", m=5, n=150),
    "m = 10, n = 200": Design("open m = 10", m=10, n=200),
    "m = 3, lognormal, n = 150": Design("open lognormal", lognormal, m=3, n=150),
    "shift 0.25, n = 150": replace(
        Design("open shift", n=150).wrong(shift=0.25), name="open shift"
    ),
}


def settled_once(name: str, seed: int) -> Row:
    design = OPEN[name]
    calibration, x_o = design.make(seed)
    first = _verdict(design, calibration, x_o, seed)
    if first[0] != "inconclusive" or not math.isfinite(first[1]):
        return {"open": False, "settled": False, "pairs": 0}
    pairs = min(20_000, int(first[1]))
    more, x_o = replace(design, n=pairs).make(seed + 1_000_000)
    return {
        "open": True,
        "settled": _verdict(design, more, x_o, seed)[0] != "inconclusive",
        "pairs": pairs,
    }


def _verdict(design: Design, calibration: Any, x_o: torch.Tensor, seed: int) -> tuple[str, float]:
    draws = assay.Draws(x_o, float(design.mean(x_o[None])) + torch.randn(50, design.m))
    found = assay.check(calibration, x_o=draws, classifier=None, seed=seed)
    return found.verdicts[0], float(found.bounds.pairs_for(found.tolerance)[0])


def settled_summary(name: str, rows: list[Row]) -> Row:
    some = [r for r in rows if r["open"]]
    if not some:
        return {"open": 0}
    return {
        "open": len(some),
        "settled": rate(r["settled"] for r in some),
        "pairs": float(np.median([r["pairs"] for r in some])),
    }


# The level of the deciding test in ugly designs.


def _ugly(name: str, seed: int) -> tuple[assay.Calibration, torch.Tensor, Nearest | None]:
    g = torch.Generator().manual_seed(seed * 999_983 + sum(map(ord, name)))
    n, k, d = 200, 8, 2
    if name == "n = 20":
        n = 20
    if "d = 100" in name:
        d = 100
    if name == "one draw, m = 5":
        k = 1
    x, x_o = torch.randn(n, d, generator=g), torch.randn(d, generator=g)
    centre = x[:, None, :2]
    noise = torch.randn(n, k + 1, 2, generator=g)
    laws: dict[str, Callable[[], torch.Tensor]] = {
        "ties": lambda: (centre + noise).round(),
        "Poisson": lambda: torch.poisson(
            0.5 * x[:, None, :1].exp().clamp(max=20).expand(-1, k + 1, 2), generator=g
        ),
        "coins": lambda: torch.bernoulli(torch.sigmoid(centre).expand(-1, k + 1, -1), generator=g),
        "Cauchy": lambda: centre + noise / (torch.randn(n, k + 1, 2, generator=g) + 1e-30),
        "bounded": lambda: (centre + noise).clamp(-1, 1),
        "collinear": lambda: torch.cat(
            [noise[..., :1] + centre[..., :1], 2 * (noise[..., :1] + centre[..., :1])], 2
        ),
        "one draw, m = 5": lambda: x[:, None, :1] + torch.randn(n, k + 1, 5, generator=g),
        "offset 1e6": lambda: centre + noise + 1e6,
        "ties in x": lambda: centre.round() + noise,
    }
    if name == "ties in x":
        x, centre = x.round(), x.round()[:, None, :2]
    if name == "latents, n = 60":
        return assay.Calibration.from_base(noise[:60, 0], x[:60]), x_o, None
    members = laws.get(name, lambda: centre + noise)()
    given = assay.Calibration(members[:, 0], x, members[:, 1:])
    if not name.startswith("leak"):
        return given, x_o, None
    # q is right near x_o, and ten standard deviations off elsewhere; what is near does not change.
    near = given.nearest(None)
    part = replace(near, share=0.35 if d == 2 else 0.7)
    far = ~part.inside(given.features, x_o[None])[0]
    return replace(given, theta=given.theta + 10.0 * far[:, None]), x_o, near


UGLY = (
    *("normal", "ties", "Poisson", "coins", "Cauchy", "bounded", "collinear", "n = 20", "d = 100"),
    *("one draw, m = 5", "latents, n = 60", "offset 1e6", "leak", "leak, d = 100", "ties in x"),
)


def ugly_once(name: str, seed: int) -> Row:
    calibration, x_o, near = _ugly(name, seed)
    return {"pvalue": float(assay.score(calibration, near, 39, seed)(x_o).pvalue)}


def level_summary(name: str, rows: list[Row], designs: int = len(UGLY)) -> Row:
    """Whether the count lies in its 99 % interval, corrected for the number of designs."""
    pvalues = np.array([r["pvalue"] for r in rows])
    found: Row = {}
    for level in (0.05, 0.01) if len(rows) and rows[0].get("fine") else (0.05,):
        count = int((pvalues <= level + 1e-9).sum())
        highest = scipy.stats.binom.ppf(1 - 0.01 / 2 / designs, len(rows), level)
        found[f"at {level:g}"] = {
            "rate": count / len(rows),
            "held": bool(count <= highest),
            "highest": float(highest / len(rows)),
        }
    return found


# The family-wise level over several observations.

FAMILIES = {
    f"{o} observations, {word}": (o, leak)
    for o in (2, 10, 50, 60)
    for word, leak in (("right", False), ("wrong elsewhere", True))
}


def family_once(name: str, seed: int) -> Row:
    """Whether q is rejected at any observation where it is right, corrected for all of them."""
    o, leak = FAMILIES[name]
    g = torch.Generator().manual_seed(seed * 77_003 + o + 5 * leak)
    x = torch.randn(500, 2, generator=g)
    members = x[:, None] + torch.randn(500, 9, 2, generator=g)
    x_o = torch.randn(o, 2, generator=g)
    near = Nearest(0.2)
    right = torch.ones(o, dtype=torch.bool)
    if leak:
        # Half of the observations lie where q is right in all of their neighbourhood.
        wrong = x[:, 0] > 0.5
        members[:, 1:] += 3.0 * wrong[:, None, None]
        inside = near.inside(x, x_o)
        right = ~(inside & wrong).any(1)
    given = assay.Calibration(members[:, 0], x, members[:, 1:])
    adjusted = assay.score(given, near, 199, seed)(x_o).adjusted
    return {"any": bool((adjusted[right.numpy()] <= LEVEL + 1e-9).any())}


def family_summary(name: str, rows: list[Row]) -> Row:
    highest = scipy.stats.binom.ppf(1 - 0.01 / 2 / len(FAMILIES), len(rows), LEVEL) / len(rows)
    found = rate(r["any"] for r in rows)
    return {**found, "held": bool(found["rate"] <= highest + 1e-9), "highest": float(highest)}


# Is x_o like the simulations? Level, and power beside the density's.


def _typical_design(name: str, n: int, seed: int) -> tuple[np.ndarray, np.ndarray, Any]:
    """Simulations (n, d), an observation that is unlike them, and their log-density."""
    from .strange import STRANGE

    rng = np.random.default_rng([seed, n, sum(map(ord, name))])
    sample, strange, log_density = STRANGE[name]
    return sample(n, rng), strange(rng), log_density


TYPICAL_LEVELS = {
    "normal, 2 features, n = 100": ("normal", 2, 100),
    "normal, 30 features": ("normal", 30, 1000),
    "normal, 100 features, n = 400": ("normal", 100, 400),
    "normal, 5 features, n = 10 000": ("normal", 5, 10_000),
    "Cauchy": ("cauchy", 4, 1000),
    "counts with ties": ("counts", 4, 1000),
    "coins": ("coins", 6, 500),
    "a constant feature": ("constant", 4, 400),
    "five places": ("places", 8, 1000),
    "one-hot codes": ("codes", 5, 1000),
}


def _typical_law(kind: str, n: int, d: int, rng: np.random.Generator) -> np.ndarray:
    """Observations (n, d) of a law."""
    x = rng.standard_normal((n, d))
    if kind == "cauchy":
        return rng.standard_cauchy((n, d))
    if kind == "t2":
        return rng.standard_t(2, (n, d))
    if kind == "counts":
        return rng.poisson(1.5, (n, d)).astype(float)
    if kind == "Pareto counts":
        return np.floor(rng.pareto(1, (n, d)))
    if kind == "coins":
        return rng.integers(2, size=(n, d)).astype(float)
    if kind == "places":
        return np.random.default_rng(9).normal(size=(5, d))[rng.integers(5, size=n)]
    if kind == "codes":
        return np.hstack([np.eye(3)[rng.integers(3, size=n)], np.eye(2)[rng.integers(2, size=n)]])
    if kind == "constant":
        x[:, 0] = 3.0
    return x


def typical_level_once(name: str, seed: int) -> Row:
    kind, d, n = TYPICAL_LEVELS[name]
    x = _typical_law(kind, n + 1, d, np.random.default_rng([seed, n, d, sum(map(ord, kind))]))
    return {"pvalue": float(assay.typical(x[:-1], x[-1], seed=seed).pvalue[0]), "fine": True}


# Whether any of many observations that the simulator makes is outside.
TYPICAL_FAMILIES = {
    "normal, 20 among 200": ("normal", 3, 200, 20),
    "normal, 60 among 1000": ("normal", 30, 1000, 60),
    "t, 2 degrees, 10 among 170": ("t2", 10, 170, 10),
    "Cauchy, 50 among 400": ("cauchy", 4, 400, 50),
    "Pareto counts, 50 among 400": ("Pareto counts", 5, 400, 50),
    "one-hot codes, 10 among 1000": ("codes", 5, 1000, 10),
}


def typical_family_once(name: str, seed: int) -> Row:
    kind, d, n, o = TYPICAL_FAMILIES[name]
    x = _typical_law(kind, n + o, d, np.random.default_rng([seed, n, d, sum(map(ord, kind))]))
    return {"outside": bool(assay.typical(x[:n], x[n:], seed=seed).outside.any())}


def typical_family_summary(name: str, rows: list[Row]) -> Row:
    return {"outside": rate(r["outside"] for r in rows)}


def typical_power_once(name: str, seed: int) -> Row:
    x, x_o, log_density = _typical_design(name, 1000, seed)
    from .strange import STRANGE

    many = STRANGE[name][0](20_000, np.random.default_rng(1))
    found = assay.typical(x, x_o, seed=seed)
    oracle = float((log_density(many) <= log_density(x_o[None])[0]).mean())
    return {"found": bool(found.pvalue[0] <= 0.01), "oracle": oracle <= 0.01}


def typical_power_summary(name: str, rows: list[Row]) -> Row:
    return {"found": rate(r["found"] for r in rows), "oracle": rate(r["oracle"] for r in rows)}


# Power: one of 15 parameters is wrong, and alternatives with an oracle.

ONE = {
    "none": (0.0, 1.0, 0.0),
    "width x 1.8": (0.0, 1.8, 0.0),
    "width x 1.4": (0.0, 1.4, 0.0),
    "width x 0.6": (0.0, 0.6, 0.0),
    "shift 0.3 sd": (0.3, 1.0, 0.0),
    "correlation 0.4": (0.0, 1.0, 0.4),
}


def one_once(name: str, seed: int) -> Row:
    shift, width, correlation = ONE[name]
    g = torch.Generator().manual_seed(seed * 31_337 + sum(map(ord, name)))
    x = torch.randn(1000, 2, generator=g)
    noise = torch.randn(1000, 21, 15, generator=g)
    noise[:, 1:, -1] = noise[:, 1:, -1] * width + shift
    if correlation:
        other = math.sqrt(1 - correlation**2)
        noise[:, 1:, -1] = correlation * noise[:, 1:, -2] + other * noise[:, 1:, -1]
    members, x_o = noise + x[:, None, :1], torch.randn(2, generator=g)
    given = assay.Calibration(members[:, 0], x, members[:, 1:])
    draws = assay.Draws(x_o, x_o[0] + torch.randn(200, 15, generator=g))
    found = assay.check(given, x_o=draws, classifier=None, seed=seed)
    return {"rejected": found.verdicts[0] == "rejected"}


def rejected_summary(name: str, rows: list[Row]) -> Row:
    return {"rejected": rate(r["rejected"] for r in rows)}


def beside_first_edition(name: str, rows: list[Row]) -> Row:
    """How often an alternative is rejected, and how often the first edition rejected it."""
    kept = json.loads((ROOT / "results" / "bars" / "first_edition.json").read_text("utf-8"))
    return {**rejected_summary(name, rows), "first": kept["rejected"][name]}


def _alternatives(half: str) -> tuple[str, ...]:
    from . import alternatives

    return tuple(d.name for d in alternatives.designs() if alternatives.half(d) == half)


def alternative_once(name: str, seed: int) -> Row:
    from . import alternatives

    calibration, x_o = alternatives.named(name).make(seed)
    return {"rejected": bool(assay.score(calibration, seed=seed)(x_o).pvalue <= LEVEL + 1e-9)}


# Samples of the paper's authors, in disjoint parts.


def _sample_names() -> tuple[str, ...]:
    kinds = (
        ("draws", 1000),
        ("draws", 2000),
        ("draws", 5000),
        ("latents", 1000),
        ("latents", 2000),
    )
    return tuple(
        f"{space} {n} {task} {train}"
        for space, n in kinds
        for task in ("slcp", "two_moons")
        for train in (1000, 10_000, 100_000)
    )


def sample_once(name: str, seed: int) -> Row:
    from .paper_samples import Case

    space, n, task, train = name.split()
    case, pairs, part = Case(task, int(train)), int(n), seed
    if (part + 1) * pairs > 10_000:  # all have been looked at
        return {}
    given, draws = case.sets(10_000) if space == "draws" else case.latents(10_000)
    given = given.subset(slice(part * pairs, (part + 1) * pairs))
    if given.theta_q is not None:
        given = replace(given, theta_q=given.theta_q[:, :16])
        draws = assay.Draws(draws.x, draws.theta[:, :200])
    found = assay.check(given, x_o=draws, classifier=None, seed=part)
    alone, corrected = found.test.pvalue, found.pvalue
    return {
        "each": float((alone <= LEVEL + 1e-9).mean()),
        "corrected": float((corrected <= LEVEL + 1e-9).mean()),
    }


def sample_summary(name: str, rows: list[Row]) -> Row:
    some = [row for row in rows if "each" in row]
    return {key: float(np.mean([r[key] for r in some])) for key in ("each", "corrected")}


def studies() -> dict[str, Study]:
    from . import leak
    from .strange import STRANGE

    ugly = partial(level_summary, designs=len(UGLY))
    typical = partial(level_summary, designs=len(TYPICAL_LEVELS))
    each = (
        Study("bounds", tuple(BOUNDED_BY_NAME), 1000, bounded_once, bounded_summary),
        Study("tolerated", tuple(TOLERATED), 1000, tolerated_once, tolerated_summary),
        Study("exact", tuple(EXACT), 400, exact_once, exact_summary),
        Study("wrong", tuple(KINDS), 1000, any_error_once, any_error_summary),
        Study("settled", tuple(OPEN), 200, settled_once, settled_summary),
        Study("level", UGLY, 2000, ugly_once, ugly),
        Study("family", tuple(FAMILIES), 600, family_once, family_summary),
        Study("typical-level", tuple(TYPICAL_LEVELS), 2000, typical_level_once, typical),
        Study(
            "typical-family",
            tuple(TYPICAL_FAMILIES),
            400,
            typical_family_once,
            typical_family_summary,
        ),
        Study("typical-power", tuple(STRANGE), 200, typical_power_once, typical_power_summary),
        Study("one", tuple(ONE), 100, one_once, rejected_summary),
        Study("held", _alternatives("held"), 100, alternative_once, beside_first_edition),
        Study("chosen", _alternatives("chosen"), 100, alternative_once, rejected_summary),
        Study("samples", _sample_names(), 10, sample_once, sample_summary),
        Study(
            "leak",
            tuple(leak.DESIGNS),
            500,
            partial(leak.once, tests=leak.closed_forms),
            leak.summary,
        ),
        Study(
            "leak-networks",
            tuple(leak.DESIGNS),
            100,
            partial(leak.once, tests=leak.networks),
            leak.summary,
        ),
    )
    return {study.name: study for study in each}


@dataclass(frozen=True)
class Bar:
    """How often something must be found, at least or at most, in designs with some words."""

    key: str
    least: float = 0.0
    most: float = 1.0
    words: tuple[str, ...] = ("",)


# The bars of each study; of several that fit a design, the first one for a key counts.
LOOSE = ("n = 300", "lognormal")
BARS = {
    "bounds": (
        Bar("hold", 0.90, words=LOOSE),
        Bar("hold", 0.93),
        Bar("at_mean", 0.92),
        Bar("at_width", 0.92),
    ),
    "tolerated": (Bar("within", most=0.03),),
    "exact": (
        Bar("passed", 0.0, words=("n = 500",)),
        Bar("passed", 0.90),
        Bar("within", 0.80, words=("n = 500",)),
        Bar("within", 0.95),
    ),
    "wrong": (Bar("anything", most=0.065),),
    "settled": (Bar("settled", 0.8),),
    "typical-family": (Bar("outside", most=0.05),),
    "one": (
        Bar("rejected", most=0.05, words=("none",)),
        Bar("rejected", 0.95, words=("x 1.8", "x 0.6")),
        Bar("rejected", 0.65, words=("correlation",)),
        Bar("rejected", 0.7),
    ),
    "typical-power": (
        Bar("found", 0.7, words=("gap", "curve", "bowl", "saddle")),
        Bar("found", 0.9, words=("30 mixed", "6 sd", "contradiction", "ring", "too wide")),
    ),
}


def missed(study: str, design: str, row: Row) -> list[str]:
    """What a design clearly misses: a bar that lies outside of the 95 % interval of the rate."""
    words = [
        f"not {key}"
        for key, at in row.items()
        if isinstance(at, dict) and not at.get("held", True)
    ]
    if row.get("held") is False:
        words.append("not held")
    keys = set()
    for bar in BARS.get(study, ()):
        if bar.key in keys or bar.key not in row or not any(w in design for w in bar.words):
            continue
        keys.add(bar.key)
        found = row[bar.key]
        if found["high"] < bar.least or found["low"] > bar.most:
            bound = f"at least {bar.least}" if bar.least else f"at most {bar.most}"
            words.append(f"{bar.key} {found['rate']:.3f}, {bound} expected")
    return words


def _job(job: Job) -> Row:
    study, name, seed = job
    return {"study": study, "design": name, "seed": seed, **studies()[study].run(name, seed)}


def repetitions_of(study: Study, share: float) -> int:
    return max(2, round(share * study.repetitions))


def conduct(chosen: list[Study], share: float, workers: int, folder: Path, seconds: float) -> None:
    """Runs the jobs that are not done yet, all studies side by side, as far as the time goes."""
    folder.mkdir(parents=True, exist_ok=True)
    done = {study.name: read(folder, study.name) for study in chosen}
    # Studies advance together, so that a stop leaves the same part of each.
    order = sorted(
        (seed / repetitions_of(study, share), study.name, name, seed)
        for study in chosen
        for name in study.designs
        for seed in range(repetitions_of(study, share))
    )
    jobs = [tuple(rest) for _, *rest in order if (rest[1], rest[2]) not in done[rest[0]]]
    end = time.perf_counter() + seconds
    bar = tqdm(total=len(jobs), disable=None)
    for row in _map(jobs, workers, end):
        with (folder / f"{row['study']}.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        bar.update()


def read(folder: Path, study: str) -> dict[tuple[str, int], Row]:
    """Results of a study that are kept; a line that was cut off is left out."""
    found: dict[tuple[str, int], Row] = {}
    file = folder / f"{study}.jsonl"
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        found[row["design"], row["seed"]] = row
    return found


def _map(jobs: list[Any], workers: int, end: float) -> Iterator[Row]:
    """Results as they are made, until the time is over."""
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        waiting: set[Future[Row]] = set()
        todo = iter(jobs)
        while time.perf_counter() < end:
            waiting |= {pool.submit(_job, job) for job in islice(todo, 4 * workers - len(waiting))}
            if not waiting:
                return
            complete, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in complete)
        pool.shutdown(wait=True, cancel_futures=True)


def summarise(study: Study, share: float, folder: Path) -> Row:
    """What is found in the repetitions of a study that are done."""
    done = read(folder, study.name)
    wanted = repetitions_of(study, share)
    each = {d: [done[d, s] for s in range(wanted) if (d, s) in done] for d in study.designs}
    designs = {d: study.summary(d, rows) for d, rows in each.items() if rows}
    return {
        "study": study.name,
        "repetitions": min(map(len, each.values())),
        "of": study.repetitions,
        "designs": designs,
        **beside(designs),
        "missed": {
            d: words for d, row in designs.items() if (words := missed(study.name, d, row))
        },
    }


def beside(designs: Row) -> Row:
    """Means over designs where q is wrong near x_o, beside those of the first edition.

    Of samples, means over tasks and flows for each number of pairs.
    """
    kinds: dict[str, list[float]] = {}
    for name, row in designs.items():
        if "each" in row:
            kinds.setdefault(" ".join(name.split()[:2]), []).append(row["each"])
    if kinds:
        return {"means": {kind: float(np.mean(rates)) for kind, rates in kinds.items()}}
    right = ("none", "leak")
    some = [row for name, row in designs.items() if "first" in row and not name.startswith(right)]
    if not some:
        return {}
    found = np.array([row["rejected"]["rate"] for row in some])
    first = np.array([row["first"] for row in some])
    worst = float((found - first).min())
    return {"mean": float(found.mean()), "mean_first": float(first.mean()), "most_below": worst}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("studies", help="names, with commas between them; or all, but for leaks")
    parser.add_argument("--share", type=float, default=1.0, help="the share of the repetitions")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=math.inf, help="when to stop")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "bars", help="of results")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "bars", help="of records")
    run = parser.parse_args()
    every = [name for name in studies() if not name.startswith("leak")]
    names = every if run.studies == "all" else run.studies.split(",")
    chosen = [studies()[name] for name in names]
    conduct(chosen, run.share, run.workers, run.folder, run.seconds)
    run.out.mkdir(parents=True, exist_ok=True)
    all_missed = 0
    for study in chosen:
        record = {**origin(), "seed": 0, **summarise(study, run.share, run.folder)}
        for design, row in record["designs"].items():
            sys.stdout.write(f"{study.name:14} {design:36} {json.dumps(row)}\n")
        for design, words in record["missed"].items():
            sys.stdout.write(f"MISSED {study.name:14} {design:36} {'; '.join(words)}\n")
        all_missed += len(record["missed"])
        sys.stdout.flush()
        text = json.dumps(record, indent=1) + "\n"
        (run.out / f"{study.name}.json").write_text(text, encoding="utf-8")
    return 1 if all_missed else 0


if __name__ == "__main__":
    sys.exit(main())
