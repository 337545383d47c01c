"""The names of all training metrics, with their meaning.

`StepCompleted.metrics`, the CSV file and the other sinks use them. Names with a slash are
families: `ended_at/<limit>`, `masked/<reason>`, `filtered/<rule>`, `dropped/<reason>`,
`matched/<rule>`, `begun_tokens/<quantile>` and similar, `pass_at/<sessions>`, `return/<quantile>`,
`reward/<name>` and `reward/<name>/<quantile>`, `reward_of/<source>`, `reward_from/<split>`. With
several evaluation sets, each metric is a family by set: `eval_reward_mean/<set>`.
"""

from collections.abc import Mapping

METRICS: Mapping[str, str] = {
    "reward_mean": "Mean return over all sessions in the step's groups; a return is the weighted "
    "sum of a session's rewards (trainer.rewards)",
    "reward_std": "Standard deviation of the returns within a group; mean over the step's groups",
    "return/*": "Returns in the step's groups: p10, p50, p90 and p99",
    "reward/*": "Mean of each named reward, whether or not it counts, over the sessions that have "
    "it; after a second slash p10, p50, p90 and p99",
    "reward_of/*": "Part of the mean return that comes from each reward source (agent, verifier, "
    "human, model)",
    "reward_from/*": "Mean return in each task set, by its name",
    "groups_from/*": "Groups in the batch whose tasks come from this task set",
    "groups": "Groups in the batch",
    "sessions": "Sessions in the batch",
    "dropped/*": "Groups dropped since the previous step, by reason",
    "sessions_ended": "Training sessions that ended since the previous step",
    "turns_ended": "Turns in the sessions that ended since the previous step",
    "ended_at/*": "Share of the sessions ended since the previous step that a limit ended: time, "
    "context (the prompt was too long), max_tokens (the last completion was cut) or control (a "
    "rule in rollout.control ended it)",
    "turns_stopped": "Turns that a rule in rollout.control ended, in the sessions that ended since "
    "the previous step",
    "exempt_passed": "Exempt sessions since the previous step that the rule would have stopped, "
    "and that passed: with a return of at least 1",
    "exempt_failed": "Exempt sessions since the previous step that the rule would have stopped, "
    "and that did not pass",
    "failed_at_limit": "Sessions since the previous step that ended at a limit and count, although "
    "their agent failed or gave no reward (agents.on_limit zero)",
    "sessions_pruned": "Sessions that were stopped since the previous step because their group was "
    "complete without them (pacing.redundancy)",
    "begun_tokens/*": "Sampled tokens in each session that ended since the previous step, trained "
    "or not: p10, p50, p90, p99 and mean",
    "begun_turns/*": "Turns in each session that ended since the previous step: p10, p50, p90, p99 "
    "and mean",
    "trained_tokens/*": "Sampled tokens in each of the batch's sessions from which any token "
    "entered the loss: p10, p50, p90, p99 and mean",
    "trained_turns/*": "Turns in each of the batch's sessions from which any token entered the "
    "loss: p10, p50, p90, p99 and mean",
    "prompt_tokens/*": "Tokens in the first prompt of each session in the batch: p10, p50, p90, "
    "p99 and mean",
    "matched/*": "Share of turns whose prompt this rule matched: extend, render, root or same; in "
    "the sessions that ended since the previous step",
    "samples_failed": "Sessions since the previous step that did not count for their group",
    "samples_unrewarded": "Sessions since the previous step that did not count because they ended "
    "without a reward that trainer.rewards names",
    "tokens_trained": "Tokens that entered the loss",
    "tokens_masked": "Sampled tokens that did not enter the loss, for a reason in masked/*",
    "tokens_over_age": "Tokens older than trainer.max_staleness, whatever trainer.on_stale does "
    "with them; in the batch and in groups dropped since the previous step",
    "tokens_stale_longest": "Trained tokens in the longest chain that has a stale token",
    "tokens_saved": "Share of the tokens in the step's chains that were computed together with "
    "another chain's (trainer.layout tree)",
    "staleness_mean": "Mean staleness over trained tokens, in optimizer steps",
    "staleness_max": "Largest staleness among trained tokens, in optimizer steps",
    "foreign_share": "Share of trained tokens in sessions that have tokens sampled by another "
    "system",
    "reused_groups": "Groups that earlier steps trained and this step trains again (trainer.reuse)",
    "reused_share": "Share of trained tokens that belong to groups trained again",
    "forked_groups": "New groups that go on from one of the run's ended sessions "
    "(pacing.forks_live)",
    "forked_other_share": "Share of these forked groups in which a session's return differs from "
    "that of the session it goes on from",
    "stored_groups": "Stored groups that this step trains beside its new ones (trainer.replay)",
    "stored_replaced": "Stored sessions that replace a new one (trainer.replay)",
    "stored_share": "Share of trained tokens that belong to stored sessions",
    "explored_equal": "Explorations since the previous step whose returns are all equal",
    "explored_mixed": "Explorations since the previous step from which some sessions are sampled "
    "again",
    "sampled_again": "Sessions that sample a session from an exploration again (pacing.sampler "
    "explore)",
    "equal_texts": "Share of the sessions sampled again whose sampled tokens equal the explored "
    "session's",
    "unscored_share": "Share of trained tokens without a log-prob from their sampler",
    "reused_most": "Largest number of earlier steps that trained one of the groups trained again",
    "older_share": "Share of trained tokens that were sampled by earlier weights than those being "
    "trained",
    "equal_share": "Share of sessions whose trained tokens equal those of another session in their "
    "group",
    "divided_share": "Share of sessions with several chains, because they forked or their history "
    "was rendered anew",
    "largest_group_share": "Largest group's share of the trained tokens",
    "tasks": "Tasks with at least one trained token",
    "largest_task_share": "Largest task's share of the trained tokens",
    "overlong_share": "Share of the batch's sessions that trainer.overlong punished or masked",
    "overlong_penalty": "Punishment by trainer.overlong, mean over the batch's sessions",
    "pass_at/*": "Estimated chance that at least one of k sessions in a group has a return "  # nosec B105
    "of 1 or more; k is 1, 2, 4 and so on",
    "loss": "The step's loss: its trained tokens, summed as trainer.loss.aggregation says",
    "updates": "Optimizer updates in the step, if it has several; the metrics that each update "
    "gives are then averaged",
    "grad_norm": "Gradient norm before clipping",
    "reference_kl": "Estimated KL divergence between the trained policy and trainer.reference, in "
    "nats",
    "value_loss": "The critic's mean loss, at the places where it learns; with several outputs, "
    "the sum of their means",
    "value_mean": "The critic's mean value at the places where it learns, before the step",
    "explained_variance": "Share of the returns' variance that the critic's values explained, at "
    "the places where it learns and before the step; at most 1",
    "viability_mean": "Mean chance of success that the critic gave the turns whose outcome it "
    "learns, before the step (trainer.advantage habc)",
    "efficiency_mean": "Turns left until success as the critic predicts them, as a negative "
    "number; mean over the turns in successful sessions, before the step",
    "success_share": "Share of successes, with a return of trainer.critic.passes or more, among "
    "the sessions whose outcome the critic learns",
    "pairs": "Session pairs that the loss compared (trainer.pairs)",
    "pair_accuracy": "Share of pairs whose margin was above 0 before the step: the policy "
    "preferred the better session more than the models it is compared with do",
    "pair_margin": "Mean margin over the pairs before the step, in nats: per token with "
    "pairs_squared, per session with pairs_logistic",
    "learning_rate": "The step's learning rate",
    "clip_fraction": "Share of trained tokens whose gradient a bound in the loss cut or removed",
    "entropy": "Mean entropy at trained tokens under the policy, in nats",
    "ratio_mean": "Mean ratio between policy and engine probability, over trained tokens",
    "ratio_p99": "Ratio between policy and engine probability that at most one in a hundred "
    "trained tokens exceeds; exact to half a percent, between e^-3 and e^3",
    "policy_kl": "Estimated KL divergence between the trained policy and the policies that "
    "sampled, in nats",
    "effective_sample_size": "Effective sample size as a share of trained tokens",
    "mismatch_tokens": "Tokens measured under the same weights that sampled them",
    "mismatch_mean": "Mean absolute difference between the trainer's and the engine's log-probs, "
    "over the mismatch tokens",
    "mismatch_max": "Largest absolute difference between the trainer's and the engine's log-probs, "
    "over the mismatch tokens",
    "mismatch_kl": "Estimated KL divergence between engine and trainer over the mismatch tokens, "
    "in nats",
    "filtered/*": "Share of the batch's groups that this rule kept out of the loss",
    "masked/*": "Masked tokens in the batch and in groups dropped since the previous step, by rule",
    "eval_reward_mean": "Mean return in an evaluation, which has its own row",
    "eval_reward_error": "Standard error of the evaluation's mean return, as if its tasks were "
    "drawn at random",
    "eval_pass_at/*": "Estimated chance that at least one of k sessions for a task has a return "  # nosec B105
    "of evaluation.success or more; k is 1, 2, 4 and so on",
    "eval_pass_at_low/*": "Low end of the 95% interval around eval_pass_at",  # nosec B105
    "eval_pass_at_high/*": "High end of the 95% interval around eval_pass_at",  # nosec B105
    "eval_pass_all/*": "Estimated chance that all k sessions for a task have such a return",  # nosec B105
    "eval_pass_all_low/*": "Low end of the 95% interval around eval_pass_all",  # nosec B105
    "eval_pass_all_high/*": "High end of the 95% interval around eval_pass_all",  # nosec B105
    "eval_turns": "Mean turns in an evaluation session",
    "eval_sampled_tokens": "Mean tokens that the policy sampled in an evaluation session",
    "eval_prompt_tokens": "Mean prompt tokens in an evaluation session, over all its turns; a "
    "later prompt repeats what was read before",
    "eval_sessions": "Sessions in the evaluation",
    "eval_version": "Policy version that was evaluated",
    "eval_reward_mean/*": "Mean return in one of several evaluation sets, by its name",
    "eval_reward_error/*": "Standard error of that set's mean return",
    "eval_turns/*": "Mean turns in that set's sessions",
    "eval_sampled_tokens/*": "Mean tokens that the policy sampled in each of that set's sessions",
    "eval_prompt_tokens/*": "Mean prompt tokens in each of that set's sessions, over all turns",
    "eval_sessions/*": "Sessions in that set",
    "eval_version/*": "Policy version that was evaluated on that set",
    "batch_s": "Seconds from the previous step's end, or the trainer's start, until the batch is "
    "ready",
    "wait_s": "Seconds from the batch being ready until the step starts",
    "train_s": "Seconds from the step's start to its commit: columns, advantages, updates and the "
    "file of trained tokens",
    "annotate_s": "Seconds for the batch columns that the devices computed; 0 if there are none",
    "advantages_s": "Seconds for the advantages that follow from those columns",
    "update_s": "Seconds for packing, forward, backward and updates",
    "commit_s": "Seconds for the file of trained tokens, and for the commit until it is "
    "acknowledged",
    "modelled_s": "Seconds that modelled devices took for the updates, without the scale "
    "(trainer.backend clock, which computes no loss)",
    "publish_s": "Seconds for writing the weights",
    "checkpoint_s": "Seconds for the copy that a checkpoint takes after the previous step, a part "
    "of batch_s; its files are written beside other work",
    "tokens_per_s": "Trained tokens a second, over all phases from batch_s to publish_s",  # nosec B105
    "update_tokens_per_s": "Trained tokens a second in update_s; each counts once an epoch",  # nosec B105
}


def meaning_of(name: str) -> str:
    """Return a metric's meaning; empty for a metric that a user's function made."""
    if name in METRICS:
        return METRICS[name]
    family, slash, _ = name.partition("/")
    return METRICS.get(f"{family}/*", "") if slash else ""
