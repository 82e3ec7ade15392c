import torch
import zuko

import assay
from assay._core import isolated, stream
from assay.adapters.zuko import ZukoFlow
from assay.samples.posterior import StandardNormal


def make(kind=zuko.flows.NSF, **settings):
    with isolated(stream(0, "flow")):
        return ZukoFlow(kind(2, 3, transforms=2, hidden_features=(16,), **settings))


def test_the_inverse_inverts_the_samples():
    flow = make()
    x = torch.randn(3, generator=torch.Generator().manual_seed(0))
    with isolated(stream(0, "samples")):
        theta = flow.sample(x, 100)
    z = flow.theta_to_base(theta, x.expand(100, -1))
    torch.testing.assert_close(flow.network(x).transform.inv(z), theta, atol=1e-3, rtol=1e-3)
    assert flow.base == StandardNormal(2)


def test_a_whole_test(gaussian):
    generator = torch.Generator().manual_seed(0)
    theta, x = torch.randn(300, 2, generator=generator), torch.randn(300, 3, generator=generator)
    flow = make(zuko.flows.MAF)
    with isolated(generator):
        theta_q = torch.cat([flow.sample(x_n, 1) for x_n in x])
    latent = assay.Calibration(theta, x, theta_q).to_latent(flow)
    result = assay.lc2st(latent, assay.MLP((8,), epochs=2), assay.KnownBase(9))(
        assay.Draws(x[:2], n=50)
    )
    assert result.theta.shape == (2, 50, 2)
