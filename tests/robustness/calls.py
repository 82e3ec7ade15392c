"""Public calls, with clean arguments and the values that replace them.

A new call is one entry of CALLS: its name and those of its arguments, of which ARGUMENTS knows
what is clean, and what kinds of values replace it.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from sklearn.naive_bayes import GaussianNB

import assay
from assay.average.ranks import UniformRanks, Values
from assay.classifiers.features import Conditional, Joint
from assay.data.posterior import StandardNormal
from assay.data.proposal import Around, Model
from tests.conftest import Gaussian
from tests.plots import cases as pictures

from .values import (
    ARRAY,
    COUNT,
    EXECUTOR,
    FUNCTION,
    LEVELS,
    MANY,
    NAMES,
    NUMBER,
    OBJECT,
    PATH,
    ROWS,
    SEED,
    SHARE,
    STATISTIC,
    WHICH,
    Value,
    but,
    constants,
    made,
    only,
    without,
)

N, M, K, S = 60, 2, 5, 40
Q = Gaussian()
SMALL = assay.MLP((4,), epochs=1)
NULLS = 19


@dataclass(frozen=True)
class Argument:
    """An argument: a function that makes a clean one, what replaces it, and other names for it.

    Other names are of what it must agree with, or is made of it; a message may use them.
    """

    clean: Callable[[], Any]
    values: list[Value] | tuple[()] = ()
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Call:
    """A public call: its function, and its arguments by name.

    Errors of the kinds in `also` are clear, too; an answer of a slow one takes seconds.
    """

    name: str
    function: Callable[..., Any]
    arguments: dict[str, Argument]
    also: tuple[type[Exception], ...] = ()
    slow: bool = False

    def given(self):
        return {name: argument.clean() for name, argument in self.arguments.items()}

    @property
    def replaced(self):
        return [name for name, argument in self.arguments.items() if argument.values]


@dataclass(frozen=True)
class Case:
    """A call with some of its arguments replaced."""

    call: Call
    values: dict[str, Value]

    @property
    def name(self):
        each = (f"{name}={value.name}" for name, value in self.values.items())
        return f"{self.call.name}: {', '.join(each)}"

    @property
    def names(self):
        """Words of which a clear message holds one."""
        each = ((name, *self.call.arguments[name].others) for name in self.values)
        return [word for words in each for word in words]

    @property
    def errors(self):
        return (ValueError, TypeError, *self.call.also)

    @property
    def expected(self):
        """One value that is refused spoils all; all that are the same are."""
        kinds = {value.expected for value in self.values.values()}
        return "refused" if "refused" in kinds else "either" if "either" in kinds else "same"

    @property
    def comparable(self):
        """Whether each value stands for a clean one."""
        return all(value.same_as is not None for value in self.values.values())

    def run(self):
        return self._run("make")

    def run_clean(self):
        """The same with the clean values that the odd ones stand for."""
        return self._run("same_as")

    def _run(self, how):
        given = self.call.given()
        odd = {name: getattr(value, how)(given[name]) for name, value in self.values.items()}
        return self.call.function(**given | odd)


def call(name, arguments, function=None, /, *, also=(), slow=False, **own):
    """A public call; by default of what has its name.

    Arguments are those of ARGUMENTS, or `own`: a list replaces the values of one.
    """
    each = {key: ARGUMENTS.get(key) for key in arguments.split()} | {
        key: replace(ARGUMENTS[key], values=one) if isinstance(one, list) else one
        for key, one in own.items()
    }
    function = function or attrgetter(name.partition(" ")[0])(assay)
    return Call(name, function, each, also, slow)


# Clean arguments.


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


def x_o():
    return torch.tensor([0.1, -0.2])


def sample(x, n):
    return Q.sample(x, n)


def simulate(theta):
    return theta + torch.randn(theta.shape)


def prior():
    return torch.distributions.MultivariateNormal(torch.zeros(M), torch.eye(M))


def model():
    return Model(prior(), lambda theta, g: theta + torch.randn(theta.shape, generator=g))


def log_q(theta, x):
    return -(theta - x / 2).square().sum(-1)


def double(x):
    return 2 * x


def euclidean(theta, references):
    return (theta - references).norm(dim=-1)


def statistic(d):
    return (d - 0.5).mean(-1) ** 2


def file(name):
    return Path(tempfile.mkdtemp()) / name


@cache
def fitted(name):
    """Local tests that can be called."""
    make = {
        "score": lambda: assay.score(calibration(), null=NULLS),
        "score of latents": lambda: assay.score(latents(), null=NULLS),
        "lc2st": lambda: assay.lc2st(calibration(), SMALL, NULLS),
        "lc2st of latents": lambda: assay.lc2st(latents(), SMALL, NULLS),
        "lhpd": lambda: assay.lhpd(calibration(), log_q, null=NULLS),
        "lpit": lambda: assay.lpit(calibration(), null=NULLS),
    }
    return make[name]()


@cache
def found(name):
    """What they find at several observations; what other calls find."""
    other = {
        "bounds": lambda: pictures.bounds(sizes=(1.0, 1.0, 1.0)),
        "sbc": lambda: assay.sbc(calibration(), null=NULLS),
        "coverage": lambda: assay.coverage(calibration(), null=NULLS),
        "check": lambda: pictures.check(classifier=False),
    }
    return other[name]() if name in other else fitted(name)(several())


def method(name, attribute):
    """A method of a result, which is made when it is called."""
    return lambda *given, **more: getattr(found(name), attribute)(*given, **more)


# What is clean, what replaces it, and other names for it, by the names of arguments.

OPTIONAL = but(OBJECT, "none")
AT_MOST = but(COUNT, "a hundred million")  # more than there is
NULL = [*OPTIONAL, *only(COUNT, "same"), *(v for v in COUNT if "zero" in v.name or "64" in v.name)]
NEAR = [*without(OPTIONAL, "a number"), *(v for v in SHARE[-10:] if v.name != "a list")]
EMBED = but(without(FUNCTION, "returns other shape"), "none")
ARGUMENTS = {
    "theta": Argument(lambda: calibration().theta, ARRAY, ("x", "theta_q", "draws")),
    "x": Argument(lambda: calibration().x, ARRAY, ("embed", "posterior", "function")),
    "theta_q": Argument(lambda: calibration().theta_q, ARRAY),
    "z": Argument(lambda: latents().theta, ARRAY, ("x", "theta", "base")),
    "x_o": Argument(x_o, ARRAY, ("x", "embed", "function", "simulator")),
    "theta_o": Argument(lambda: draws().theta, ARRAY, ("simulator",)),
    "p": Argument(lambda: calibration().theta, ARRAY, ("q",)),
    "q": Argument(lambda: calibration().theta_q[:, 0], ARRAY, ("p",)),
    "calibration": Argument(calibration, OBJECT),
    "draws": Argument(draws, but(OBJECT, "draws"), ("x_o", "theta")),
    "posterior": Argument(lambda: sample, FUNCTION),
    "simulator": Argument(lambda: simulate, FUNCTION),
    "embed": Argument(lambda: double, EMBED),
    "log_q": Argument(lambda: log_q, but(FUNCTION, "none")),
    "statistic": Argument(lambda: statistic, STATISTIC),
    "prior": Argument(prior, OBJECT),
    "near": Argument(lambda: 0.5, NEAR),
    "null": Argument(lambda: NULLS, NULL),
    "classifier": Argument(lambda: SMALL, OPTIONAL),
    "drawing": Argument(assay.Drawing, OPTIONAL),
    "executor": Argument(lambda: None, EXECUTOR),
    "resume": Argument(lambda: None, but(without(OBJECT, "text", "a number as text"), "none")),
    "layout": Argument(lambda: None, OPTIONAL),
    "names": Argument(lambda: ("mu", "nu"), NAMES),
    "rows": Argument(lambda: [0, 2], ROWS),
    "which": Argument(lambda: 0, WHICH, ("one of", "rows", "result")),
    "path": Argument(lambda: file("a.npz"), PATH),
    "n": Argument(lambda: 9, COUNT, ("features",)),
    "k": Argument(lambda: K, COUNT),
    "share": Argument(lambda: 0.5, SHARE),
    "alpha": Argument(lambda: 0.1, SHARE),
    "alphas": Argument(lambda: 0.5, LEVELS),
    "levels": Argument(lambda: 0.5, LEVELS),
    "tolerance": Argument(lambda: 0.5, NUMBER),
    "seed": Argument(lambda: 0, SEED),
}
# Arguments of a check that makes it quick.
QUICK = {
    "draws": Argument(lambda: 4, COUNT),
    "nulls": Argument(lambda: NULLS, COUNT),
    "classifier": Argument(lambda: None, OPTIONAL),
}


def of(value, values=(), *others):
    """An argument that is always the same."""
    return Argument(lambda: value, values, others)


CALLS = [
    # Data.
    call("Calibration", "theta x theta_q embed"),
    call(
        "Calibration with names",
        "theta x theta_q names layout",
        remarks=of((), but(without(OBJECT, "a function"), "an empty tuple")),
    ),
    call(
        "Calibration with weights",
        "theta x theta_q",
        weights=of(torch.ones(N), but(ARRAY, "none")),
        plain_draws=Argument(lambda: calibration().theta_q, but(ARRAY, "none")),
    ),
    call("Calibration.of", "posterior theta x k embed drawing seed"),
    call(
        "Calibration.of by an executor",
        "executor",
        lambda executor: assay.Calibration.of(
            sample, calibration().theta, calibration().x, drawing=assay.Drawing(executor=executor)
        ),
    ),
    call("Calibration.from_base", "z x embed", base=of(StandardNormal(M), OPTIONAL)),
    call(
        "Calibration.drop_invalid",
        "",
        **dict.fromkeys(
            ("theta", "x", "theta_q"),
            but(ARRAY, "nan in it", "infinity in it", "minus infinity in it", "masked nan"),
        ),
    ),
    call(
        "calibration.subset",
        "",
        lambda rows: calibration().subset(rows),
        rows=[
            *ROWS,
            *made(twice_the_same=lambda c: [*c, 2], by_both_ends=lambda c: [*c, 2 - N]),
            *constants(all_the_same=[5] * N),
        ],
    ),
    call(
        "calibration.to",
        "",
        lambda device: calibration().to(device),
        device=of(
            "cpu",
            without(OBJECT, "its class")
            + constants(unknown="gpu", out_of_reach="cuda:99", meta="meta", a_type=torch.float32),
        ),
    ),
    call(
        "calibration.to_latent",
        "seed",
        lambda **given: calibration().to_latent(**given),
        flow=of(Q, OBJECT),
    ),
    call("calibration.observe", "draws", lambda draws: calibration().observe(draws)),
    call(
        "Draws",
        "n",
        # An embedding may read NaN: whether it is finite is asked when it is tested.
        x=Argument(
            x_o,
            but(
                ARRAY,
                *(
                    "three axes more",
                    "nan",
                    "infinity",
                    "true",
                    "numpy true",
                    "nan in it",
                    "a dict",
                ),
                *("infinity in it", "minus infinity in it", "all nan"),
            ),
            ("x_o",),
        ),
        theta=Argument(lambda: draws().theta, but(ARRAY, "none")),
    ),
    call("Draws without theta", "n", x=Argument(x_o)),
    call(
        "Draws with names", "names layout", x=Argument(x_o), theta=Argument(lambda: draws().theta)
    ),
    call(
        "Drawing",
        "resume executor",
        limit=of(5.0, NUMBER),
        failures=of(0.1, but(SHARE, "zero")),
        executor=OPTIONAL,
    ),
    call(
        "zoom",
        "n k seed",
        model=Argument(model, OBJECT, ("prior",)),
        sample=of(
            lambda x, k, g: Q.draw(x, k, g), without(FUNCTION, "returns what needs a gradient")
        ),
        proposal=Argument(prior, OBJECT),
        n=of(20, COUNT),
    ),
    call(
        "Around",
        "prior",
        Around,
        theta=Argument(lambda: draws().theta, ARRAY),
        times=of(2.0, NUMBER),
        share=but(SHARE, "zero"),
    ),
    # What is near.
    call(
        "Distance",
        "x",
        lambda function, x, x_o: assay.Distance(function)(x, x_o),
        function=of(double, but(FUNCTION, "none")),
        x_o=Argument(lambda: several().x, ARRAY, ("x", "function")),
    ),
    call("Nearest", "", share=but(SHARE, "none"), distance=of(assay.Distance(), OPTIONAL)),
    call(
        "Nearest.inside",
        "x",
        lambda **given: assay.Nearest().inside(**given),
        x_o=Argument(lambda: several().x, ARRAY, ("x",)),
    ),
    # Nulls and classifiers.
    *(call(name, "n") for name in ("Exchange", "FreePermutation", "KnownBase")),
    call("LocalExchange", "n", near=of(assay.Nearest(), OBJECT)),
    call("UniformRanks", "n", UniformRanks),
    call("Exchange.copies", "calibration seed", lambda **given: assay.Exchange(9).copies(**given)),
    *(call(kind.__name__, "n", kind) for kind in (Conditional, Joint)),
    call(
        "MLP",
        "",
        hidden=of(
            (4,),
            [
                *without(OBJECT, "a number"),
                *constants(zero=(0,), floats=(4.0,), texts=("4",), huge=(10**12,)),
                *constants(a_million=(4, 10**6), too_many=(4,) * 10**5),
            ],
        ),
        epochs=of(1, COUNT),
        batch=of(16, AT_MOST),
        rate=of(0.01, NUMBER),
        decay=of(0.1, but(NUMBER, "zero")),
        members=of(1, COUNT),
        chunk=of(5, but(AT_MOST, "none")),
    ),
    call(
        "Ridge",
        "",
        features=of(None, but(OBJECT, "none")),
        penalties=of((0.01, 0.1), MANY + only(NUMBER)),
    ),
    call("Sklearn", "", estimator=of(GaussianNB(), OBJECT), executor=OPTIONAL),
    # Tests.
    call("score", "calibration near null seed"),
    call(
        "lc2st",
        "calibration classifier null seed",
        statistic=without(OBJECT, "its class", "a module", "a function"),
    ),
    *(
        call(
            f"lc2st of a statistic, {name}",
            "statistic",
            partial(
                lambda recipe, statistic: assay.lc2st(calibration(), recipe, NULLS, statistic)(
                    draws()
                ),
                recipe,
            ),
        )
        for name, recipe in (("trained", SMALL), ("in closed form", assay.Ridge((Joint(4),))))
    ),
    call("lhpd", "calibration log_q near null alphas seed"),
    call("lpit", "calibration near null alphas seed"),
    call(
        "sbc",
        "calibration null seed",
        quantities=of(
            {"log q": log_q},
            [
                *but(OBJECT, "none"),
                *constants(of_text={"a": "b"}, of_arrays={"a": torch.zeros(5)}),
                *constants(of_a_class={"a": dict}, without_a_name={"": log_q}),
                *constants(named_none={None: log_q}, named_alike={"a": log_q, " a": log_q}),
                *constants(of_other_length={"a": Values(torch.zeros(5), torch.zeros(5, 3))}),
            ],
            "a:",
        ),
    ),
    call(
        "sbc of a function",
        "",
        lambda function: assay.sbc(calibration(), {"own": function}, NULLS),
        function=of(log_q, without(FUNCTION, "none"), "own", "quantities"),
    ),
    call("coverage", "calibration log_q levels null seed"),
    call(
        "tarp",
        "calibration levels null seed",
        references=Argument(
            lambda: calibration().x,
            without(ARRAY, "a function", "a class", "a module"),
            ("metric", "distance"),
        ),
        metric=of(euclidean, without(FUNCTION, "none")),
    ),
    call(
        "c2st",
        "p q classifier seed",
        null=Argument(lambda: 3, NULL),
        evaluation=of(None, OPTIONAL),
    ),
    # Tests at observations.
    *(
        call(
            f"{name} at x_o",
            "",
            lambda draws, name=name: fitted(name)(draws),
            draws=but(OBJECT, *("draws", "an array", "a tensor")[: 1 if name == "lc2st" else 3]),
        )
        for name in ("score", "lc2st", "lhpd", "lpit")
    ),
    *(
        call(f"{name} at x_o alone", "x_o", lambda x_o, name=name: fitted(name)(x_o))
        for name in ("lc2st of latents", "lpit")
    ),
    call(
        "score.pvalues",
        "",
        lambda x_o: fitted("score of latents").pvalues(x_o),
        x_o=Argument(lambda: several().x, ARRAY),
    ),
    call(
        "lc2st on another calibration",
        "calibration",
        lambda calibration: fitted("lc2st").refit_on(calibration),
    ),
    call("lc2st.quality", "", lambda folds: fitted("lc2st").quality(folds), folds=of(2, COUNT)),
    # Answers.
    call("typical", "x x_o embed seed"),
    call("bounds", "calibration x_o near seed"),
    call("bounds.within", "tolerance", method("bounds", "within")),
    call("bounds.pairs_for", "tolerance", method("bounds", "pairs_for")),
    call(
        "predictive",
        "theta_o simulator embed seed",
        x_o=[*ARRAY, *made(several=lambda c: torch.stack([c, c, c]))],
        n=of(19, COUNT),
    ),
    # Checks.
    call(
        "check",
        "posterior theta x x_o names alpha tolerance near embed drawing seed",
        # Of one observation; so these are one name.
        labels=of(
            ("here",),
            but(NAMES, "text", "a number as text", "recursive", "one text", "twice the same"),
        ),
        slow=True,
        **QUICK,
    ),
    call(
        "check with a simulator",
        "posterior simulator prior x_o executor resume",
        simulations=of(60, COUNT),
        slow=True,
        **QUICK,
    ),
    # Results.
    *(
        call(f"{name}[...]", "which", method(name, "__getitem__"), also=(KeyError, IndexError))
        for name in ("score", "lc2st", "sbc", "coverage")
    ),
    *(
        call(f"check.{name}", "which", method("check", name), also=(KeyError, IndexError))
        for name in ("headline", "wrong", "plot")
    ),
    call("lc2st.pp_curve", "alpha", method("lc2st", "pp_curve")),
    call("lpit.bands", "alpha", method("lpit", "bands")),
    call("sbc.ecdf", "alpha", method("sbc", "ecdf")),
    call("sbc.histogram", "alpha", method("sbc", "histogram")),
    call("coverage.curve", "alpha", method("coverage", "curve")),
    # Files.
    call("save", "path", obj=Argument(draws, without(OBJECT, "draws")), also=(OSError,)),
    call("load", "path", also=(OSError,)),
    call(
        "check.report",
        "",
        method("check", "report"),
        path=Argument(lambda: file("a.html"), PATH),
        title=of("a", but(OBJECT, "none", "text", "a number as text", "empty text")),
        also=(OSError,),
    ),
]


# Pictures, each with what it draws, and with what else may be given.

BOUNDS, SBC, MANY_X = pictures.bounds, pictures.sbc, partial(pictures.many, 4)
PICTURES = [
    *((name, pictures.local, "alpha") for name in ("pp", "null_histogram")),
    *((name, SBC, "alpha") for name in ("rank_histogram", "rank_ecdf", "rank_difference")),
    *((name, BOUNDS, "which") for name in ("near", "correlations")),
    *((name, pictures.quality, "") for name in ("reliability", "roc")),
    *(("levels", pictures.levels, "alpha"), ("coverage", pictures.covered, "alpha")),
    *(("pvalues", MANY_X, "alpha"), ("predictive", pictures.predicted, "alpha")),
]


def picture(name, draws, arguments="", first="result", **own):
    """The call of a picture: what is drawn, axes, and what else may be given."""
    axes = of(None, without(but(OBJECT, "none"), "its class"))
    own = {first: Argument(draws, OBJECT, ("result",)), **own}
    own |= {} if name == "summary" else {"ax": axes}
    return call(f"plots.{name}", arguments, also=(KeyError, IndexError), **own)


CALLS += [
    *(picture(*each) for each in PICTURES),
    picture("forest", BOUNDS, "which", tolerance=of(0.5, but(NUMBER, "none"))),
    picture("sweep", MANY_X, "alpha", values=of(torch.arange(4.0), only(ARRAY))),
    picture(
        "pairs",
        pictures.local,
        "names",
        marks=of(torch.tensor([0.4, -0.3]), but(only(ARRAY), "none")),
    ),
    *(picture(name, calibration, "names", "calibration") for name in ("recovery", "contraction")),
    picture("surroundings", partial(found, "check"), first="check"),
    picture("summary", partial(found, "check"), "which", first="check"),
]


def cases():
    """All calls with one value replaced, by name."""
    each = (
        Case(one, {name: value})
        for one in CALLS
        for name in one.replaced
        for value in one.arguments[name].values
    )
    return {case.name: case for case in each}
