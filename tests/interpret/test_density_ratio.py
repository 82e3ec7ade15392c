import numpy as np
import pytest
import scipy.stats

from assay.interpret.density_ratio import pareto_fit, pareto_smoothed


@pytest.mark.parametrize("shape", [-0.3, 0.0, 0.2, 0.5, 0.9])
def test_the_fit_finds_the_shape_and_scale_of_known_distributions(shape):
    rng = np.random.default_rng(0)
    excess = np.sort(scipy.stats.genpareto(shape, scale=2.0).rvs((20, 5000), random_state=rng), 1)
    found, scale = pareto_fit(excess)
    # The prior of ten observations at 0.5 moves 5000 of them by a thousandth.
    np.testing.assert_allclose(found.mean(), shape, atol=0.02)
    np.testing.assert_allclose(scale.mean(), 2.0, rtol=0.02)


def test_the_fit_is_near_the_maximum_of_the_likelihood():
    rng = np.random.default_rng(1)
    excess = np.sort(scipy.stats.genpareto(0.4).rvs(2000, random_state=rng))
    (shape,), (scale,) = pareto_fit(excess[None])
    other, _, other_scale = scipy.stats.genpareto.fit(excess, floc=0)
    assert shape == pytest.approx(other, abs=0.02)
    assert scale == pytest.approx(other_scale, rel=0.03)


@pytest.mark.parametrize("shape", [0.1, 0.4, 0.8])
def test_the_tail_of_weights_is_found(shape):
    weights = scipy.stats.genpareto(shape).rvs((20, 4000), random_state=2)
    assert pareto_smoothed(weights)[1].mean() == pytest.approx(shape, abs=0.1)


def test_smoothing_keeps_the_order_the_rest_and_the_largest():
    weights = np.exp(1.5 * np.random.default_rng(3).standard_normal((3, 1000)))
    found, _ = pareto_smoothed(weights)
    np.testing.assert_allclose(found.mean(1), 1)
    for raw, smooth in zip(weights, found, strict=True):
        order = raw.argsort()
        assert (np.diff(smooth[order]) >= 0).all()
        below = order[: 1000 - 95]
        np.testing.assert_allclose(smooth[below] / smooth[below[0]], raw[below] / raw[below[0]])
        assert smooth.max() / smooth[below[0]] <= raw.max() / raw[below[0]] * (1 + 1e-9)


def test_smoothed_means_of_heavy_weights_are_steadier():
    """Weights 1 / u^0.6 have a mean of 2.5 and no variance; 500 repetitions."""
    u = np.random.default_rng(4).random((500, 300))
    weights = u**-0.6
    smooth, _ = pareto_smoothed(weights)
    # A smoothed sample in the units of the raw one: the bulk is untouched.
    units = np.median(weights, 1) / np.median(smooth, 1)
    raw, mended = weights.mean(1), smooth.mean(1) * units
    assert np.mean((mended - 2.5) ** 2) < np.mean((raw - 2.5) ** 2)


@pytest.mark.parametrize(
    "weights", [np.ones((1, 50)), np.repeat([[1.0, 3.0]], 30, 1), [[1.0, 2.0]]]
)
def test_weights_without_a_tail_are_left_as_they_are(weights):
    weights = np.array(weights)
    found, shape = pareto_smoothed(weights)
    np.testing.assert_allclose(found, weights / weights.mean())
    assert shape[0] == 0


def test_copies_do_not_see_each_other():
    weights = np.exp(np.random.default_rng(5).standard_normal((4, 400)))
    weights[2] = 1.0
    together, shapes = pareto_smoothed(weights)
    for i in range(4):
        alone, shape = pareto_smoothed(weights[i : i + 1])
        np.testing.assert_allclose(alone[0], together[i])
        np.testing.assert_allclose(shape[0], shapes[i])
