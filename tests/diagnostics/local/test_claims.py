import numpy as np
import pytest
import scipy.stats
import torch

from assay._core import stream
from assay.classifiers.features import NormalScores
from assay.diagnostics.local.claims import Exchanged, claims, pairs, varying

KINDS = ("bias", "width", "correlation", "region")


def made(members, copies=199, seed=0):
    marks = members.square().sum(2, keepdim=True) < members.shape[2]
    scores = NormalScores()(members.flatten(0, 1)[None]).reshape(members.shape)
    return Exchanged.of(scores, marks, copies, stream(seed, "exchanges"))


def normal(b=150, r=9, m=3, seed=0):
    return torch.randn(b, r, m, generator=stream(seed, "members"))


def shares(b, *sizes):
    table = torch.zeros(len(sizes), b)
    for row, size in zip(table, sizes, strict=True):
        row[:size] = 1 / size
    return table


def smallest(found):
    return min(getattr(found, kind).pvalue.min() for kind in KINDS)


def test_any_false_claim_is_as_rare_as_it_should_be():
    """400 repetitions, two sizes: within 99.9 % binomial intervals, also of tied members."""
    plain, tied = [], []
    for i in range(400):
        members = normal(b=40, m=2, seed=i)
        for found, each in ((plain, members), (tied, members.round())):
            found.append(smallest(claims(made(each, 39, i), shares(40, 20, 40))))
    for found in (plain, tied):
        low, high = scipy.stats.binom(400, 0.05).interval(0.999)
        assert low <= (np.array(found) <= 0.05).sum() <= high


ERRORS = {
    "bias": lambda z: z + torch.tensor([0.0, 0.6, 0.0]),
    "width": lambda z: z * torch.tensor([1.0, 2.0, 1.0]),
    "correlation": lambda z: z @ torch.tensor([[1.0, 0, 0], [0, 1, 0.7], [0, 0, 0.7]]),
}


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_named_by_its_kind_and_sign(kind):
    """The second parameter, or its pair with the third; nothing else."""
    members = normal()
    members[:, 0] = ERRORS[kind](members[:, 0])
    found = claims(made(members), shares(150, 150))
    for other in KINDS[:3]:
        wrong = getattr(found, other).pvalue[0] <= 0.05
        expected = [0, 0, 1] if kind == "correlation" else [0, 1, 0]
        assert wrong.tolist() == (expected if other == kind else [0, 0, 0])
    where = 2 if kind == "correlation" else 1
    assert getattr(found, kind).sign[0, where] == 1


def test_an_error_of_one_kind_makes_no_claim_of_another():
    """100 repetitions of a q that is too narrow by far: no bias is claimed beyond the level."""
    named = []
    for i in range(100):
        members = normal(m=2, seed=i)
        members[:, 0] *= 3
        named.append(claims(made(members, 99, i), shares(150, 150)).bias.pvalue.min() <= 0.05)
    assert np.mean(named) <= 0.12


def test_claims_depend_on_order_alone():
    """Any increasing map of a parameter gives the same ones; heavy tails do not matter."""
    members = normal()
    members[:, 0] += 0.5
    one, two = (claims(made(z), shares(150, 150)).bias for z in (members, members.double().exp()))
    np.testing.assert_array_equal(one.pvalue, two.pvalue)


def test_a_parameter_that_does_not_vary_is_never_wrong():
    members = torch.cat([normal(m=1), torch.ones(150, 9, 1)], 2)
    found = claims(made(members), shares(150, 150))
    assert found.bias.pvalue[0, 1] == found.width.pvalue[0, 1] == found.correlation.pvalue[0] == 1


def test_blocks_of_copies_change_nothing(monkeypatch):
    members = normal()
    one = claims(made(members), shares(150, 50, 150))
    monkeypatch.setattr("assay.diagnostics.local.claims.ROOM", 1000)
    two = claims(made(members), shares(150, 50, 150))
    for kind in KINDS:
        np.testing.assert_array_equal(getattr(one, kind).pvalue, getattr(two, kind).pvalue)


def test_what_varies():
    """A slope in the first parameter and a width that changes in the second, along a contrast."""
    members, along = normal(), torch.linspace(-1, 1, 150)
    members[:, 0, 0] += 1.5 * along
    members[:, 0, 1] *= (1.2 * along).exp()
    members[:, 0, 2] += 2.0
    found = varying(made(members), (along / along.norm())[:, None])
    np.testing.assert_array_equal(found <= 0.05, [[True, False, False], [False, True, False]])


def test_pairs():
    first, second = pairs(3)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 1), (0, 2), (1, 2)]
    assert len(pairs(1)[0]) == 0
