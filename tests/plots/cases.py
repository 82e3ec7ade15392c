"""Results made of random numbers, without any test or training, and the pictures of them.

Every public plot has a case of its name, and others; ``python -m tests.plots.cases`` draws them
all anew and writes the baselines that ``test_every.py`` compares with.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

import assay
from assay import plots
from assay.answers.predictive import PredictiveResult
from assay.answers.rows import Bounds
from assay.answers.typical import Typical
from assay.average.coverage import CoverageResult
from assay.average.ranks import Cells, RankStatistic
from assay.average.sbc import SBCResult
from assay.check import Check
from assay.local.lc2st import LC2STResult, Quality
from assay.local.levels import LevelResult
from assay.local.score import ScoreResult
from assay.results import Holm
from assay.verdict import Surroundings

BASELINES = Path(__file__).parent / "baselines"
# All pictures are this wide, in pixels: 80 to the inch of one column.
PIXELS = 272
NAMES = ("$g_{Na}$ conductance", "a_rather_long_parameter_name", "_C_m")
LATEX = (r"$\theta_1$", r"$\nonsense$", "a rather long name of a parameter")
WORDS = {"hypothesis": "q = p", "settings": {"test": "ℓ-C2ST", "n": 100, "scope": "at x_o"}}
random = np.random.default_rng


def correlated(rng, s, m):
    theta = rng.normal(size=(s, m))
    theta[:, 1:] += 0.6 * theta[:, :1]
    return theta


def local(m=2, s=1000, strength=1.0, h=99):
    """One observation; the probability of class 1 rises along the first parameter."""
    rng = random(m)
    theta = correlated(rng, s, m)
    slopes = strength * np.array([1.0, 0.5, *np.zeros(8)])[:m]
    data = expit(theta @ slopes - 0.1 * strength)
    null = expit(0.15 * strength * rng.normal(size=(h, m)) @ theta.T)
    parts = {"statistic": np.mean((data - 0.5) ** 2), "null": np.mean((null - 0.5) ** 2, -1)}
    parts |= {"probabilities": data, "null_probabilities": null, "draws": theta, "theta": theta}
    return LC2STResult(x=np.zeros(2), **parts, **WORDS)


def reference(m, r=1000):
    """Draws of the truth that belong to it: a little higher in the first parameter."""
    return correlated(random(100 + m), r, m) + np.array([0.8, *np.zeros(m - 1)])


def many(o=20, h=199, wrong=0.5):
    """Many observations; the statistic grows over the last of them."""
    rng = random(o)
    null = rng.gamma(2, 0.01 * (1 + np.linspace(0, 1, o))[:, None], size=(o, h))
    growth = np.clip(np.linspace(-1, 1, o) + 2 * wrong - 1, 0, None)
    parts = {"statistic": rng.gamma(2, 0.01, size=o) + 0.2 * growth, "null": null}
    parts |= {"probabilities": np.full((o, 4), 0.5), "null_probabilities": None}
    parts |= {"x": np.linspace(-1, 1, o)[:, None], "draws": np.zeros((o, 4, 2)), "theta": None}
    return LC2STResult(adjustment=Holm(), **parts, **WORDS)


def ranks(j=2, n=400, k=30):
    """Ranks of quantities of which the first is overconfident and the others are right."""
    shapes = np.where(np.arange(j) == 0, 0.6, 1.0)
    return np.minimum((random(j).beta(shapes, shapes, size=(n, j)) * (k + 1)).astype(int), k)


def against_uniform(positions, weights, statistic=Cells.surprise):
    """A statistic of positions with its null; by default the surprise of whole curves."""
    n, cells = len(positions), Cells.of(weights)
    shares = np.array(cells.sizes) / sum(cells.sizes)
    copies = random(9).multinomial(n, shares, size=199).T.cumsum(0)
    own, null = (statistic(cells, below) for below in (cells.below(positions), copies))
    return RankStatistic(own, np.broadcast_to(null, (len(own), len(null))))


def theta_names(j):
    return tuple(f"theta[{i}]" for i in range(j))


def sbc(j=2):
    positions, weights = ranks(j), np.ones(31, int)
    null = np.broadcast_to(random(1).gamma(20, size=99), (j, 99))
    parts = {"statistic": np.linspace(0.1, 0.05, j), "null": null, "ranks": positions, "k": 30}
    parts["chi_square"] = against_uniform(positions, weights, Cells.chi_square)
    parts["envelope"] = against_uniform(positions, weights)
    return SBCResult(names=theta_names(j), **parts, **WORDS)


def covered(j=2, **own):
    """Expected coverage of central intervals; the first curve is overconfident."""
    parts = {"ranks": 15 - np.minimum(ranks(j), 30 - ranks(j)), "names": theta_names(j)}
    parts |= {"weights": np.array([1, *[2] * 15]), "regions": "central intervals"} | own
    whole = against_uniform(parts["ranks"], parts["weights"])
    area = {"area": np.zeros(j), "area_null": np.zeros((j, 99)), "levels": np.array([0.5, 0.9])}
    return CoverageResult(statistic=whole.statistic, null=whole.null, **area, **parts, **WORDS)


def tarp():
    own = {"ranks": ranks(1), "weights": np.ones(31, int), "names": ("TARP",)}
    own |= {"references": np.zeros((400, 2)), "regions": "balls around references"}
    return covered(1, **own)


def levels(j=2, h=99):
    """Local PIT curves; the first is that of a q that is too narrow, the others are right."""
    alphas = np.arange(1, 20) / 20
    bends = random(j).normal(scale=0.05, size=(h, j, 1))
    shape = np.sin(2 * np.pi * alphas)
    curves = alphas + np.array([0.16, *np.full(j - 1, -0.03)])[:, None] * shape
    null_curves = alphas + bends * shape + bends[::-1] * np.sin(np.pi * alphas)
    parts = {"statistic": np.array(0.02), "null": random(1).gamma(2, 0.002, size=h)}
    parts |= {"statistics": np.full(j, 0.02), "null_statistics": np.full((j, h), 0.01)}
    parts |= {"curve_statistic": np.array(0.02), "null_curve_statistic": np.full(h, 0.01)}
    parts |= {"independence": np.array(0.0), "null_independence": np.zeros(h)}
    parts |= {"alphas": alphas, "curves": curves, "null_curves": null_curves, "x": np.zeros(2)}
    parts |= {"names": theta_names(j), "adjustment": Holm(), "correlation": np.eye(j)}
    return LevelResult(**parts, **WORDS)


def interval(value, half):
    """Numbers (o, ...) and the ends of intervals of a half-width, (o, 3, ...)."""
    value, half = np.broadcast_arrays(np.asarray(value, float), half)
    return np.stack([value, value - half, value + half], 1)


def bounds(m=3, sizes=(1.0,), names=None):
    """Bounds at some observations, where errors are so many times as large.

    q is too high in the first parameter, too narrow in the second, and wrong in correlations.
    """
    size, half = np.array(sizes)[:, None], 0.15 + 0.02 * np.arange(m)
    bias = size * np.array([0.6, -0.1, 0.05, *np.zeros(m)])[:m]
    log_width = size * np.log([1.05, 0.6, 0.95, *np.ones(m)])[:m]
    first, second = np.triu_indices(m, 1)
    correlation = np.zeros((len(size), m, m))
    correlation[:, first, second] = size * np.linspace(0.4, -0.2, len(first))
    correlation += correlation.swapaxes(1, 2)
    right = np.broadcast_to([0.5, 0.9, 0.95], (len(size), m, 3))
    nothing, chance = np.zeros((len(size), m)), random(m)
    truths = chance.normal(size=(300, m)) / np.exp(log_width)[:, None] - bias[:, None]
    draws = chance.normal(size=(len(size), 1200, m))
    table = {kind: interval(nothing, 0.1) for kind in ("skewness", "tails")}
    table |= {"bias": interval(bias, half), "width": np.exp(interval(log_width, half))}
    table["slope"] = interval(np.stack([nothing] * 2, 2), 0.2)
    table["correlation"] = interval(correlation, 0.15 * (1 - np.eye(m)))
    table["coverage"] = interval(right - 0.3 * np.abs(log_width)[..., None], 0.04)
    table["region_coverage"] = interval(right[:, 0], 0.04)
    near = {"near_truths": truths.astype(np.float32), "near_draws": draws.astype(np.float32)}
    parts = {"near": np.full(len(size), 200.0), "n": 1000, "draws": 16, "share": 0.2, **near}
    names = tuple(names or theta_names(m))
    return Bounds(names=names, table=table, expected_width=nothing, **parts)


def predicted(far=1.0):
    """Distances of simulations of a draw of q, and of x_o."""
    parts = {"null": random(0).gamma(4, 0.5, size=199), "theta": np.zeros(2), "x": np.zeros(3)}
    return PredictiveResult(statistic=np.array(4.6 * far), **parts, **WORDS)


def quality(n=500):
    """A classifier that knows something, at sets that were held out."""
    logits = random(0).normal(scale=0.8, size=n)
    return Quality(truths=expit(logits + 0.4), draws=expit(logits[::-1] - 0.4))


def scores(pvalues, d=2):
    """What the score test found at many observations."""
    o, p = len(pvalues), np.asarray(pvalues, float)
    null = random(o).gamma(2, 0.5, size=(o, 199))
    parts = {"statistic": np.quantile(null, 1 - p, axis=1).diagonal() + 0.01, "null": null}
    parts |= {"pvalues": p, "copies": np.full(o, 199), "near": np.full(o, 200)}
    parts |= {"kinds": ("smooth", "one parameter"), "evidence": np.full((o, 2), 0.03)}
    parts |= {
        "auc": np.full(o, 0.6),
        "auc_error": np.full(o, 0.02),
        "x": places(o, 2, seed=7)[:, :d],
    }
    words = WORDS | {"settings": {"test": "local score", "n": 1000}}
    return ScoreResult(adjustment=Holm(), **parts, **words)


def places(n, d, seed=0):
    return random(seed).normal(size=(n, d))


def surroundings(o, d=2):
    """Simulated observations, some of them near x_o, and p-values at the first."""
    x, pvalue = places(400, d, seed=5), np.full(400, np.nan)
    pvalue[:16] = np.linspace(0.005, 0.9, 16)
    distances = np.linalg.norm(x[:, None] - places(o, d, seed=7), axis=2)
    return Surroundings(x=x, near=(distances < 0.5).T, pvalue=pvalue)


# P-values of the test and of x_o, and how wrong q is, that lead to each verdict.
VERDICTS = {"rejected": (0.005, 0.6, 1.0), "passed": (0.6, 0.5, 0.2)}
VERDICTS |= {"inconclusive": (0.4, 0.7, 1.0), "outside": (0.3, 0.001, 0.0)}


def calibration(m=3, n=600, k=16):
    """Pairs with draws of a q that is too low in the first parameter and narrow in the second."""
    rng = random(m)
    theta = rng.normal(size=(n, m))
    # The more parameters, the less is known of the last.
    noise = 0.3 + 0.5 * np.arange(m)
    x = theta + noise * rng.normal(size=(n, m))
    shrink = 1 / (1 + noise**2)
    deviation = noise * np.sqrt(shrink) * np.array([1, 0.6, *np.ones(10)])[:m]
    shift = deviation * np.array([-0.8, *np.zeros(11)])[:m]
    draws = (x * shrink + shift)[:, None] + deviation * rng.normal(size=(n, k, m))
    return assay.Calibration(theta, x, draws)


def repeated(one, names, o):
    """The same with arrays o times along a leading axis."""
    return replace(one, **{name: np.stack([getattr(one, name)] * o) for name in names})


def check(verdicts=("rejected", "rejected"), m=3, classifier=True, names=None, d=2):
    """What a check found at observations with these verdicts."""
    o = len(verdicts)
    pvalues, own, sizes = np.array([VERDICTS[word] for word in verdicts]).T
    arrays = ("statistic", "null", "probabilities", "null_probabilities", "x", "draws", "theta")
    limits, why = bounds(m, sizes, names), ("x[1] = 6 lies where no simulation does",) * o
    parts = {"names": limits.names, "labels": tuple(f"x_o[{i}]" for i in range(o))}
    parts |= {"alpha": 0.05, "tolerance": 0.5, "remarks": (), "settings": {"n": 1000}}
    parts |= {"typical": Typical(own, why, 600, own <= 0.01), "test": scores(pvalues, d)}
    around = surroundings(o)
    parts |= {"bounds": limits, "surroundings": replace(around, x=around.x[:, :d])}
    parts |= {"sbc": sbc(m), "coverage": covered(m), "tarp": tarp()}
    found = Check(classified=repeated(local(m), arrays, o) if classifier else None, **parts)
    assert found.verdicts == tuple(verdicts)
    return found


ALL = tuple(VERDICTS)
# By the name of a picture, which begins with that of its plot: what is drawn, and how.
CASES = {
    "pp": (local, {}),
    "pairs_of_1": (partial(local, 1), {"marks": [0.4]}),
    "pairs_of_2": (local, {"marks": reference(2)}),
    "pairs_of_3": (partial(local, 3), {"marks": [0.4, -0.3, 1.0], "names": NAMES}),
    "pairs_nearly_right": (partial(local, 3, s=200, strength=0.02), {}),
    "pairs_of_5": (partial(local, 5), {"marks": reference(5)}),
    "pairs_of_8": (partial(local, 8), {"marks": np.zeros(8)}),
    "sweep": (many, {"values": np.linspace(-1, 1, 20)}),
    "pvalues_of_2": (partial(many, 2), {}),
    "pvalues_of_12": (partial(many, 12), {}),
    "pvalues_of_200": (partial(many, 200, h=999), {}),
    "null_histogram": (lambda: replace(local(), statistic=np.array(0.015)), {}),
    "null_histogram_far": (local, {}),
    "rank_histogram": (sbc, {}),
    "rank_ecdf": (sbc, {}),
    "rank_difference": (sbc, {}),
    "rank_difference_of_14": (partial(sbc, 14), {}),
    "coverage": (covered, {}),
    "coverage_tarp": (tarp, {}),
    "coverage_of_8": (partial(covered, 8), {}),
    "coverage_of_40": (partial(covered, 40), {}),
    "levels": (levels, {}),
    "forest": (partial(bounds, names=LATEX), {}),
    "forest_of_10": (partial(bounds, 10), {}),
    "forest_of_20": (partial(bounds, 20), {}),
    "forest_passed": (partial(bounds, sizes=(0.2,)), {}),
    "near": (partial(bounds, names=LATEX), {}),
    "near_of_1": (partial(bounds, 1), {}),
    "correlations": (partial(bounds, names=LATEX), {}),
    "correlations_of_10": (partial(bounds, 10), {}),
    "surroundings": (partial(check, ALL), {}),
    "surroundings_of_1": (partial(check, d=1), {}),
    "predictive": (predicted, {}),
    "reliability": (quality, {}),
    "roc": (quality, {}),
    "recovery": (calibration, {"names": LATEX}),
    "recovery_of_1": (partial(calibration, 1), {}),
    "contraction": (partial(calibration, 5), {}),
    "summary": (check, {}),
    "summary_without": (partial(check, m=10, classifier=False), {}),
    "summary_outside": (partial(check, ALL), {"which": "x_o[3]"}),
}


def draw(case, result=None, **options):
    """What the plot of a case returns, for its own result or another one."""
    make, own = CASES[case]
    plot = max((name for name in plots.__all__ if f"{case}_".startswith(f"{name}_")), key=len)
    return getattr(plots, plot)(make() if result is None else result, **own | options)


def axes_of(returned):
    """The axes that a plot returned, in a list; those of a figure."""
    returned = returned.axes if isinstance(returned, plt.Figure) else returned
    return [ax for ax in np.ravel(np.array(returned, dtype=object)) if ax is not None]


def drawn_figure(returned, path=None):
    """The figure of what a plot returned, with everything in its place, and saved there."""
    figure = returned if isinstance(returned, plt.Figure) else axes_of(returned)[0].figure
    if path is None:
        figure.canvas.draw()
    else:
        figure.savefig(path, dpi=PIXELS / figure.get_figwidth())
    return figure


if __name__ == "__main__":
    mpl.use("Agg")
    mpl.rcdefaults()
    for old in BASELINES.glob("*.png"):
        old.unlink()
    for case in CASES:
        drawn_figure(draw(case), BASELINES / f"{case}.png")
        plt.close("all")
