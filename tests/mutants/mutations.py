"""Mutations of the statistical core, each with a test that must fail where it is made.

A new one is one entry of MUTATIONS: what is broken, the file in src/assay, a text that stands
there exactly once, what takes its place, and a test.
"""

from typing import NamedTuple


class Mutation(NamedTuple):
    """One mutation."""

    says: str
    file: str
    text: str
    instead: str
    test: str


LEVEL = "tests/level/test_level.py::test_level"
LOCAL = "tests/diagnostics/local"

MUTATIONS = (
    # P-values and their adjustment.
    Mutation(
        "no one is added to the nulls that are as large",
        "results.py",
        "(1 + reached(statistic, null).sum(-1)) / (1 + null.shape[-1])",
        "reached(statistic, null).sum(-1) / (1 + null.shape[-1])",
        "tests/test_results.py::test_p_is_never_zero",
    ),
    Mutation(
        "ties do not count",
        "results.py",
        "np.asarray(null >= (statistic - slack)[..., None])",
        "np.asarray(null > (statistic + slack)[..., None])",
        "tests/test_results.py::test_ties_count_within_rounding",
    ),
    Mutation(
        "the wrong tail",
        "results.py",
        "np.asarray(null >= (statistic - slack)[..., None])",
        "np.asarray(null <= (statistic + slack)[..., None])",
        "tests/test_results.py::test_against_scipy",
    ),
    Mutation(
        "Holm without steps",
        "results.py",
        "pvalues[order] * np.arange(len(pvalues), 0, -1)",
        "pvalues[order] * len(pvalues)",
        "tests/test_results.py::test_holm",
    ),
    Mutation(
        "Holm without a correction",
        "results.py",
        "pvalues[order] * np.arange(len(pvalues), 0, -1)",
        "pvalues[order]",
        f"{LEVEL}[sbc]",
    ),
    Mutation(
        "a step-down that forgets the other observations",
        "results.py",
        "pvalue(scores[order, 0], largest[:, 1:])",
        "pvalue(scores[order, 0], scores[order, 1:])",
        "tests/test_results.py::test_step_down_controls_the_family_wise_error_whichever_are_true",
    ),
    Mutation(
        "statistics are standardised by nulls alone",
        "results.py",
        "spread = roots.std(-1, keepdims=True)",
        "spread = roots[..., 1:].std(-1, keepdims=True)",
        "tests/test_results.py::TestCombined::test_every_copy_is_treated_alike",
    ),
    Mutation(
        "a trust map that rejects without a correction",
        "interpret/trust.py",
        "np.where(result.adjusted <= alpha, REJECTED, words)",
        "np.where(result.pvalue <= alpha, REJECTED, words)",
        "tests/interpret/test_trust.py::test_what_decides",
    ),
    Mutation(
        "one end of an interval for two",
        "results.py",
        "np.maximum(inside, 1e-300), outside + 1, alpha / 2)",
        "np.maximum(inside, 1e-300), outside + 1, alpha)",
        "tests/test_results.py::TestClopperPearson::test_against_scipy",
    ),
    Mutation(
        "an interval of Clopper and Pearson that is one count off",
        "results.py",
        "quantile(inside + 1, np.maximum(outside, 1e-300), 1 - alpha / 2)",
        "quantile(inside, np.maximum(outside, 1e-300), 1 - alpha / 2)",
        "tests/nulls/test_ranks.py::test_clopper_and_pearson_against_scipy",
    ),
    Mutation(
        "a PP band that is too narrow",
        "results.py",
        "max(0, count - 1 - int(alpha * count + 1e-9))",
        "max(0, count - 2 - int(alpha * count + 1e-9))",
        "tests/interpret/test_pp.py::test_bands_have_their_coverage",
    ),
    # Pairs, labels and exchanges.
    Mutation(
        "truths that belong to other x",
        "samples/calibration.py",
        "return torch.cat([self.theta[:, None], self.theta_q], 1)",
        "return torch.cat([self.theta.flip(0)[:, None], self.theta_q], 1)",
        f"{LEVEL}[moments]",
    ),
    Mutation(
        "the truth stands first in its set",
        "nulls/exchange.py",
        "order = cpu.rand(members.shape[:2], generator=places).argsort(1)",
        "order = cpu.rand(members.shape[:2], generator=places).sort(1).values.argsort(1)",
        "tests/nulls/test_exchange.py::test_the_truth_has_no_place_of_its_own",
    ),
    Mutation(
        "members are scaled by those who play the truth",
        "nulls/exchange.py",
        "pooled = self.members.flatten(0, 1)",
        "pooled = self.members[self.who(0)]",
        "tests/nulls/test_exchange.py::test_scaling_ignores_roles",
    ),
    Mutation(
        "the data is an exchange, too",
        "nulls/turns.py",
        "by = torch.cat([torch.zeros_like(by[:1]), by])",
        "by = torch.cat([by[:1], by])",
        "tests/nulls/test_turns.py::test_the_data_comes_first",
    ),
    Mutation(
        "who plays the truth in a copy is never who does in the data",
        "nulls/turns.py",
        "by = cpu.randint(r, (copies, g)",
        "by = cpu.randint(1, r, (copies, g)",
        "tests/nulls/test_exchange.py::test_exchange_picks_each_member_equally_often",
    ),
    Mutation(
        "a local null that exchanges everywhere",
        "nulls/turns.py",
        "group = torch.where(near.to(self.group.device), self.group, self.by.shape[1])",
        "group = self.group",
        "tests/nulls/test_copies.py::test_copies_inside_differ_from_the_data_there_only",
    ),
    Mutation(
        "a local null that exchanges elsewhere",
        "nulls/turns.py",
        "group = torch.where(near.to(self.group.device), self.group, self.by.shape[1])",
        "group = torch.where(near.to(self.group.device), self.by.shape[1], self.group)",
        "tests/nulls/test_copies.py::test_copies_inside_differ_from_the_data_there_only",
    ),
    Mutation(
        "base draws replace truths everywhere under a local null",
        "nulls/exchange.py",
        "return drawn if self.near is None else drawn.where(self.near[:, None], self.truths)",
        "return drawn",
        "tests/nulls/test_copies.py::test_copies_inside_differ_from_the_data_there_only",
    ),
    Mutation(
        "what is near is decided by theta",
        "diagnostics/local/lc2st.py",
        "near = self.null.where.inside(self.calibration.features, features)[0]",
        "near = self.null.where.inside(self.calibration.theta, features)[0]",
        "tests/nulls/test_exchange.py::test_level_where_q_is_right_nearby_and_wrong_elsewhere",
    ),
    Mutation(
        "exchanges of the score test reach beyond what is near",
        "diagnostics/local/score.py",
        "masks = (ring[:, None] == sizes[:, None])",
        "masks = (ring[:, None] >= sizes[:, None])",
        f"{LOCAL}/test_score.py::TestLocal::test_what_is_wrong_elsewhere_does_not_leak_in",
    ),
    Mutation(
        "weights of a neighbourhood are ignored",
        "diagnostics/local/moments.py",
        "table = weights[..., near].flatten(0, 1)\n        lengths",
        "table = weights[..., near].flatten(0, 1).sign()\n        lengths",
        f"{LOCAL}/test_moments.py::test_sums_are_weighted",
    ),
    Mutation(
        "everything is near",
        "samples/neighbourhoods.py",
        "return distances[:, None] <= _limits(distances, self.shares)[..., None]",
        "return distances[:, None] >= 0 * _limits(distances, self.shares)[..., None]",
        "tests/samples/test_neighbourhoods.py::test_the_nearest_are_the_nearest",
    ),
    # Streams.
    Mutation(
        "nulls are the draws that the data is compared with",
        "nulls/exchange.py",
        'drawn = self._draw("null", h)',
        'drawn = self._draw("class 0", 0)',
        f"{LEVEL}[LDA of latents]",
    ),
    Mutation(
        "all nulls are one",
        "nulls/exchange.py",
        'drawn = self._draw("null", h)',
        'drawn = self._draw("null", 1)',
        "tests/nulls/test_known_base.py::test_known_base_draws_the_base",
    ),
    Mutation(
        "class 0 is the same in every epoch",
        "nulls/exchange.py",
        'self._latest[epoch] = self._draw("class 0", epoch)',
        'self._latest[epoch] = self._draw("class 0", 0)',
        "tests/nulls/test_known_base.py::"
        "test_class_0_of_a_known_base_is_fresh_in_every_epoch_and_shared_by_copies",
    ),
    Mutation(
        "base draws that are too wide",
        "nulls/exchange.py",
        "drawn = self.base.sample(n, stream(self.seed, *key)).to(self.truths)",
        "drawn = 1.2 * self.base.sample(n, stream(self.seed, *key)).to(self.truths)",
        "tests/nulls/test_known_base.py::test_known_base_draws_the_base",
    ),
    Mutation(
        "one stream for the draws at all observations",
        "samples/drawing.py",
        "generator = stream(self.seed, self.purpose, first)",
        "generator = stream(self.seed, self.purpose)",
        "tests/samples/test_drawing.py::TestDraws::test_every_observation_has_a_stream_of_its_own",
    ),
    Mutation(
        "a seed that is not read",
        "_core.py",
        "state = np.random.SeedSequence([seed, *words])",
        "state = np.random.SeedSequence([0, *words])",
        "tests/test_core.py::test_streams_differ_by_key_and_seed",
    ),
    Mutation(
        "two data sets meet the same nulls",
        "_core.py",
        'return (seed ^ int.from_bytes(digest, "big")) % 2**62',
        "return seed",
        f"{LOCAL}/test_levels.py::TestCopies::test_other_observations_meet_other_nulls",
    ),
    # Held-out data.
    Mutation(
        "the region test judges the sets that it was trained on",
        "diagnostics/local/region.py",
        "seed, scores, held.sorted())",
        "seed, scores, trained.sorted())",
        f"{LEVEL}[region]",
    ),
    Mutation(
        "a divergence from the sets that were trained on",
        "diagnostics/average/divergence.py",
        "copies = null.copies(held.sorted(), seed)",
        "copies = null.copies(trained.sorted(), seed)",
        f"{LEVEL}[divergence]",
    ),
    Mutation(
        "C2ST trains on what it judges",
        "diagnostics/c2st.py",
        "scores = classifier.fit(copies.subset(train), seed)",
        "scores = classifier.fit(copies.subset(held), seed)",
        "tests/diagnostics/test_c2st.py::test_held_out_rows_are_never_trained_on",
    ),
    Mutation(
        "AUC by classifiers that have seen the set",
        "diagnostics/local/score.py",
        "scores = (white @ trained).sub_(own)",
        "scores = white @ trained",
        f"{LOCAL}/test_score.py::test_the_auc_of_a_right_q_is_one_half_on_average",
    ),
    # Ranks and levels.
    Mutation(
        "ranks that are one off",
        "diagnostics/average/ranks.py",
        "below = (draws.shape[1] + total.long()) // 2",
        "below = (draws.shape[1] + total.long()) // 2 - 1",
        "tests/diagnostics/average/test_ranks.py::TestRanks::test_against_a_loop",
    ),
    Mutation(
        "ties always fall to one side",
        "diagnostics/average/ranks.py",
        "added[:, j] = (share * (ties[:, j] + 1)).astype(ties.dtype)",
        "added[:, j] = ties[:, j]",
        f"{LEVEL}[sbc]",
    ),
    Mutation(
        "levels of ranks that are not uniform",
        "diagnostics/average/ranks.py",
        "(self.ranks + chance.numpy()) / (self.k + 1)",
        "(self.ranks + chance.numpy()) / (self.k + 2)",
        f"{LEVEL}[lhpd]",
    ),
    Mutation(
        "one side of a binomial tail for two",
        "nulls/ranks.py",
        "smaller = np.minimum(mass.cumsum(1), mass[:, ::-1].cumsum(1)[:, ::-1])",
        "smaller = mass.cumsum(1)",
        "tests/nulls/test_ranks.py::TestBands::test_both_sides_count_alike",
    ),
    Mutation(
        "x_o is compared with a centre that it has no part in",
        "interpret/predictive.py",
        "z = features.double() - features.double().mean(0)",
        "z = features.double() - features[1:].double().mean(0)",
        "tests/interpret/test_predictive.py::test_p_is_uniform_where_q_is_right",
    ),
    Mutation(
        "support turned round",
        "samples/neighbourhoods.py",
        "larger = (own >= there[:, None]).sum(1)",
        "larger = (own <= there[:, None]).sum(1)",
        "tests/samples/test_neighbourhoods.py::test_far_points_lie_outside",
    ),
    # Statistics, effects and power.
    Mutation(
        "a statistic with the wrong sign",
        "diagnostics/local/moments.py",
        "return np.asarray(-scipy.special.log_ndtr(-score).sum(-1))",
        "return np.asarray(scipy.special.log_ndtr(-score).sum(-1))",
        f"{LOCAL}/test_moments.py::TestTriple::test_biased",
    ),
    Mutation(
        "the statistic of the paper without its centre",
        "diagnostics/local/lc2st.py",
        "np.mean((d - 0.5) ** 2, axis=-1)",
        "np.mean(d**2, axis=-1)",
        f"{LOCAL}/test_lc2st.py::test_the_statistic_by_hand",
    ),
    Mutation(
        "a bias with the wrong sign",
        "diagnostics/local/estimates.py",
        "return Told.normal(-self.mean, self.mean_error)",
        "return Told.normal(self.mean, self.mean_error)",
        f"{LOCAL}/test_local_effects.py::TestPlanted::test_bias",
    ),
    Mutation(
        "a bias in the units of the truth",
        "diagnostics/local/estimates.py",
        "mean, total = raw / unit - first, spread + raw.square()",
        "mean, total = raw / spread.sqrt() - first, spread + raw.square()",
        f"{LOCAL}/test_local_effects.py::test_bias_is_in_units_of_q",
    ),
    Mutation(
        "claims without a correction for their number",
        "diagnostics/local/claims.py",
        "return moved[:, 0], step_down(squares[:, 0], squares[:, 1:])",
        "return moved[:, 0], (squares >= squares[:, :1]).mean(1)",
        f"{LOCAL}/test_claims.py::test_any_false_claim_is_as_rare_as_it_should_be",
    ),
    Mutation(
        "detectable one time in two",
        "interpret/power.py",
        "    target: float = 0.8,\n",
        "    target: float = 0.5,\n",
        "tests/interpret/test_power.py::test_what_it_says",
    ),
    Mutation(
        "null bands that are a copy too narrow",
        "diagnostics/local/levels.py",
        'axis=axis, method="weibull"',
        "axis=axis",
        f"{LOCAL}/test_levels.py::test_a_null_band_holds_what_it_says",
    ),
)
