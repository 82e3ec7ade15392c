"""Results made of random numbers, without any test or training, and the pictures of them.

Every public plot has at least one case; ``python -m tests.plots.cases`` draws them all anew and
writes the baselines that ``test_images.py`` compares with.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit

import assay
from assay import plots
from assay.diagnostics.average.coverage import CoverageResult, TARPResult
from assay.diagnostics.average.sbc import SBCResult
from assay.diagnostics.local.local_effects import Sizes
from assay.diagnostics.local.lpit import LPITResult
from assay.interpret.density_ratio import Estimate
from assay.interpret.effects import Effects
from assay.interpret.errors import Narrow, Shift, Wide
from assay.interpret.health import Health
from assay.interpret.power import PowerCurve, PowerResult
from assay.interpret.predictive import PredictiveResult
from assay.interpret.trust import INCONCLUSIVE, OUTSIDE, PASSED, REJECTED, TrustMap
from assay.nulls.ranks import Cells, chi_square, compared, tails
from assay.results import Holm, LC2STResult
from assay.suite import Check

BASELINES = Path(__file__).parent / "baselines"
# All pictures are this wide, in pixels: 80 to the inch of one column.
PIXELS = 272
NAMES = ("$g_{Na}$ conductance", "a_rather_long_parameter_name", "_C_m")
LATEX = (r"$\theta_1$", r"$\nonsense$", "a rather long name of a parameter")
SAID = {"hypothesis": "q = p", "settings": {"test": "ℓ-C2ST", "n": 100, "scope": "at x_o"}}


def random(seed=0):
    return np.random.default_rng(seed)


def local(m=2, s=1000, strength=1.0, h=99):
    """One observation; the probability of class 1 rises along the first parameter."""
    rng = random(m)
    theta = rng.normal(size=(s, m))
    theta[:, 1:] += 0.6 * theta[:, :1]
    slopes = strength * np.array([1.0, 0.5, *np.zeros(8)])[:m]
    data = expit(theta @ slopes - 0.1 * strength)
    null = expit(0.15 * strength * rng.normal(size=(h, m)) @ theta.T)
    return LC2STResult(
        statistic=np.mean((data - 0.5) ** 2),
        null=np.mean((null - 0.5) ** 2, -1),
        probabilities=data,
        null_probabilities=null,
        x=np.zeros(2),
        draws=theta,
        theta=theta,
        **SAID,
    )


def reference(m, r=1000):
    """Draws of the truth that belong to it: a little higher in the first parameter."""
    theta = random(100 + m).normal(size=(r, m))
    theta[:, 1:] += 0.6 * theta[:, :1]
    return theta + np.array([0.8, *np.zeros(m - 1)])


def many(o=20, h=199, wrong=0.5):
    """Many observations; the statistic grows over the last of them."""
    rng = random(o)
    null = rng.gamma(2, 0.01 * (1 + np.linspace(0, 1, o))[:, None], size=(o, h))
    growth = np.clip(np.linspace(-1, 1, o) + 2 * wrong - 1, 0, None)
    return LC2STResult(
        statistic=rng.gamma(2, 0.01, size=o) + 0.2 * growth,
        null=null,
        probabilities=np.full((o, 4), 0.5),
        null_probabilities=None,
        x=np.linspace(-1, 1, o)[:, None],
        draws=np.zeros((o, 4, 2)),
        theta=None,
        adjustment=Holm(),
        **SAID,
    )


def ranks(j=2, n=400, k=30):
    """Ranks of quantities of which the first is overconfident and the others are right."""
    rng = random(j)
    shapes = np.where(np.arange(j) == 0, 0.6, 1.0)
    return np.minimum((rng.beta(shapes, shapes, size=(n, j)) * (k + 1)).astype(int), k)


def copies(n, cells, h=199):
    """Counts of uniform ranks below the edges of cells, with shape (g, h)."""
    return random(9).multinomial(n, cells.shares, size=h).T.cumsum(0)


def surprise(positions, weights):
    """The surprise of whole curves, with its null."""
    n, cells = len(positions), Cells.of(weights)
    return compared(cells.below(positions), copies(n, cells), tails(n, cells))


def sbc(j=2):
    positions, cells = ranks(j), Cells.of(np.ones(31, int))
    below, null = cells.below(positions), copies(len(positions), cells)
    distance = np.broadcast_to(random(1).gamma(20, size=99), (j, 99))
    return SBCResult(
        statistic=np.linspace(0.1, 0.05, j),
        null=distance,
        chi_square=compared(below, null, partial(chi_square, cells=cells)),
        envelope=surprise(positions, np.ones(31, int)),
        ranks=positions,
        k=30,
        names=tuple(f"theta[{i}]" for i in range(j)),
        **SAID,
    )


def covered(j=2):
    """Expected coverage of central intervals; the first curve is overconfident."""
    positions = (15 - np.minimum(ranks(j), 30 - ranks(j))).astype(int)
    weights = np.array([1, *[2] * 15])
    whole = surprise(positions, weights)
    names = tuple(f"theta[{i}]" for i in range(j))
    parts = {"levels": np.array([0.5, 0.9]), "names": names, "regions": "central intervals"}
    area = {"area": np.zeros(j), "area_null": np.zeros((j, 99))}
    found = {"statistic": whole.statistic, "null": whole.null}
    return CoverageResult(positions=positions, weights=weights, **found, **area, **parts, **SAID)


def tarp():
    positions = ranks(1)
    whole = surprise(positions, np.ones(31, int))
    parts = {"levels": np.array([0.5, 0.9]), "names": ("TARP",), "references": np.zeros((400, 2))}
    area = {"area": np.zeros(1), "area_null": np.zeros((1, 99))}
    return TARPResult(
        statistic=whole.statistic,
        null=whole.null,
        positions=positions,
        weights=np.ones(31, int),
        **area,
        **parts,
        **SAID,
    )


def levels(j=2, h=99):
    """Local PIT curves; the first is that of a q that is too narrow, the others are right."""
    alphas = np.arange(1, 20) / 20
    bends = random(j).normal(scale=0.05, size=(h, j, 1))
    shape = np.sin(2 * np.pi * alphas)
    curves = alphas + np.array([0.16, *np.full(j - 1, -0.03)])[:, None] * shape
    return LPITResult(
        statistic=np.array(0.02),
        null=random(1).gamma(2, 0.002, size=h),
        alphas=alphas,
        curves=curves,
        null_curves=alphas + bends * shape + bends[::-1] * np.sin(np.pi * alphas),
        statistics=np.full(j, 0.02),
        null_statistics=np.full((j, h), 0.01),
        x=np.zeros(2),
        names=tuple(f"theta[{i}]" for i in range(j)),
        adjustment=Holm(),
        support=None,
        curve_statistic=np.array(0.02),
        null_curve_statistic=np.full(h, 0.01),
        independence=np.array(0.0),
        null_independence=np.zeros(h),
        correlation=np.eye(j),
        null_correlation=np.zeros((h, j, j)),
        **SAID,
    )


def estimate(value, half, right, p=0.02):
    value, half = np.asarray(value, float), np.asarray(half, float)
    centre = np.full_like(value, right)
    wrong = np.abs(value - right) > 1.4 * half
    ends = (value - 0.8 * half, value + 0.8 * half)
    there = (right + 1.9 * (value - right), *(right + 1.9 * (end - right) for end in ends))
    stated = {"at": there[0], "at_lower": there[1], "at_upper": there[2], "varies": wrong}
    chance = np.broadcast_to(p, value.shape)
    return Estimate(
        value, *ends, centre, centre - half, centre + half, wrong, **stated, pvalue=chance
    )


def sizes(bias, width):
    """Numbers at three shares; errors grow towards x_o."""
    growth, half = 1 + 0.3 * np.arange(2, -1, -1)[:, None], 0.3 - 0.1 * np.arange(3)[:, None]
    noise = random(len(bias)).normal(size=(2, 3, len(bias)))
    shift, wide = growth * bias, growth * np.log(width)
    shift, wide = shift + 0.3 * half * noise[0], wide + 0.3 * half * noise[1]
    return Sizes(
        near=np.array([0.05, 0.1, 0.2]),
        bias=np.stack([shift, shift - half, shift + half]),
        dispersion=np.exp([wide, wide - half, wide + half]),
    )


def effects(m=3, names=None):
    bias = np.array([0.6, -0.1, 0.05, *np.zeros(9)])[:m]
    width = np.array([1.05, 0.6, 0.95, *np.ones(9)])[:m]
    half, pairs = 0.15 + 0.05 * np.arange(m), np.linspace(0.4, -0.2, m * (m - 1) // 2)
    none = dict.fromkeys(("total_variation", "kl_pq", "kl_qp", "chi_square", "ess"))
    none |= dict.fromkeys(("khat", "weights", "theta", "tail"))
    p, rng = np.where(np.arange(m) < 1, 0.005, 0.7), random(m)
    return Effects(
        names=tuple(names or (f"theta[{i}]" for i in range(m))),
        bias=estimate(bias, half, 0, p),
        dispersion=estimate(width, half, 1, p),
        intervals=estimate(np.full((m, 3), 0.9), np.full((m, 3), 0.1), 0.9),
        region=estimate(np.full(3, 0.9), np.full(3, 0.1), 0.9),
        **none,
        **SAID,
        correlation=estimate(pairs, np.full(len(pairs), 0.15), 0),
        near=np.array(0.2),
        truths=rng.normal(size=(300, m)) - bias,
        drawn=rng.normal(size=(300, m)),
        sizes=sizes(bias, width),
    )


def predicted(far=1.0):
    """Distances of simulations of a draw of q, and of x_o."""
    null = random().gamma(4, 0.5, size=199)
    parts = {"theta": np.zeros(2), "x": np.zeros(3)}
    return PredictiveResult(statistic=np.array(4.6 * far), null=null, **parts, **SAID)


def health(n=500):
    rng = random()
    logits = rng.normal(scale=0.8, size=(n, 2))
    chances = expit(logits)
    truth = rng.uniform(size=n) < expit(logits[:, 0] - logits[:, 1])
    truths = np.stack([truth, ~truth], 1)
    blind = expit(0.1 * rng.normal(size=(n, 2)))
    first = np.broadcast_to([True, False], (n, 2))
    again = expit(logits[:100] + 0.1)
    return Health(
        probabilities=chances,
        truths=truths,
        reseeded=again,
        x_probabilities=blind,
        x_truths=first,
        perfect=rng.gamma(20, 0.001, size=99),
        settings=SAID["settings"],
    )


def power(o=None):
    sizes = np.geomspace(0.05, 2.0, 8)
    scale = np.array(0.4) if o is None else np.linspace(0.3, 1.2, o)
    law = {"scale": scale, "shape": np.full_like(scale, 2.0), "level": 0.05}
    made = {"error": Shift(), "sizes": sizes, **law}
    curve = PowerCurve(rates=sizes, mde=scale, mde_error=scale, **made)
    grid = np.geomspace(0.05, 2, 2000)
    fits = np.atleast_2d(curve.fitted(grid))
    mde = np.array([np.interp(0.8, fit, grid, right=np.inf) for fit in fits]).reshape(scale.shape)
    rates = np.round(curve.fitted(sizes) * 50) / 50
    full = PowerCurve(rates=rates, mde=mde, mde_error=0.1 * mde, **made)
    return PowerResult(
        curves=(full,), x=np.zeros(2), alpha=0.05, target=0.8, repetitions=50, **SAID
    )


def trust(o=30, d=2):
    rng = random()
    x = rng.normal(size=(o, d))
    rejected, near = x[:, 0] < -0.5, np.abs(x[:, 1 % d]) < 1
    far = np.abs(x[:, 1 % d]) > 1.6
    words = np.where(rejected, REJECTED, np.where(near, PASSED, INCONCLUSIVE))
    words = np.where(far, OUTSIDE, words)
    p = np.where(rejected, 0.004, rng.uniform(0.06, 1, size=o))
    return TrustMap(
        verdicts=tuple(map(str, words)),
        x=x,
        pvalue=p,
        adjusted=p,
        effects=np.ones((o, 1)),
        errors=("shift",),
        outside=far,
        relevant=0.5,
        alpha=0.05,
        **SAID,
    )


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
    """The same with arrays that stand o times along a leading axis."""
    return replace(one, **{name: np.stack([getattr(one, name)] * o) for name in names})


def check(m=3, o=2, classifier=True):
    """What a check found at o observations, all alike."""
    one, ends = effects(m), ("lower", "upper", "null_mean", "null_lower", "null_upper", "wrong")
    kinds = ("bias", "dispersion", "intervals", "region", "correlation")
    estimates = {kind: repeated(getattr(one, kind), ("value", *ends), o) for kind in kinds}
    without, scale = dict.fromkeys(("truths", "drawn", "sizes")), np.full(o, 0.3)
    law = {"rates": scale, "mde_error": scale, "scale": scale, "shape": scale, "level": 0.05}
    curves = tuple(
        PowerCurve(kind(j), np.ones(3), mde=scale * size * (1 + j), **law)
        for kind, size in ((Shift, 1.0), (Wide, 1.6), (Narrow, 5.0))
        for j in range(m)
    )
    parts = {"x": np.zeros((o, 2)), "alpha": 0.05, "target": 0.8, "repetitions": 50}
    arrays = ("statistic", "null", "probabilities", "null_probabilities", "x", "draws", "theta")
    many = repeated(local(m), arrays, o)
    none = ("context", "classifier_effects", "health", "pits", "sbc", "coverage", "tarp")
    return Check(
        names=one.names,
        labels=tuple(f"x_o[{i}]" for i in range(o)),
        local=many,
        detectable=PowerResult(curves, **parts, **SAID),
        trust=replace(trust(o), verdicts=(REJECTED,) * o),
        effects=replace(one, **estimates, **without, near=np.full(o, 0.2)),
        classifier=many if classifier else None,
        remarks=(),
        alpha=0.05,
        settings={},
        **dict.fromkeys(none),
    )


CASES = {
    "pp": lambda: plots.pp(local()),
    "pairs_of_1": lambda: plots.pairs(local(1), marks=[0.4]),
    "pairs_of_2": lambda: plots.pairs(local(2), marks=reference(2)),
    "pairs_of_3": lambda: plots.pairs(local(3), marks=[0.4, -0.3, 1.0], names=NAMES),
    "pairs_nearly_right": lambda: plots.pairs(local(3, s=200, strength=0.02)),
    "pairs_of_5": lambda: plots.pairs(local(5), marks=reference(5)),
    "pairs_of_8": lambda: plots.pairs(local(8), marks=np.zeros(8)),
    "sweep": lambda: plots.sweep(many(), values=many().x[:, 0]),
    "pvalues_of_2": lambda: plots.pvalues(many(2)),
    "pvalues_of_12": lambda: plots.pvalues(many(12)),
    "pvalues_of_200": lambda: plots.pvalues(many(200, h=999)),
    "null_histogram": lambda: plots.null_histogram(replace(local(), statistic=np.array(0.015))),
    "null_histogram_far": lambda: plots.null_histogram(local()),
    "rank_histogram": lambda: plots.rank_histogram(sbc()),
    "rank_ecdf": lambda: plots.rank_ecdf(sbc()),
    "rank_difference": lambda: plots.rank_difference(sbc()),
    "rank_difference_of_14": lambda: plots.rank_difference(sbc(14)),
    "coverage": lambda: plots.coverage(covered()),
    "coverage_tarp": lambda: plots.coverage(tarp()),
    "coverage_of_8": lambda: plots.coverage(covered(8)),
    "coverage_of_40": lambda: plots.coverage(covered(40)),
    "levels": lambda: plots.levels(levels()),
    "effects": lambda: plots.effects(effects()),
    "effects_of_10": lambda: plots.effects(effects(10)),
    "effects_latex": lambda: plots.effects(effects(names=LATEX)),
    "shares": lambda: plots.shares(effects(names=LATEX)),
    "shares_of_10": lambda: plots.shares(effects(10)),
    "correlations": lambda: plots.correlations(effects(names=LATEX)),
    "correlations_of_10": lambda: plots.correlations(effects(10)),
    "predictive": lambda: plots.predictive(predicted()),
    "reliability": lambda: plots.reliability(health()),
    "roc": lambda: plots.roc(health()),
    "power": lambda: plots.power(power()),
    "power_of_20": lambda: plots.power(power(20)),
    "trust_map": lambda: plots.trust_map(trust()),
    "recovery": lambda: plots.recovery(calibration(), names=LATEX),
    "recovery_of_1": lambda: plots.recovery(calibration(1)),
    "contraction": lambda: plots.contraction(calibration(5)),
    "near": lambda: plots.near(effects(names=LATEX)),
    "summary": lambda: plots.summary(check()),
    "summary_without": lambda: plots.summary(check(10, classifier=False)),
    "trust_map_line": lambda: plots.trust_map(trust(), coordinates=trust().x[:, 0]),
}


def figure_of(drawn):
    """The figure of what a plot returned: axes, an array of them, or the figure itself."""
    return drawn if isinstance(drawn, Figure) else np.ravel(drawn)[0].figure


def save(figure, path):
    figure.savefig(path, dpi=PIXELS / figure.get_figwidth())


def renew():
    """Writes all baselines anew."""
    for old in BASELINES.glob("*.png"):
        old.unlink()
    for case, draw in CASES.items():
        figure = figure_of(draw())
        save(figure, BASELINES / f"{case}.png")
        plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    mpl.rcdefaults()
    renew()
