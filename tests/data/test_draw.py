"""Draws of q at many x: in batches, with a time limit, kept as it goes."""

import time
from dataclasses import dataclass, field

import pytest
import torch

import assay
from assay._support.work import time_limit
from assay.data.draw import Drawing, draw_at, draw_observed
from assay.data.posterior import Posterior, as_posterior

X = torch.arange(240.0).reshape(120, 2)


def sample(x, n):
    return x + torch.randn(n, len(x))


@dataclass
class Batched(Posterior):
    """Draws at 20 x at a time, some of which do not work."""

    bad: dict = field(default_factory=dict)
    calls: list = field(default_factory=list)

    @property
    def rows(self):
        return 20

    def sample_batched(self, x, n):
        self.calls.append(len(x))
        theta = x[:, None] + torch.randn(len(x), n, 2)
        for i in (x[:, 0] / 2).long().tolist():
            kind = self.bad.get(i)
            if kind == "hangs":
                time.sleep(60)
            if kind == "raises":
                raise RuntimeError("no acceptance")
            if kind == "nan":
                theta[(x[:, 0] / 2).long() == i] = torch.nan
        return theta


class TestDraws:
    def test_they_belong_to_their_observations(self):
        draws = draw_at(as_posterior(sample, X), X, 400, 0, "here").theta
        assert draws.shape == (120, 400, 2)
        torch.testing.assert_close(draws.mean(1), X, atol=0.25, rtol=0)

    def test_every_observation_has_a_stream_of_its_own(self):
        """The same whatever comes after it, other than its neighbours', and named by purpose."""
        q = as_posterior(sample, X)
        draws = draw_at(q, X[:3], 5, 0, "here").theta
        assert torch.equal(draws[:2], draw_at(q, X[:2], 5, 0, "here").theta)
        noise = draws - X[:3, None]
        assert not torch.allclose(noise[0], noise[1], atol=1e-3)
        for other in ((1, "here"), (0, "there")):
            assert not torch.equal(draws, draw_at(q, X[:3], 5, *other).theta)

    def test_no_global_generator_moves(self):
        state = torch.get_rng_state()
        draw_at(as_posterior(sample, X), X[:3], 5, 0, "here")
        assert torch.equal(torch.get_rng_state(), state)

    def test_batches(self):
        q = Batched()
        assert draw_at(q, X, 3, 0, "here").theta.shape == (120, 3, 2)
        assert q.calls == [20] * 6

    def test_of_another_shape(self):
        class Wrong(Batched):
            def sample_batched(self, x, n):
                return torch.zeros(n, 2)

        with pytest.raises(ValueError, match=r"x\[0\] \(ValueError: expected n = 5 draws at each"):
            draw_at(Wrong(), X, 5, 0, "here")


class TestFailures:
    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            ("raises", "no acceptance"),
            ("nan", "NaN or infinity"),
            ("hangs", "no draws within 0.2"),
        ],
    )
    def test_an_x_is_named(self, kind, words):
        with pytest.raises(ValueError, match=rf"got none at x\[33\] \(.*{words}.*failures=0.01"):
            draw_at(Batched({33: kind}), X, 3, 0, "here", Drawing(limit=0.2))

    def test_they_are_left_out(self):
        bad = {33: "raises", 70: "nan"}
        found = draw_at(Batched(bad), X, 3, 0, "here", Drawing(failures=0.02))
        assert found.kept.tolist() == [i for i in range(120) if i not in bad]
        torch.testing.assert_close(found.theta.mean(1), X[found.kept], atol=4.0, rtol=0)
        (remark,) = found.left_out
        assert "at 2 of 120 x: x[33], x[70] (RuntimeError: no acceptance)" in remark

    def test_all_of_a_call_are_left_out(self):
        bad = {i: "nan" for i in range(40)}
        found = draw_at(Batched(bad), X, 3, 0, "here", Drawing(failures=0.5))
        assert found.kept.tolist() == list(range(40, 120))
        assert found.theta.shape == (80, 3, 2)
        assert "at 40 of 120 x: x[0], x[1], x[2], x[3], x[4], ... (NaN" in found.left_out[0]

    def test_nothing_else_is_lost(self, tmp_path):
        """Earlier draws are kept, and only those that are missing are made afterwards."""
        how = Drawing(resume=tmp_path / "draws")
        with pytest.raises(ValueError, match=r"x\[70\]"):
            draw_at(Batched({70: "raises"}), X, 3, 0, "here", how)
        mended = Batched()
        found = draw_at(mended, X, 3, 0, "here", how)
        assert mended.calls == [20] * 3
        assert torch.equal(found.theta, draw_at(Batched(), X, 3, 0, "here").theta)
        again = Batched()
        assert torch.equal(draw_at(again, X, 3, 0, "here", how).theta, found.theta)
        assert again.calls == []

    def test_of_observations_that_are_padded(self, tmp_path):
        x = torch.where(torch.arange(120)[:, None] > 60, torch.nan, X)
        q, how = as_posterior(lambda x, n: torch.randn(n, 2), x), Drawing(resume=tmp_path)
        first, again = (draw_at(q, x, 3, 0, "here", how).theta for _ in range(2))
        assert torch.equal(first, again)

    def test_draws_of_other_observations(self, tmp_path):
        how = Drawing(resume=tmp_path)
        draw_at(Batched(), X, 3, 0, "here", how)
        with pytest.raises(ValueError, match="expected draws of the same observations"):
            draw_at(Batched(), X + 2, 3, 0, "here", how)

    def test_the_observation_is_never_left_out(self):
        given, how = assay.Draws(X[:2], n=3), Drawing(failures=0.9)
        assert draw_observed(Batched(), given, 0, how).theta.shape == (2, 3, 2)
        with pytest.raises(ValueError, match=r"x_o\[1\] .* Is x_o like the observations"):
            draw_observed(Batched({1: "nan"}), given, 0, how)

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


def test_a_calibration_of_a_posterior():
    found = assay.Calibration.of(Batched({5: "nan"}), X, X, 4, drawing=Drawing(failures=0.01))
    assert (len(found), found.k) == (119, 4)
    assert "x[5]" in found.remarks[0]
    same = assay.Calibration.of(sample, X, X, 4, seed=1)
    assert torch.equal(same.theta_q, assay.Calibration.of(sample, X, X, 4, seed=1).theta_q)
