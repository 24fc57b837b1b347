"""What every stored metric means, its unit and what it is computed from: the one table of metrics.

Exact definitions, with every denominator, are in the docstrings of the functions that measure them.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from starpo.ragen.learning.metrics.table import BY_TAG


@dataclass(frozen=True)
class Metric:
    """A metric, or several of one form.

    Attributes:
        name: Its name; <words> stand for what varies.
        unit: Unit of its values.
        meaning: What it measures, and over what.
        source: What it is computed from.
    """

    name: str
    unit: str
    meaning: str
    source: str


_SHARE, _COUNT, _REWARD, _TOKENS = "share, 0 to 1", "count", "reward units", "tokens"
_NATS, _RATIO, _NORM = "nats per token", "ratio", "norm"
_ENTRIES: Mapping[str, tuple[str, str]] = {
    "rollout/success_rate": (_SHARE, "Trajectories that reach the goal, at the training temperature"),
    "rollout/num_trajectories": (_COUNT, "Trajectories played, those with an error too"),
    "rollout/num_turns": (_COUNT, "Turns played"),
    "rollout/num_truncated": (_COUNT, "Trajectories that ran out of context"),
    "rollout/truncated_share": (_SHARE, "Trajectories that ran out of context"),
    "rollout/num_env_error": (_COUNT, "Trajectories ended by an error of the environment"),
    "rollout/env_error_share": (_SHARE, "Trajectories ended by an error of the environment"),
    "rollout/num_timeout": (_COUNT, "Trajectories ended at the deadline"),
    "rollout/timeout_share": (_SHARE, "Trajectories ended at the deadline"),
    "rollout/turns_mean": ("turns per trajectory", "Mean number of turns"),
    "rollout/actions_mean": ("actions per trajectory", "Mean number of executed actions"),
    "rollout/forfeited_actions_mean": (
        "actions per trajectory",
        "Actions named but not executed, as a malformed response forfeits its actions",
    ),
    "rollout/limit_share": (_SHARE, "Trajectories ended by a limit, such as that on turns, not by the environment"),
    "rollout/effective_action_share": (_SHARE, "Executed actions that changed the state"),
    "rollout/format_ok": (_SHARE, "Responses in the form that the prompt asks for"),
    "rollout/length_share": (_SHARE, "Responses cut off at the maximum length"),
    "rollout/entropy": (
        _NATS,
        "Minus the mean log-probability of the sampled tokens: an estimate of the sampler's entropy. A fall to a tenth "
        "is one fixed answer, a steep rise noise",
    ),
    "rollout/response_length_mean": ("tokens per response", "Mean length of a response"),
    "rollout/response_length_max": (_TOKENS, "Length of the longest response"),
    "rollout/distinct_response_share": (_SHARE, "Distinct texts among the responses; it falls in the Echo Trap"),
    "rollout/reasoning_characters_mean": (
        "characters per response",
        "Mean length of the reasoning, where there is one",
    ),
    "rollout/distinct_reasoning_share": (_SHARE, "Distinct texts among the reasonings"),
    "rollout/compression_ratio": (
        _RATIO,
        "Bytes of all responses over their bytes compressed by bzip2; it rises as responses repeat each other",
    ),
    "rollout/repeated_ngram_share": (_SHARE, "Runs of four words that occur earlier in the same response"),
    "reward/return_mean": (_REWARD, "Mean over trajectories of the sum of rewards, penalties included"),
    "reward/return_std": (_REWARD, "Standard deviation of the returns of all trajectories"),
    "reward/return_min": (_REWARD, "Lowest return of a trajectory"),
    "reward/return_max": (_REWARD, "Highest return of a trajectory"),
    "reward/in_group_std": (
        _REWARD,
        "Mean over groups of the standard deviation of the group's returns. At 0 the members of a group end alike, and "
        "there is nothing to learn from; it falls before the reward does",
    ),
    "reward/in_group_std_spread": (_REWARD, "Standard deviation over groups of the group's standard deviation"),
    "reward/malformed_return_gap": (
        _REWARD,
        "Mean return of trajectories with a malformed response minus that of the others; above 0, malformed responses "
        "pay off",
    ),
    "reward/component/<component>_mean": (_REWARD, "Mean over trajectories of what one component of the reward pays"),
    "filter/num_groups": ("groups", "Groups of the rollout"),
    "filter/num_kept": ("groups", "Groups kept for training"),
    "filter/kept_share": (_SHARE, "Groups kept for training"),
    "filter/num_kept_trajectories": (_COUNT, "Valid trajectories of kept groups"),
    "filter/num_invalid": ("groups", "Groups without a valid trajectory"),
    "filter/num_zero_variance": ("groups", "Groups whose valid trajectories all have the same return"),
    "filter/zero_variance_share": (_SHARE, "The same, among groups with a valid trajectory"),
    "filter/num_empty": ("0 or 1", "Whether the filter kept nothing"),
    "filter/kept_score_mean": ("score of the filter", "Mean score of kept groups"),
    "filter/dropped_score_mean": ("score of the filter", "Mean score of dropped groups"),
    "filter/kept_success": (_SHARE, "Mean success rate of kept groups"),
    "filter/dropped_success": (_SHARE, "Mean success rate of dropped groups"),
    "filter/num_attempts": (_COUNT, "Rollouts needed to collect enough groups"),
    "filter/num_surplus": ("groups", "Groups that the filter would have kept, but were no longer needed"),
    "filter/num_outranked": ("groups", "Eligible groups that the filter did not keep"),
    "update/num_trajectories": (_COUNT, "Trajectories of the update"),
    "update/num_without_tokens": (_COUNT, "Those without a response token, which take no part"),
    "update/num_tokens": (_TOKENS, "Response tokens of the update"),
    "update/num_steps": (_COUNT, "Steps of the policy's optimiser"),
    "update/num_restarted_optimisers": (_COUNT, "Optimisers that began anew, without their moments"),
    "update/entropy": (_NATS, "Mean entropy of the policy's next token, before the first step"),
    "update/advantage_mean": ("as the estimator scales", "Mean advantage over tokens"),
    "update/advantage_std": ("as the estimator scales", "Standard deviation of the advantage over tokens"),
    "update/old_behaviour_gap_mean": (
        _NATS,
        "Mean absolute difference of log-probabilities between sampler and learner before its first step: numerical on "
        "a fresh rollout, drift on a reused one",
    ),
    "update/old_behaviour_gap_max": (_NATS, "The largest such difference"),
    "update/kl_behaviour": (
        _NATS,
        "Mean log-probability under the sampler minus that under the updated policy: how far the update ends from the "
        "policy that sampled",
    ),
    "update/kl_reference": (_NATS, "Estimated KL divergence of the updated policy from the reference policy"),
    "update/old_is_from_rollout": ("0 or 1", "Whether the sampler's log-probabilities stood in for the learner's own"),
    "update/policy_loss": ("loss", "Mean over steps of the policy's loss"),
    "update/gradient_norm": (_NORM, "Mean over steps of the gradient's norm before clipping; a spike is a warning"),
    "update/gradient_norm_max": (_NORM, "Largest gradient norm of a step, before clipping"),
    "update/learning_rate": ("per step", "Learning rate of the policy's optimiser"),
    "update/matrix_learning_rate": ("per step", "Muon's learning rate of matrices"),
    "update/clip_fraction": (_SHARE, "Tokens whose ratio was clipped, or that were left out for it, over all passes"),
    "update/clip_fraction_low": (_SHARE, "Tokens clipped at the lower bound"),
    "update/clip_fraction_high": (_SHARE, "Tokens clipped at the upper bound"),
    "update/ratio_mean": (_RATIO, "Mean probability ratio of the policy to the old one, over all passes"),
    "update/ratio_max": (_RATIO, "Largest probability ratio"),
    "update/importance_mean": (
        _RATIO,
        "Mean importance weight of a token, learner before its first step against sampler, within its bounds",
    ),
    "update/importance_outside_share": (_SHARE, "Tokens whose importance weight was beyond its bounds"),
    "update/uncertain_share": (_SHARE, "Tokens on which the surrogate acted, the most uncertain; mean over steps"),
    "update/entropy_coefficient": ("loss per nat", "Weight of an entropy bonus that aims at a target, in this update"),
    "update/entropy_level": ("loss per nat", "The level of that weight with which the next update begins"),
    "update/observation_loss": (_NATS, "Mean over steps of the cross-entropy on observations"),
    "update/staleness": ("updates", "Updates between the policy that played the rollout and the one updated"),
    "update/value_loss": ("loss", "Mean over steps of the critic's loss, a squared error"),
    "update/explained_variance": (
        "share, at most 1",
        "Variance of the value targets that the critic explains; below 0, it is worse than their mean",
    ),
    "update/teacher_kl": (
        _NATS,
        "Estimated reverse KL divergence of the policy, before the first step, from its teacher: mean log-probability "
        "under the policy minus that under the teacher; it falls as the policy comes to do what the teacher would",
    ),
    "teacher/kl": (_NATS, "The same of the policy that sampled, over all responses of the rollout"),
    "teacher/agreement": (_SHARE, "Sampled tokens than which the teacher finds none more probable"),
    "teacher/cross_entropy": (_NATS, "Minus the teacher's mean log-probability of the sampled tokens"),
    "teacher/top_k_mass": (_SHARE, "Mean probability, under the teacher, of its teacher.top_k most probable tokens"),
    "teacher/hint_tokens_mean": ("tokens per turn", "Mean length of the hints, which the policy does not see"),
    "update/prm_pairs": (_COUNT, "Pairs of trajectories that the process reward model learns from"),
    "update/prm_accuracy": (
        _SHARE,
        "Pairs in which the better trajectory has the larger implicit reward, before the step",
    ),
    "update/prm_loss": ("nats per pair", "Loss of the process reward model, before the step"),
    "update/<companion>_loss": ("loss", "Mean over steps of the loss of a model trained beside the policy"),
    "update/<companion>_gradient_norm": (_NORM, "Mean gradient norm of a model trained beside the policy"),
    "update/<companion>_gradient_norm_max": (_NORM, "Largest gradient norm of a model trained beside the policy"),
    "update/validity_<when>/kl": (
        _NATS,
        "KL divergence of the policy from the one that sampled, before the first step or after the last",
    ),
    "update/validity_<when>/clip_share": (_SHARE, "Tokens whose gradient a clip against the sampler would zero"),
    "update/validity_<when>/effective_sample_size_tokens": (
        _SHARE,
        "What the tokens are worth for the policy: Kish's effective sample size by importance weights",
    ),
    "update/validity_<when>/effective_sample_size_trajectories": (_SHARE, "The same of whole trajectories"),
    "update/validity_<when>/ratio_q<percent>": (
        _RATIO,
        "Quantile of the probability ratio of the policy to the sampler",
    ),
    "evaluation/<panel>/success": (_SHARE, "Episodes on the fixed panel that succeed"),
    "evaluation/<panel>/success_low": (
        _SHARE,
        "Lower end of the 95% interval of success, over initial states as clusters (Wilson)",
    ),
    "evaluation/<panel>/success_high": (_SHARE, "Upper end of the 95% interval of success"),
    "evaluation/<panel>/pass_at_<k>": (_SHARE, "Unbiased estimate that at least one of k episodes of a state succeeds"),
    "evaluation/<panel>/return_mean": (_REWARD, "Mean sum of the environment's rewards, without shaping"),
    "evaluation/<panel>/turns_mean": ("turns per episode", "Mean number of turns"),
    "evaluation/<panel>/actions_mean": ("actions per episode", "Mean number of executed actions"),
    "evaluation/<panel>/response_length_mean": ("tokens per response", "Mean length of a response"),
    "evaluation/<panel>/format_ok": (_SHARE, "Turns with a well-formed response"),
    "evaluation/<panel>/num_episodes": ("episodes", "Episodes played"),
    "evaluation/<panel>/num_errors": (
        "episodes",
        "Those ended by an environment error or a deadline, counted in no rate",
    ),
    "evaluation/<panel>/num_seen_prompts": ("states", "Initial states of the panel that training had met"),
    "evaluation/<panel>/num_unknown_origins": (_COUNT, "Ancestors of the checkpoint whose training states are unknown"),
    "evaluation/<panel>/engine_<what>": ("tokens, or money of the server", "What the engine used for this evaluation"),
    "reasoning/<turns>/num_rows": ("reasonings", "Reasonings scored against each other"),
    "reasoning/<turns>/num_prompts": ("prompts", "Different prompts among them"),
    "reasoning/<turns>/<per>/mutual_information": (
        "nats, per token or per sequence",
        "I(X; Z): how much likelier a reasoning is under its own prompt than under the average one. At 0 it would fit "
        "any prompt: template collapse",
    ),
    "reasoning/<turns>/<per>/mutual_information_bound": ("nats", "The most that I(X; Z) can be: log of the reasonings"),
    "reasoning/<turns>/<per>/mutual_information_z": (
        "standard deviations",
        "I(X; Z) over the standard deviation of the reasonings' log-probabilities under the average prompt",
    ),
    "reasoning/<turns>/<per>/conditional_entropy": (
        "nats, per token or per sequence",
        "H(Z|X): how varied reasoning is for one prompt",
    ),
    "reasoning/<turns>/<per>/marginal_entropy": ("nats, per token or per sequence", "H(Z): how varied reasoning is"),
    "reasoning/<turns>/<per>/retrieval_at_<k>": (
        _SHARE,
        "Reasonings whose own prompt is among the k under which they are likeliest",
    ),
    "reasoning/<turns>/<per>/retrieval_at_<k>_above_chance": (
        "share above chance",
        "The same, minus that of k prompts drawn by chance",
    ),
    "gradients/bucket_<k>/num_groups": ("groups", "Groups in the k-th of six buckets by the spread of their returns"),
    "gradients/bucket_<k>/reward_std": (_REWARD, "Mean standard deviation of returns in these groups"),
    "gradients/bucket_<k>/<term>_norm": (_NORM, "Norm of the mean gradient of a term of the loss in these groups"),
    "gradients/bucket_<k>/<term>_snr": (_RATIO, "Signal to noise: squared expected gradient over one group's variance"),
    "objectives/<objective>/norm": (_NORM, "Norm of the gradient of this objective on the stored rollout"),
    "objectives/<objective>/num_groups": ("groups", "Groups with a gradient"),
    "objectives/<objective>/signal_to_noise": (_RATIO, "Squared expected gradient over the variance of one group's"),
    "objectives/<objective>/cosine/<other>": ("cosine, -1 to 1", "Agreement of its direction with another objective's"),
    "curriculum/share/<level>": (_SHARE, "Share of the rollout's groups that the curriculum gives a level"),
    "curriculum/success/<level>": (_SHARE, "Mean success of a level's latest groups, curriculum.window of them"),
    "replay/groups_kept_by_<side>": ("groups", "Groups kept by both filters, or by the base's or the branch's only"),
    "replay/num_shared_trajectories": (_COUNT, "Trajectories in both updates"),
    "replay/advantage_sign_flips": (_SHARE, "Shared trajectories whose advantage has the other sign in the branch"),
    "replay/<what>_cosine": (
        "cosine, -1 to 1",
        "Agreement of the branch's gradient, or change of weights, with the base's",
    ),
    "replay/<what>_norm_ratio": (_RATIO, "Norm of the branch's gradient, or change of weights, over the base's"),
    "replay/<side>/<update metric>": ("as that metric", "A metric of the base's or the branch's update"),
}
_SOURCES = {
    "rollout": "turns of the iteration's rollout, without greedy baselines; trajectories that ended by an error of the "
    "environment or at the deadline are counted, and enter no mean",
    "reward": "rewards of the iteration's rollout; valid trajectories",
    "filter": "the filter's decision on every group (dataset selection)",
    "update": "the iteration's update, over its response tokens",
    "teacher": "what a teacher says of the iteration's rollout, over all of its response tokens",
    "evaluation": "episodes on a fixed panel of initial states; those that ended in an error enter no mean",
    "curriculum": "selections of the rollouts before, by the stage curriculum",
    "reasoning": "the probe: every reasoning scored under every prompt by the policy that is about to be updated",
    "gradients": "gradients of groups at a stored checkpoint, without a step",
    "objectives": "gradients of several objectives on one stored rollout, without a step",
    "replay": "a replay: a branch's update beside the base's, on the same rollout",
}
_MIXTURE = "<part of a mixture>"
_VARYING = re.compile("<[^>]+>")


def _metrics() -> list[Metric]:
    metrics = [Metric(name, *entry, _SOURCES[name.partition("/")[0]]) for name, entry in _ENTRIES.items()]
    of_parts = [
        Metric(f"{metric.name}/{_MIXTURE}", metric.unit, f"{metric.meaning}; of one part of a mixture", metric.source)
        for metric in metrics
        if metric.name in BY_TAG
    ]
    return metrics + of_parts


METRICS = tuple(_metrics())
"""All metrics; a name has the meaning of the one that fits it most closely."""


@lru_cache(maxsize=4096)
def explain(name: str) -> Metric | None:
    """Return what a stored metric means; None for one that is not of this package."""
    fitting = (metric for metric, pattern in _patterns() if pattern.fullmatch(name))
    return next(fitting, None)


def meanings(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return what stored metrics mean, as JSON: each meaning once, with `metrics`, the names that have it."""
    rows: dict[str, dict[str, Any]] = {}
    for name in sorted(names):
        if metric := explain(name):
            rows.setdefault(metric.name, {**vars(metric), "metrics": []})["metrics"].append(name)
    return [rows[metric.name] for metric in METRICS if metric.name in rows]


@cache
def _patterns() -> list[tuple[Metric, re.Pattern[str]]]:
    def specificity(metric: Metric) -> tuple[int, int]:
        return metric.name.count("<"), -len(_VARYING.sub("", metric.name))

    return [(metric, re.compile(_pattern(metric.name))) for metric in sorted(METRICS, key=specificity)]


def _pattern(name: str) -> str:
    """Return the pattern of a name; what varies has no slash, except a panel (`panel/part`) or a metric."""
    parts = _VARYING.split(name)
    varying = [".+" if part in ("<panel>", "<update metric>") else "[^/]+" for part in _VARYING.findall(name)]
    return "".join(re.escape(part) + between for part, between in zip(parts, [*varying, ""], strict=True))
