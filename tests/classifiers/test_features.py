import math

import pytest
import torch

from assay.classifiers.features import BANKS, Fourier, Hermite

Z = torch.randn(200_000, 3, generator=torch.Generator().manual_seed(0))
ALL = {repr(bank): bank for bank in (*BANKS, Hermite(4), Fourier(8, 0.5))}


@pytest.mark.parametrize("bank", ALL.values(), ids=ALL)
def test_means_are_zero_and_spreads_are_known(bank):
    features = bank(Z).double()
    assert features.shape == (200_000, bank.size(3))
    error = features.std(0) / math.sqrt(len(Z))
    assert (features.mean(0).abs() < 5 * error + 1e-6).all()
    covariance = features.T @ features / len(Z)
    first, second = bank.spread(3)
    assert float(covariance.trace()) == pytest.approx(first, rel=0.05)
    assert float(covariance.square().sum()) == pytest.approx(second, rel=0.1)


def test_hermite_functions_are_orthonormal():
    features = torch.cat([Hermite(k)(Z) for k in (1, 2, 3)], 1).double()
    covariance = features.T @ features / len(Z)
    assert (covariance - torch.eye(len(covariance))).abs().max() < 0.1


def test_hermite_by_hand():
    z = torch.tensor([2.0, -1.0])
    expected = [
        (8 - 6) / math.sqrt(6),
        3 / math.sqrt(2) * -1,
        2 * 0 / math.sqrt(2),
        2 / math.sqrt(6),
    ]
    torch.testing.assert_close(Hermite(3)(z), torch.tensor(expected))


def test_any_number_of_leading_axes():
    torch.testing.assert_close(
        Hermite(2)(Z[:12].reshape(3, 4, 3)), Hermite(2)(Z[:12]).reshape(3, 4, 6)
    )


@pytest.mark.parametrize("make", [lambda: Hermite(0), lambda: Fourier(0), lambda: Fourier(4, 0.0)])
def test_bad_banks(make):
    with pytest.raises(ValueError, match="expected"):
        make()
