"""Draws of q at many x: in batches, with a time limit, kept as it goes."""

import time
from dataclasses import dataclass, field

import pytest
import torch

from assay import Drawing
from assay._support.work import time_limit
from assay.data.draw import Sampler
from assay.data.posterior import Posterior, as_posterior

X = torch.arange(240.0).reshape(120, 2)


@dataclass
class Batched(Posterior):
    """Draws at 20 x at a time, some of which do not work."""

    bad: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)
    rows = 20

    def sample_batched(self, x, n):
        self.calls.append(len(x))
        theta = x[:, None] + torch.randn(len(x), n, 2)
        for row, i in enumerate((x[:, 0] / 2).long().tolist()):
            kind = self.bad.get(i)
            time.sleep(60 if kind == "hangs" else 0)
            if kind == "raises":
                raise RuntimeError("no acceptance")
            if kind == "shape":
                return theta[0]
            theta[row] *= torch.nan if kind == "nan" else 1
        return theta


def draws(q=None, x=X, how=None, n=3, seed=0, purpose="here"):
    return Sampler(Batched() if q is None else q, seed, how or Drawing()).draw(x, n, purpose)


class TestDraws:
    def test_they_belong_to_their_observations_in_batches(self):
        q = Batched()
        found = draws(q, n=400).theta
        assert found.shape == (120, 400, 2)
        torch.testing.assert_close(found.mean(1), X, atol=0.25, rtol=0)
        assert q.calls == [20] * 6

    def test_every_observation_has_a_stream_of_its_own(self):
        """The same whatever comes after it, other than its neighbours', and named by purpose."""
        q, state = as_posterior(lambda x, n: x + torch.randn(n, 2), X), torch.get_rng_state()
        found = draws(q, X[:3]).theta
        assert torch.equal(found[:2], draws(q, X[:2]).theta)
        noise = found - X[:3, None]
        assert not torch.allclose(noise[0], noise[1], atol=1e-3)
        for other in ({"seed": 1}, {"purpose": "there"}):
            assert not torch.equal(found, draws(q, X[:3], **other).theta)
        assert torch.equal(torch.get_rng_state(), state)


FAILURES = {
    "raises": "RuntimeError: no acceptance",
    "nan": "NaN or infinity",
    "hangs": "TimeoutError: no draws within 0.2",
    "shape": "ValueError: expected n = 3 draws at each x, with shape",
}
LEFT_OUT = [
    ({33: "raises", 70: "nan"}, r"2 of 120 x: x[33], x[70] (RuntimeError: no acceptance)"),
    (dict.fromkeys(range(40), "nan"), "40 of 120 x: x[0], x[1], x[2], x[3], x[4], ... (NaN"),
]


class TestFailures:
    @pytest.mark.parametrize(("kind", "words"), FAILURES.items())
    def test_an_x_is_named(self, kind, words):
        with pytest.raises(ValueError, match=rf"got none at x\[33\] \(.*{words}.*failures=0.01"):
            draws(Batched({33: kind}), how=Drawing(limit=0.2))

    @pytest.mark.parametrize(("bad", "words"), LEFT_OUT)
    def test_they_are_left_out(self, bad, words):
        found = draws(Batched(bad), how=Drawing(failures=0.5))
        assert found.kept.tolist() == [i for i in range(120) if i not in bad]
        torch.testing.assert_close(found.theta.mean(1), X[found.kept], atol=4.0, rtol=0)
        assert words in found.left_out[0]

    def test_nothing_else_is_lost(self, tmp_path):
        """Earlier draws are kept, and only those that are missing are made afterwards."""
        how = Drawing(resume=tmp_path / "draws")
        with pytest.raises(ValueError, match=r"x\[70\]"):
            draws(Batched({70: "raises"}), how=how)
        for calls in ([20] * 3, []):
            again = Batched()
            assert torch.equal(draws(again, how=how).theta, draws().theta)
            assert again.calls == calls
        padded = torch.where(X > 100, torch.nan, X)
        q = as_posterior(lambda x, n: torch.randn(n, 2), padded)
        assert torch.equal(*(draws(q, padded, how, purpose="padded").theta for _ in range(2)))
        with pytest.raises(ValueError, match="expected draws of the same observations"):
            draws(x=X + 2, how=how)

    @pytest.mark.parametrize("given", [{"limit": 0}, {"failures": 1.0}, {"failures": -0.1}])
    def test_bad_values(self, given):
        with pytest.raises(ValueError, match=f"{next(iter(given))}: expected"):
            Drawing(**given)


def test_a_time_limit_leaves_nothing_behind():
    with pytest.raises(TimeoutError, match="no draws within 0.05 s"), time_limit(0.05):
        time.sleep(2)
    with time_limit(0.05):
        pass
    time.sleep(0.1)
