"""Stacks of the published tests find what the tests find one by one."""

import pytest
import torch

from experiments import published
from experiments.networks import Batched, two_layers
from experiments.stacked import Stacked
from experiments.trials import stack_of_c2st, stack_of_lc2st, stack_of_lc2st_nf

RUNS, NULLS = [0, 3], 4


def pairs(run, n=80):
    generator = torch.Generator().manual_seed(run)
    theta, noise, z = torch.randn(3, n, 2, generator=generator)
    x = theta + noise
    return theta, x, x / 2 + 0.3 + 0.7 * z


@pytest.fixture
def there():
    generator = torch.Generator().manual_seed(9)
    return torch.randn(2, 2, generator=generator), torch.randn(2, 40, 2, generator=generator)


def asked(stack):
    classifier = Stacked(two_layers(stack.m))
    return stack.judge(classifier.engine.ask(classifier.train(stack.rows), stack.places))


def same(stack, trials):
    """The same rows, in the same order, and the same findings."""
    inputs, labels = (torch.cat(some) for some in zip(*(t.rows for t in trials), strict=True))
    rows = stack.rows
    assert torch.equal(rows.at(torch.arange(len(rows.codes)), rows.codes), inputs)
    assert torch.equal((rows.codes & 1).long(), labels)
    right = published.together(Batched(two_layers(2)), trials)
    for found, (statistic, null) in zip(asked(stack), right, strict=True):
        assert found["statistic"] == pytest.approx(statistic.tolist(), rel=1e-3)
        assert found["pvalue"] == pytest.approx(published.pvalue(statistic, null).tolist())


def test_lc2st(there):
    each = [pairs(run) for run in RUNS]
    stacked = tuple(torch.stack(some) for some in zip(*each, strict=True))
    trials = [
        published.trial_of_lc2st(one, there, NULLS, run=run)
        for run, one in zip(RUNS, each, strict=True)
    ]
    same(stack_of_lc2st(stacked, there, RUNS, NULLS), trials)


@pytest.mark.parametrize("draws", [30, 100], ids=["fewer than pairs", "more"])
def test_lc2st_nf(there, draws):
    each = [(pairs(run)[2], pairs(run)[1]) for run in RUNS]
    stacked = tuple(torch.stack(some) for some in zip(*each, strict=True))
    trials = [
        published.trial_of_lc2st_nf(one, there[0], NULLS, draws, run=run)
        for run, one in zip(RUNS, each, strict=True)
    ]
    same(stack_of_lc2st_nf(stacked, there[0], RUNS, NULLS, draws), trials)


def test_the_oracle():
    """Runs are those of the published trial; nulls are permutations of other draws."""
    generator = torch.Generator().manual_seed(1)
    shift = torch.tensor([0.0, 0.0, 2.0])[:, None, None]
    q, p = torch.randn(2, 2, 3, 250, 2, generator=generator)
    p += shift
    null = torch.randn(2, 3, 250, 2, generator=generator)
    null[1] += shift
    judged = torch.randn(3, 90, 2, generator=generator)
    judged = judged, judged.flip(1) + shift
    stack = stack_of_c2st((q, p), tuple(null), judged, RUNS, 19)
    assert len(stack.rows.codes) == 3 * (2 + 19)
    found = asked(stack)
    assert [len(one["pvalue"]) for one in found] == [3, 3]
    for i, run in enumerate(RUNS):
        for o in range(3):
            samples = [torch.cat([a[i, o], b[o]]) for a, b in zip((q, p), judged, strict=True)]
            trial = published.trial_of_c2st(tuple(samples), 250, 0, (run, o))
            copy = o * (2 + 19) + i
            rows = stack.rows.at(torch.tensor([copy]), stack.rows.codes[[copy]])
            assert torch.equal(rows, trial.rows[0])
            ((mse, *_),) = published.together(Batched(two_layers(2)), [trial])
            assert found[i]["statistic"][o] == pytest.approx(float(mse), rel=1e-3)
        assert found[i]["pvalue"][2] == 0
    # Nulls of an observation are those of all runs; permuted, both classes are alike.
    nulls = stack.rows.codes.reshape(3, 21, 500)[:, 2:]
    assert len({tuple(row.tolist()) for row in nulls.flatten(0, 1)}) == 57
    tables = stack.rows.left_at.reshape(3, 21)[:, 2:]
    assert tables.unique(dim=1).flatten().tolist() == [6 * 500, 7 * 500, 8 * 500]
