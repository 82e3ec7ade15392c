"""Public calls, each with clean arguments and the roles of those that are replaced."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from sklearn.naive_bayes import GaussianNB

import assay
from assay import plots, tasks
from assay.classifiers.discriminant import LDA, QDA
from assay.classifiers.features import Conditional, Fourier, Hermite, Joint
from assay.diagnostics.average.ranks import Values
from assay.interpret.errors import Narrow, Shift, Wide
from assay.nulls.ranks import UniformRanks
from assay.samples.posterior import StandardNormal
from assay.samples.proposal import Around, Model
from tests.conftest import Gaussian
from tests.plots import cases as pictures

from . import values
from .values import (
    ARRAY,
    COUNT,
    FUNCTION,
    NAMES,
    NUMBER,
    OBJECT,
    PATH,
    SEED,
    SHARE,
    Value,
    but,
    refused,
    without,
)

N, M, K, S = 60, 2, 5, 40
Q = Gaussian()
SMALL = assay.MLP((4,), epochs=1)
NULLS = 19


@dataclass(frozen=True)
class Case:
    """One call with one of its arguments replaced."""

    call: "Call"
    argument: str
    value: Value

    @property
    def name(self):
        return f"{self.call.name}-{self.argument}-{self.value.name}".replace(" ", "_")

    @property
    def names(self):
        """Words of which a clear message holds one."""
        return (self.argument, *self.call.aliases.get(self.argument, ()))

    @property
    def errors(self):
        return self.call.errors

    def clean(self):
        return self.call.given()[self.argument]

    def run(self, value):
        return self.call.function(**self.call.given() | {self.argument: value})


@dataclass(frozen=True)
class Call:
    name: str
    function: Callable[..., Any]
    # Clean arguments, made anew for each call, and what replaces them.
    given: Callable[[], dict[str, Any]]
    roles: dict[str, list[Value]]
    # What else a message may call an argument, and other errors that are clear.
    aliases: dict[str, tuple[str, ...]] = field(default_factory=dict)
    also: tuple[type[Exception], ...] = ()
    # Whether an answer takes seconds.
    slow: bool = False

    @property
    def errors(self):
        return (ValueError, TypeError, *self.also)

    def cases(self) -> Iterator[Case]:
        for argument, kinds in self.roles.items():
            yield from (Case(self, argument, value) for value in kinds)


@cache
def calibration():
    return Q.calibration(N, K)


@cache
def latents():
    return Q.latents(N)


@cache
def draws():
    return Q.draws(torch.zeros(M), S)


@cache
def several():
    return Q.draws(torch.zeros(3, M) + torch.arange(3.0)[:, None] / 4, S)


def pairs():
    own = calibration()
    return {"theta": own.theta, "x": own.x}


def triples():
    return pairs() | {"theta_q": calibration().theta_q, "embed": embedded}


def near():
    return {"x": calibration().features, "x_o": several().x}


def x_o():
    return torch.tensor([0.1, -0.2])


def sampled(x, n):
    return Q.sample(x, n)


def simulated(theta):
    return theta + torch.randn(theta.shape)


def prior():
    return torch.distributions.MultivariateNormal(torch.zeros(M), torch.eye(M))


def log_q(theta, x):
    return -(theta - x / 2).square().sum(-1)


def embedded(x):
    return 2 * x


def euclidean(theta, references):
    return (theta - references).norm(dim=-1)


def generator():
    return torch.Generator().manual_seed(0)


@cache
def fitted(name):
    """Local tests that can be asked."""
    make = {
        "lc2st": lambda: assay.lc2st(calibration(), SMALL, NULLS),
        "qda": lambda: assay.lc2st(calibration(), QDA(), NULLS),
        "latent": lambda: assay.lc2st(latents(), SMALL, NULLS),
        "score": lambda: assay.score(calibration(), null=NULLS),
        "moments": lambda: assay.moments(calibration(), null=NULLS),
        "moments of latents": lambda: assay.moments(latents(), null=NULLS),
        "region": lambda: assay.region(calibration(), LDA(), null=NULLS),
        "lhpd": lambda: assay.lhpd(calibration(), log_q, null=NULLS),
        "lpit": lambda: assay.lpit(calibration(), null=NULLS),
    }
    return make[name]()


@cache
def result(name, many=False):
    """What they found."""
    return fitted(name)(several() if many else draws())


@cache
def checked():
    return pictures.check()


@cache
def task():
    return tasks.ConjugateGaussian()


def folder():
    return Path(tempfile.mkdtemp())


# Any of many x_o; what is a neighbour of the right shape may be one.
X_O = but(ARRAY, "one axis more")
# Batches of rows: fewer are fine, and any number of features.
ROWS = ARRAY
OPTIONAL_COUNT = but(COUNT, "none")
# At most so many are taken of what is there.
AT_MOST = but(COUNT, "a hundred million")
NULL = [
    *but(OBJECT, "none"),
    *(v for v in COUNT if v.name in ("zero", "minus one", "a trillion", "beyond int64", "a half")),
    *(v for v in COUNT if v.name == "a hundred million"),
    *(v for v in COUNT if v.expected == "same" or v.name in ("numpy true", "a tensor")),
]
CALIBRATION = OBJECT
CLASSIFIER = but(OBJECT, "none")
WHERE = but(OBJECT, "none")
EMBED = but(without(FUNCTION, "returns other shape"), "none")
POSTERIOR = FUNCTION
SIZES = but(SHARE, "an empty list")
LEVEL = SHARE


def _call(name, function, given, roles, aliases=None, also=(), slow=False):
    return Call(name, function, given, roles, aliases or {}, also, slow)


def _samples():
    """Calibrations, draws and neighbourhoods."""
    shapes = {"theta": ("theta", "x"), "x": ("x", "embed"), "theta_q": ("theta_q",)}
    yield _call(
        "Calibration",
        assay.Calibration,
        triples,
        {"theta": ARRAY, "x": ARRAY, "theta_q": ARRAY, "embed": EMBED},
        shapes,
    )
    yield _call(
        "Calibration with names",
        assay.Calibration,
        lambda: triples() | {"names": ("mu", "nu"), "remarks": (), "layout": None},
        {
            "names": NAMES,
            "remarks": values._values(of_numbers=lambda c: (1, None), of_bytes=lambda c: (b"a",))
            + but(
                without(OBJECT, "text", "empty text", "true"),
                "none",
                "an empty list",
                "an empty tuple",
                "an empty dict",
                "a generator",
            ),
            "layout": but(OBJECT, "none"),
        },
    )
    yield _call(
        "Calibration.of",
        assay.Calibration.of,
        lambda: (
            pairs()
            | {
                "posterior": sampled,
                "k": K,
                "embed": embedded,
                "drawing": assay.Drawing(),
                "seed": 3,
            }
        ),
        {
            "posterior": POSTERIOR,
            "theta": ARRAY,
            "x": ARRAY,
            "k": COUNT,
            "embed": EMBED,
            "drawing": but(OBJECT, "none"),
            "seed": SEED,
        },
        shapes | {"x": ("x", "embed", "posterior"), "theta": ("theta", "x", "draws")},
    )
    yield _call(
        "Calibration.from_base",
        assay.Calibration.from_base,
        lambda: {
            "z": latents().theta,
            "x": latents().x,
            "base": StandardNormal(M),
            "embed": embedded,
        },
        {"z": ARRAY, "x": ARRAY, "base": but(OBJECT, "none"), "embed": EMBED},
        {"z": ("z", "x", "theta", "base"), "x": ("x", "embed")},
    )
    yield _call(
        "Calibration.drop_invalid",
        assay.Calibration.drop_invalid,
        triples,
        {
            name: but(ARRAY, "nan", "infinity", "minus infinity", "masked nan")
            for name in ("theta", "x", "theta_q")
        },
        shapes | {"theta": ("theta", "x", "theta_q")},
    )
    yield from _methods()
    yield _call(
        "Draws",
        assay.Draws,
        lambda: {"x": x_o(), "theta": draws().theta, "n": S},
        # An embedding may read NaN: whether it is finite is asked when it is tested.
        {
            "x": but(X_O, "nan", "infinity", "minus infinity", "all nan"),
            "theta": but(ARRAY, "none"),
            "n": COUNT,
        },
        {"x": ("x_o", "x")},
    )
    yield _call(
        "Draws without theta",
        assay.Draws,
        lambda: {"x": x_o(), "n": S},
        {"n": COUNT},
    )
    yield _call(
        "Draws with names",
        assay.Draws,
        lambda: {"x": x_o(), "theta": draws().theta, "names": ("mu", "nu"), "layout": None},
        {"names": NAMES, "layout": but(OBJECT, "none")},
    )
    yield _call(
        "draws.subset",
        lambda rows: several().subset(rows),
        lambda: {"rows": [0, 2]},
        {"rows": PLACES},
    )
    yield _call(
        "Drawing",
        assay.Drawing,
        lambda: {"limit": 5.0, "failures": 0.1, "resume": None, "executor": None},
        {
            "limit": NUMBER,
            "failures": but(SHARE, "zero"),
            "executor": but(OBJECT, "none"),
            "resume": but([v for v in OBJECT if v.name != "text"], "none")
            + [v for v in PATH if v.name == "null byte"],
        },
    )
    yield _call(
        "Calibration.of by an executor",
        lambda executor: assay.Calibration.of(
            sampled, **pairs(), drawing=assay.Drawing(executor=executor)
        ),
        lambda: {"executor": None},
        {"executor": values.EXECUTOR},
    )
    yield from _near()


PLACES = values._values(
    none=lambda c: None,
    text=lambda c: "a",
    a_float=lambda c: 1.5,
    floats=lambda c: [0.5, 1.5],
    beyond=lambda c: [0, 10**9],
    far_beyond=lambda c: [0, 2**70],
    far_below=lambda c: [-(10**9)],
    a_short_mask=lambda c: [True, False],
    two_axes=lambda c: [[0, 1], [1, 2]],
    ragged=lambda c: [[0], [1, 2]],
    an_object=lambda c: object(),
    a_class=lambda c: int,
    a_dict=lambda c: {},
    nan=lambda c: float("nan"),
    complex=lambda c: [1j],
    an_empty_list=lambda c: [],
)


def _methods():
    yield _call(
        "calibration.subset",
        lambda rows: calibration().subset(rows),
        lambda: {"rows": list(range(20))},
        {
            "rows": PLACES
            + values._values(
                twice_the_same=lambda c: [*c, 3],
                by_both_ends=lambda c: [*c, 3 - N],
                all_the_same=lambda c: [5] * N,
            )
        },
        {"rows": ("rows",)},
    )
    yield _call(
        "calibration.split",
        lambda **given: calibration().split(**given),
        lambda: {"share": 0.5, "seed": 0},
        {"share": SHARE, "seed": SEED},
    )
    yield _call(
        "calibration.to",
        lambda device: calibration().to(device),
        lambda: {"device": "cpu"},
        {
            "device": [
                *without(OBJECT, "a class"),
                *values._values(
                    unknown=lambda c: "gpu",
                    out_of_reach=lambda c: "cuda:99",
                    meta=lambda c: "meta",
                    a_type=lambda c: torch.float32,
                ),
            ]
        },
    )
    yield _call(
        "calibration.to_latent",
        lambda **given: calibration().to_latent(**given),
        lambda: {"flow": Q, "seed": 0},
        {"flow": OBJECT, "seed": SEED},
    )
    yield _call(
        "calibration.observe",
        lambda draws: calibration().observe(draws),
        lambda: {"draws": draws()},
        {"draws": but(OBJECT, "draws")},
        {"draws": ("draws", "x_o", "theta")},
    )


def _near():
    yield _call(
        "Distance",
        lambda function, **given: assay.Distance(function)(**given),
        lambda: {"function": embedded, **near()},
        {"function": but(FUNCTION, "none"), "x": ARRAY, "x_o": ARRAY},
        {"x": ("x", "function"), "x_o": ("x_o", "function")},
    )
    for kind in (assay.Nearest, assay.Smooth):
        yield _call(
            kind.__name__,
            lambda kind=kind, **given: kind(**given),
            lambda: {"shares": 0.5},
            {
                "shares": values.MANY
                + without(SHARE, "an empty list")
                + values._values(an_empty_list=lambda c: ())
            },
        )
        yield _call(
            f"{kind.__name__}.weights",
            lambda kind=kind, **given: kind().weights(**given),
            near,
            {"x": ARRAY, "x_o": ARRAY},
            {"x": ("x",), "x_o": ("x_o", "x")},
        )
    yield _call(
        "Nearest of a distance",
        assay.Nearest,
        lambda: {"distance": assay.Distance()},
        {"distance": OBJECT},
    )


def _nulls():
    for kind in (assay.Exchange, assay.FreePermutation, assay.KnownBase, assay.LocalExchange):
        yield _call(kind.__name__, kind, lambda: {"n": 9}, {"n": COUNT})
    yield _call(
        "Sequential",
        assay.Sequential,
        lambda: {"n": 9, "enough": 2},
        {"n": COUNT, "enough": COUNT},
    )
    yield _call(
        "LocalExchange near",
        assay.LocalExchange,
        lambda: {"share": 0.2, "distance": assay.Distance()},
        {"share": SHARE, "distance": OBJECT},
    )
    yield _call(
        "Exchange.copies",
        lambda **given: assay.Exchange(9).copies(**given),
        lambda: {"calibration": calibration(), "seed": 1},
        {"calibration": CALIBRATION, "seed": SEED},
    )
    yield _call("UniformRanks", UniformRanks, lambda: {"n": 9}, {"n": COUNT})
    yield _call(
        "Hermite",
        Hermite,
        lambda: {"order": 2, "most": 100},
        {"order": COUNT, "most": AT_MOST},
    )
    for kind in (Fourier, Conditional, Joint):
        yield _call(kind.__name__, kind, lambda: {"n": 9}, {"n": COUNT}, {"n": ("n:", "features")})


def _classifiers():
    yield _call(
        "MLP",
        assay.MLP,
        lambda: {
            "hidden": (4,),
            "epochs": 1,
            "batch": 16,
            "rate": 0.01,
            "decay": 0.1,
            "members": 1,
            "chunk": 5,
        },
        {
            "hidden": without(
                OBJECT, "an empty tuple", "an empty list", "an array", "a generator", "a list"
            )
            + values._values(
                zero=lambda c: (0,),
                floats=lambda c: (4.0,),
                texts=lambda c: ("4",),
                huge=lambda c: (10**12,),
                a_million=lambda c: (4, 10**6),
                too_many=lambda c: (4,) * 10**5,
            ),
            "epochs": COUNT,
            "batch": AT_MOST,
            "rate": NUMBER,
            "decay": but(NUMBER, "zero"),
            "members": COUNT,
            "chunk": but(AT_MOST, "none"),
        },
    )
    yield _call(
        "Ridge",
        assay.Ridge,
        lambda: {"features": None, "penalties": (0.01, 0.1)},
        {
            "features": but(OBJECT, "none"),
            "penalties": values.MANY
            + without(NUMBER, "zero dimensional", "a tensor", "a decimal"),
        },
    )
    yield _call(
        "Sklearn",
        assay.Sklearn,
        lambda: {"estimator": GaussianNB(), "executor": None},
        {"estimator": OBJECT, "executor": but(OBJECT, "none")},
    )
    yield _call(
        "Tuned",
        assay.Tuned,
        lambda: {
            "candidates": (SMALL,),
            "errors": (Shift(),),
            "sizes": (0.5,),
            "repetitions": 1,
            "nulls": 9,
            "seed": 0,
        },
        {
            "candidates": without(OBJECT, "a list"),
            "errors": without(OBJECT, "a list"),
            "sizes": without(NUMBER, "numpy float", "a tensor", "zero dimensional", "a decimal"),
            "repetitions": COUNT,
            "nulls": COUNT,
            "seed": but(without(SEED, "a generator"), "beyond int64"),
        },
    )


def _diagnostics():
    tested = {"calibration": CALIBRATION, "null": NULL, "seed": SEED}
    around = {"where": WHERE}

    def given():
        return {"calibration": calibration(), "null": NULLS, "seed": 1}

    yield _call(
        "lc2st",
        assay.lc2st,
        lambda: given() | {"classifier": SMALL, "statistic": lambda d: (d - 0.5).mean(-1) ** 2},
        tested
        | {
            "classifier": CLASSIFIER,
            "statistic": [
                v for v in OBJECT if v.name not in ("a class", "another class", "a module")
            ],
        },
    )
    for name, classifier in (("trained", SMALL), ("in closed form", QDA())):
        yield _call(
            f"lc2st of a statistic, {name}",
            lambda statistic, classifier=classifier: assay.lc2st(
                calibration(), classifier, NULLS, statistic
            )(draws()),
            lambda: {"statistic": lambda d: (d - 0.5).mean(-1) ** 2},
            {"statistic": values.STATISTIC},
        )
    for name in ("score", "moments", "lpit"):
        call = getattr(assay, name)
        yield _call(name, call, lambda: given() | {"where": assay.Nearest()}, tested | around)
    yield _call(
        "moments of banks",
        assay.moments,
        lambda: given() | {"banks": Hermite(1), "coordinates": None},
        {"banks": but(OBJECT, "a list"), "coordinates": but(OBJECT, "none")},
    )
    yield _call(
        "region",
        assay.region,
        lambda: given() | {"classifier": LDA(), "where": assay.Nearest()},
        tested | around | {"classifier": CLASSIFIER},
    )
    levels = [
        *values.MANY,
        *without(SHARE, "a list", "an empty list", "a dict", "none"),
        *values._values(
            an_empty_list=lambda c: [],
            with_text=lambda c: [0.1, "a"],
            two_axes=lambda c: [[0.1], [0.2]],
        ),
    ]
    yield _call(
        "lhpd",
        assay.lhpd,
        lambda: given() | {"log_q": log_q, "where": assay.Nearest(), "alphas": 0.5},
        tested | around | {"log_q": but(FUNCTION, "none"), "alphas": levels},
    )
    yield _call("lpit at", assay.lpit, lambda: given() | {"alphas": 0.5}, {"alphas": levels})
    quantities = but(OBJECT, "none") + values._values(
        of_text=lambda c: {"a": "b"},
        of_arrays=lambda c: {"a": torch.zeros(5)},
        of_other_length=lambda c: {"a": Values(torch.zeros(5), torch.zeros(5, 3))},
        of_a_class=lambda c: {"a": dict},
        without_a_name=lambda c: {"": log_q},
        with_names_that_look_alike=lambda c: {"a": log_q, " a": log_q},
        named_none=lambda c: {None: log_q},
    )
    yield _call(
        "sbc",
        assay.sbc,
        lambda: given() | {"quantities": {"log q": log_q}},
        tested | {"quantities": quantities},
        {"quantities": ("quantities", "a:")},
    )
    quantity = [v for v in FUNCTION if v.name not in ("none",)]
    yield _call(
        "sbc of a function",
        lambda function, **given: assay.sbc(quantities={"own": function}, **given),
        lambda: given() | {"function": log_q},
        {"function": quantity},
        {"function": ("own", "quantities")},
    )
    yield _call(
        "coverage",
        assay.coverage,
        lambda: given() | {"log_q": log_q, "levels": 0.5},
        tested | {"log_q": but(FUNCTION, "none"), "levels": levels},
    )
    yield _call(
        "tarp",
        assay.tarp,
        lambda: given() | {"references": calibration().x, "metric": euclidean, "levels": 0.5},
        tested
        | {
            "references": [
                v for v in ARRAY if v.name not in ("a function", "a class", "a module")
            ],
            "metric": without(FUNCTION, "none"),
            "levels": levels,
        },
        {"references": ("references", "metric", "distance")},
    )
    yield _call(
        "divergence",
        assay.divergence,
        lambda: given() | {"classifier": SMALL, "share": 0.5},
        tested | {"classifier": CLASSIFIER, "share": SHARE},
    )
    yield _call(
        "c2st",
        assay.c2st,
        lambda: {
            "p": calibration().theta,
            "q": calibration().theta_q[:, 0],
            "classifier": SMALL,
            "null": 3,
            "evaluation": None,
            "seed": 0,
        },
        {
            "p": ARRAY,
            "q": ARRAY,
            "classifier": CLASSIFIER,
            "null": NULL,
            "evaluation": but(OBJECT, "none"),
            "seed": SEED,
        },
        {"p": ("p", "q"), "q": ("q", "p")},
    )
    yield _call(
        "health",
        assay.health,
        lambda: given() | {"classifier": SMALL, "folds": 2},
        {name: refused(kinds) for name, kinds in tested.items()}
        | {"classifier": refused(CLASSIFIER), "folds": refused(COUNT)},
        slow=True,
    )


def _asked():
    """Local tests that are asked."""
    for name in ("lc2st", "qda", "score", "moments", "region", "lhpd", "lpit"):
        yield _call(
            f"{name} at x_o",
            lambda draws, name=name: fitted(name)(draws),
            lambda: {"draws": draws()},
            {
                "draws": but(
                    OBJECT,
                    "draws",
                    *(("an array", "a tensor") if name not in ("lc2st", "qda", "region") else ()),
                )
            },
            {"draws": ("draws", "x_o", "theta_o")},
        )
        yield _call(
            f"{name} on another calibration",
            lambda calibration, name=name: fitted(name).refit_on(calibration),
            lambda: {"calibration": calibration()},
            {"calibration": CALIBRATION},
        )
    for name in ("latent", "moments of latents"):
        yield _call(
            f"{name} at x_o alone",
            lambda x_o, name=name: fitted(name)(x_o),
            lambda: {"x_o": x_o()},
            {"x_o": X_O},
            {"x_o": ("x_o",)},
        )


def _interpreted():
    yield _call(
        "effects",
        assay.effects,
        lambda: {
            "result": result("lc2st"),
            "names": ("mu", "nu"),
            "size": 50,
            "exponent": 1.0,
            "alpha": 0.1,
        },
        {
            "result": OBJECT,
            "names": NAMES,
            "size": but(OPTIONAL_COUNT, "zero", "minus one"),
            "exponent": but(NUMBER, "zero"),
            "alpha": LEVEL,
        },
    )
    yield _call(
        "power",
        assay.power,
        lambda: {
            "test": fitted("moments of latents"),
            "draws": assay.Draws(x_o()),
            "errors": (Shift(0),),
            "repetitions": 8,
            "seed": 0,
            "alpha": 0.1,
            "target": 0.8,
        },
        {
            "test": OBJECT,
            "draws": but(OBJECT, "draws", "an array", "a tensor"),
            "errors": without(OBJECT, "a list"),
            "repetitions": OPTIONAL_COUNT,
            "seed": SEED,
            "alpha": LEVEL,
            "target": LEVEL,
        },
        {"draws": ("draws", "x_o")},
    )
    yield _call(
        "pp_curve",
        assay.pp_curve,
        lambda: {"result": result("lc2st"), "alpha": 0.1},
        {"result": OBJECT, "alpha": LEVEL},
    )
    yield _call(
        "predictive",
        assay.predictive,
        lambda: {
            "theta_o": draws().theta,
            "simulator": simulated,
            "x_o": x_o(),
            "n": 19,
            "embed": embedded,
            "seed": 0,
        },
        {
            "theta_o": ARRAY,
            "simulator": FUNCTION,
            "x_o": ARRAY + values._values(several=lambda c: torch.stack([c, c, c])),
            "n": COUNT,
            "embed": EMBED,
            "seed": SEED,
        },
        {"theta_o": ("theta_o", "simulator"), "x_o": ("x_o", "simulator", "embed")},
    )
    yield _call(
        "posterior_sbc",
        assay.posterior_sbc,
        lambda: {
            "sample": lambda xs, n: xs.sum(0) / 3 + torch.randn(n, M),
            "simulator": simulated,
            "x_o": x_o(),
            "n": 20,
            "draws": 4,
            "null": 9,
            "executor": None,
            "seed": 0,
        },
        {
            "sample": FUNCTION,
            "simulator": FUNCTION,
            "x_o": ARRAY,
            "n": COUNT,
            "draws": COUNT,
            "null": NULL,
            "executor": but(OBJECT, "none"),
            "seed": SEED,
        },
        {"sample": ("sample", "posterior"), "x_o": ("x_o", "simulator", "posterior")},
    )
    yield _call(
        "trust_map",
        assay.trust_map,
        lambda: {
            "test": fitted("moments of latents"),
            "draws": assay.Draws(several().x),
            "relevant": 0.5,
            "errors": (Shift(0),),
            "alpha": 0.1,
            "seed": 0,
            "executor": None,
        },
        {
            "test": OBJECT,
            "draws": without(OBJECT, "an array", "a tensor"),
            "relevant": refused(NUMBER),
            "errors": without(OBJECT, "a list"),
            "alpha": refused(LEVEL),
            "seed": refused(SEED),
            "executor": but(OBJECT, "none"),
        },
        {"draws": ("draws", "x_o")},
        slow=True,
    )
    for kind in (Shift, Wide, Narrow):
        yield _call(
            kind.__name__, kind, lambda: {"along": 1}, {"along": but(COUNT, "none", "zero")}
        )


def _checks():
    suite = assay.Suite.quick(null=19, pairs=50, draws=50)
    yield _call(
        "Suite",
        assay.Suite,
        lambda: {
            "alpha": 0.1,
            "null": 19,
            "classifier": SMALL,
            "classifier_null": 19,
            "k": 4,
            "draws": 20,
            "pairs": 20,
            "context": 2,
            "relevant": 0.5,
        },
        {
            "alpha": LEVEL,
            "null": COUNT,
            "classifier": but(OBJECT, "none"),
            "classifier_null": COUNT,
            "k": COUNT,
            "draws": COUNT,
            "pairs": AT_MOST,
            "context": but(AT_MOST, "zero"),
            "relevant": NUMBER,
        },
    )
    yield _call(
        "check",
        assay.check,
        lambda: (
            pairs()
            | {
                "posterior": sampled,
                "x_o": x_o(),
                "suite": suite,
                "names": ("mu", "nu"),
                "labels": ("here",),
                "embed": embedded,
                "seed": 0,
                "drawing": assay.Drawing(),
            }
        ),
        {
            "posterior": [v for v in POSTERIOR if v.expected != "same"],
            "theta": [v for v in ARRAY if v.expected == "refused"],
            "x": [v for v in ARRAY if v.expected == "refused"],
            "x_o": [v for v in ARRAY if v.expected == "refused" and v.name != "one axis more"],
            "suite": without(OBJECT, "none", "a suite"),
            "names": [v for v in NAMES if v.expected != "same"],
            "labels": [
                v
                for v in NAMES
                if v.expected != "same"
                and v.name
                not in (
                    "twice the same",
                    "one text",
                    "true",
                    "a number",
                    "nothing in them",
                    "empty names",
                    "too few",
                    "bytes",
                )
            ],
            "embed": [v for v in EMBED if v.expected == "refused"],
            "seed": refused(SEED),
            "drawing": without(OBJECT, "none"),
        },
        {
            "theta": ("theta", "x"),
            "x": ("x", "embed", "posterior"),
            "x_o": ("x_o", "embed"),
        },
        slow=True,
    )
    yield _call(
        "check with a simulator",
        assay.check,
        lambda: {
            "posterior": sampled,
            "simulator": simulated,
            "prior": prior(),
            "x_o": x_o(),
            "suite": suite,
            "simulations": 100,
            "executor": None,
            "resume": None,
        },
        {
            "simulator": [v for v in FUNCTION if v.expected != "same"],
            "prior": OBJECT,
            "simulations": [v for v in COUNT if v.expected == "refused"],
            "executor": [v for v in OBJECT if v.name != "none"],
            "resume": [v for v in OBJECT if v.name not in ("none", "text", "empty text")],
        },
        slow=True,
    )
    yield _call(
        "zoom",
        assay.zoom,
        lambda: {
            "model": Model(
                prior(), lambda theta, g: theta + torch.randn(theta.shape, generator=g)
            ),
            "sample": lambda x, k, g: Q.draw(x, k, g),
            "proposal": prior(),
            "n": 20,
            "k": 4,
            "seed": 0,
        },
        {
            "model": OBJECT,
            "sample": without(FUNCTION, "returns what needs a gradient"),
            "proposal": OBJECT,
            "n": COUNT,
            "k": COUNT,
            "seed": SEED,
        },
        {"model": ("model", "prior")},
    )
    yield _call(
        "Around",
        Around,
        lambda: {"theta": draws().theta, "prior": prior(), "times": 2.0, "share": 0.1},
        {"theta": ARRAY, "prior": OBJECT, "times": NUMBER, "share": but(SHARE, "zero")},
    )


def _files():
    yield _call(
        "save",
        assay.save,
        lambda: {"obj": draws(), "path": folder() / "a.npz"},
        {"obj": without(OBJECT, "draws", "a suite"), "path": PATH},
        also=(OSError,),
    )
    yield _call(
        "load",
        assay.load,
        lambda: {"path": folder() / "a.npz"},
        {"path": PATH},
        also=(OSError,),
    )
    yield _call(
        "report",
        lambda **given: checked().report(**given),
        lambda: {"path": folder() / "a.html", "title": "a"},
        {"path": PATH},
        also=(OSError,),
    )


def _drawn(make, more):
    arrays = {"marks", "values"} & set(more)
    given = {"result": make(), "ax": None} | more | {k: torch.tensor(more[k]) for k in arrays}
    return given | ({"coordinates": torch.zeros(30)} if "coordinates" in more else {})


def _plots():
    drawn = {
        "pp": (lambda: pictures.local(), {}),
        "pairs": (lambda: pictures.local(), {"marks": [0.4, -0.3], "names": ("mu", "nu")}),
        "pvalues": (lambda: pictures.many(4), {}),
        "null_histogram": (lambda: pictures.local(), {}),
        "rank_histogram": (lambda: pictures.sbc(), {"quantity": "theta[0]"}),
        "rank_ecdf": (lambda: pictures.sbc(), {}),
        "rank_difference": (lambda: pictures.sbc(), {}),
        "coverage": (lambda: pictures.covered(), {}),
        "levels": (lambda: pictures.levels(), {}),
        "effects": (lambda: pictures.effects(), {}),
        "shares": (lambda: pictures.effects(), {}),
        "correlations": (lambda: pictures.effects(), {}),
        "near": (lambda: pictures.effects(), {}),
        "predictive": (lambda: pictures.predicted(), {}),
        "reliability": (lambda: pictures.health(), {}),
        "roc": (lambda: pictures.health(), {}),
        "power": (lambda: pictures.power(), {"error": "shift"}),
        "trust_map": (lambda: pictures.trust(), {"coordinates": None}),
        "sweep": (lambda: pictures.many(4), {"values": [1.0, 2.0, 3.0, 4.0], "label": "a"}),
    }
    levels = ("pp", "pvalues", "null_histogram", "rank_histogram", "rank_ecdf", "rank_difference")
    levels += ("coverage", "levels", "predictive", "sweep")
    axes = without(but(OBJECT, "none"), "true")
    roles = {
        "names": NAMES,
        "marks": [
            v for v in ARRAY if v.expected == "refused" and v.name not in ("none", "empty dict")
        ],
        "quantity": [v for v in OBJECT if v.name != "none"],
        "error": [v for v in OBJECT if v.name != "none"],
        "coordinates": [v for v in ARRAY if v.expected == "refused" and v.name not in ("none",)],
        "values": [v for v in ARRAY if v.expected == "refused"],
    }
    for name, (make, more) in drawn.items():
        own = {key: roles[key] for key in more if key in roles}
        own |= {"alpha": LEVEL} if name in levels else {}
        given = partial(_drawn, make, {"alpha": 0.1} | more if "alpha" in own else more)
        yield _call(
            f"plots.{name}",
            getattr(plots, name),
            given,
            {"result": OBJECT, "ax": axes} | own,
            {"error": ("error", "one of")},
            also=(KeyError,),
        )
    for name in ("recovery", "contraction"):
        yield _call(
            f"plots.{name}",
            getattr(plots, name),
            lambda: {"calibration": calibration(), "names": ("mu", "nu"), "ax": None},
            {"calibration": CALIBRATION, "names": NAMES, "ax": axes},
        )
    yield _call(
        "plots.summary",
        plots.summary,
        lambda: {"check": checked(), "which": 0},
        {"check": OBJECT, "which": without(WHICH, "beyond int64")},
        {"check": ("check", "result"), "which": ("which", "one of", "rows")},
        also=(KeyError, IndexError),
    )


WHICH = values._values(
    none=lambda c: None,
    beyond=lambda c: 10**9,
    beyond_int64=lambda c: 2**70,
    below=lambda c: -100,
    unknown=lambda c: "unknown",
    a_half=lambda c: 0.5,
    a_float=lambda c: 0.0,
    nan=lambda c: float("nan"),
    a_list=lambda c: [0],
    a_slice=lambda c: slice(0, 1),
    a_tuple=lambda c: (0, 0),
    an_object=lambda c: object(),
    a_class=lambda c: int,
    an_array=lambda c: torch.tensor([0, 1]),
)


def _results():
    found = {
        "lc2st": lambda: result("lc2st", many=True),
        "score": lambda: result("score", many=True),
        "sbc": lambda: assay.sbc(calibration(), null=9),
        "coverage": lambda: assay.coverage(calibration(), null=9),
        "effects": lambda: pictures.effects(),
    }
    for name, make in found.items():
        yield _call(
            f"{name}[...]",
            lambda which, make=make: make()[which],
            lambda: {"which": 0},
            {"which": WHICH},
            {"which": ("which", "one of", "rows", "result")},
            also=(KeyError, IndexError),
        )


def _tasks():
    yield _call(
        "tasks.task",
        tasks.task,
        lambda: {"name": "two_moons"},
        {"name": without(OBJECT, "text") + values._values(unknown=lambda c: "three_moons")},
    )
    yield _call(
        "ConjugateGaussian",
        tasks.ConjugateGaussian,
        lambda: {"size": 3, "seen": 5, "nuisance": 1, "noise": 1.0},
        {
            "size": COUNT,
            "seen": COUNT,
            "nuisance": but(COUNT, "zero"),
            "noise": NUMBER,
        },
    )
    yield _call("StateSpace", tasks.StateSpace, lambda: {"d": 4}, {"d": COUNT})
    yield _call(
        "task.simulate",
        lambda **given: task().simulate(**given),
        lambda: {"theta": torch.zeros(7, 3), "generator": generator()},
        {"theta": but(ARRAY, "truth values"), "generator": OBJECT},
    )
    yield _call(
        "task.joint",
        lambda **given: task().joint(**given),
        lambda: {"n": 5, "generator": generator()},
        {"n": COUNT, "generator": OBJECT},
    )
    yield _call(
        "task.posterior",
        lambda **given: task().posterior(**given),
        lambda: {"x": torch.zeros(5), "n": 5, "generator": generator()},
        {"x": ARRAY, "n": COUNT},
    )
    yield _call(
        "task.log_posterior",
        lambda **given: task().log_posterior(**given),
        lambda: {"theta": torch.zeros(7, 3), "x": torch.zeros(7, 5)},
        {"theta": ARRAY, "x": ARRAY},
        {"theta": ("theta", "x")},
    )
    yield _call(
        "Perturbed",
        tasks.Perturbed,
        lambda: {"task": task(), "error": Shift(0), "size": 0.5, "region": None},
        {
            "task": OBJECT,
            "error": OBJECT,
            "size": but(NUMBER, "zero"),
            "region": but(OBJECT, "none", "a class", "another class", "a module"),
        },
    )


def _compat():
    from assay.compat.sbi import LC2ST

    def trained(**given):
        test = LC2ST(**given, classifier_kwargs={"hidden_layer_sizes": (4,)})
        test.train_on_observed_data().train_under_null_hypothesis(verbosity=0)
        return test.p_value(draws().theta, x_o())

    yield _call(
        "compat.sbi.LC2ST",
        trained,
        lambda: {
            "prior_samples": calibration().theta,
            "xs": calibration().x,
            "posterior_samples": calibration().theta_q[:, 0],
            "num_trials_null": 3,
            "seed": 1,
        },
        {
            "num_trials_null": [v for v in COUNT if v.expected == "refused"],
        },
        {"num_trials_null": ("num_trials_null", "n:")},
        slow=True,
    )


PARTS = (
    _samples,
    _nulls,
    _classifiers,
    _diagnostics,
    _asked,
    _interpreted,
    _checks,
    _files,
    _plots,
    _results,
    _tasks,
    _compat,
)


def cases():
    """All cases, each with a name of its own."""
    return {case.name: case for part in PARTS for call in part() for case in call.cases()}
