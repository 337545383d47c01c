"""The names of all training metrics, with their meaning.

`StepCompleted.metrics`, the CSV file and the other sinks use them. Names with a slash are
families: `ended_at/<limit>`, `masked/<reason>`, `filtered/<rule>`, `dropped/<reason>`,
`matched/<rule>`, `begun_tokens/<quantile>` and similar, `pass_at/<sessions>`, `return/<quantile>`,
`reward/<name>` and `reward/<name>/<quantile>`, `reward_of/<source>`, `reward_from/<split>`. With
several evaluation sets, each metric is a family by set: `eval_reward_mean/<set>`.
"""

from collections.abc import Mapping

METRICS: Mapping[str, str] = {
    "reward_mean": "Mean return of all sessions of the step's groups, the weighted sum of their "
    "rewards (trainer.rewards)",
    "reward_std": "Mean standard deviation of returns within a group",
    "return/*": "Returns of these sessions: p10, p50, p90 and p99",
    "reward/*": "Mean of each named reward of theirs, whether or not it counts, over the sessions "
    "that have it; and behind a slash p10, p50, p90 and p99",
    "reward_of/*": "Mean part of their returns that rewards of each source make (agent, verifier, "
    "human, model)",
    "reward_from/*": "Mean return of the sessions of a task set, by its name",
    "groups_from/*": "Groups of the batch whose tasks are of that set",
    "groups": "Groups of the batch",
    "sessions": "Sessions of the batch",
    "dropped/*": "Groups dropped since the step before, by reason",
    "sessions_ended": "Training sessions that ended since the step before",
    "turns_ended": "Their turns",
    "ended_at/*": "Share of the sessions since the step before that a limit ended: time, context "
    "(the prompt was too long), max_tokens (the last completion was cut) or control (a rule of "
    "rollout.control ended it)",
    "turns_stopped": "Turns of the sessions that ended since the step before, which a rule of "
    "rollout.control ended",
    "exempt_passed": "Those sessions that the rule would have stopped if they had not been exempt, "
    "and that passed: with a return of at least 1",
    "exempt_failed": "Those of them that did not pass",
    "failed_at_limit": "Those of them whose agent failed or gave no reward, and that count "
    "(agents.on_limit zero)",
    "sessions_pruned": "Sessions that were stopped since the step before because their group was "
    "complete without them (pacing.redundancy)",
    "begun_tokens/*": "Sampled tokens of the sessions that ended since the step before, trained or "
    "not: p10, p50, p90, p99 and mean",
    "begun_turns/*": "Their turns",
    "trained_tokens/*": "Sampled tokens of the batch's sessions of which any entered the loss: "
    "p10, p50, p90, p99 and mean",
    "trained_turns/*": "Their turns",
    "prompt_tokens/*": "Tokens of the first prompt of each of the batch's sessions: p10, p50, p90, "
    "p99 and mean",
    "matched/*": "Share of the turns of the sessions that ended since the step before, by the rule "
    "that matched their prompt: extend, render, root or same",
    "samples_failed": "Sessions that did not count since the step before",
    "samples_unrewarded": "Those of them that ended without a reward that trainer.rewards names",
    "tokens_trained": "Tokens that entered the loss",
    "tokens_masked": "Sampled tokens that did not enter the loss for a reason of masked/*",
    "tokens_over_age": "Tokens of the batch, and of groups dropped since the step before, that are "
    "older than trainer.max_staleness, whatever trainer.on_stale does with them",
    "tokens_stale_longest": "Trained tokens of the longest chain with a stale token",
    "tokens_saved": "Share of the tokens of the step's chains that were computed with those of "
    "another chain (trainer.layout tree)",
    "staleness_mean": "Mean staleness of trained tokens in optimizer steps",
    "staleness_max": "Largest staleness of a trained token in optimizer steps",
    "foreign_share": "Share of trained tokens in sessions of which another system sampled tokens",
    "reused_groups": "Groups that earlier steps trained and this one trains again (trainer.reuse)",
    "reused_share": "Share of trained tokens that are of such groups",
    "forked_groups": "New groups that go on from ended sessions of the run (pacing.forks_live)",
    "forked_other_share": "Share of those with a session that ended with another return",
    "stored_groups": "Stored groups that this step trains beside its new ones (trainer.replay)",
    "stored_replaced": "Stored sessions that took the place of a new one (trainer.replay)",
    "stored_share": "Share of trained tokens that are of stored sessions",
    "explored_equal": "Explorations since the step before whose returns are equal",
    "explored_mixed": "Explorations since then of which some sessions are sampled again",
    "sampled_again": "Sessions that sample one of an exploration again (pacing.sampler explore)",
    "equal_texts": "Share of these sessions whose sampled tokens are those of the explored one",
    "unscored_share": "Share of trained tokens without a log-prob of their sampler",
    "reused_most": "Largest number of earlier steps that trained one of them",
    "older_share": "Share of trained tokens that earlier weights than the trained ones sampled",
    "equal_share": "Share of the sessions whose trained tokens are those of another of their group",
    "divided_share": "Share of the sessions with several chains: forks, or a history that was "
    "rendered anew",
    "largest_group_share": "Share of the trained tokens that are of the group with most of them",
    "tasks": "Tasks of which any tokens are trained",
    "largest_task_share": "Share of the trained tokens that are of the task with most of them",
    "overlong_share": "Share of the batch's sessions that trainer.overlong punished or masked",
    "overlong_penalty": "Mean over the batch's sessions of what it took from their returns",
    "pass_at/*": "Estimated chance that one of so many sessions of a group, 1, 2, 4 and so on, "  # nosec B105
    "has a return of 1 or more",
    "loss": "Loss of the step: its trained tokens as trainer.loss.aggregation adds them up",
    "updates": "Optimizer updates of the step, if it has several; what each tells is their mean",
    "grad_norm": "Norm of the gradient before clipping",
    "reference_kl": "Estimated KL divergence of the trained policy from trainer.reference, in nats",
    "value_loss": "Mean loss of the critic, at the places where it learns; with several outputs "
    "the sum of their means",
    "value_mean": "Mean value there, before the step",
    "explained_variance": "Share of the variance of the returns there that the values explained "
    "before the step; at most 1",
    "viability_mean": "Mean chance of success that the critic gave the turns whose outcome it "
    "learns, before the step (trainer.advantage habc)",
    "efficiency_mean": "Mean value of its turns to success, with a minus, before the turns of "
    "successes",
    "success_share": "Share of successes, with a return of trainer.critic.passes or more, among "
    "the sessions whose outcome it learns",
    "pairs": "Pairs of sessions that the loss compared (trainer.pairs)",
    "pair_accuracy": "Share of them whose margin was above 0 before the step: the policy preferred "
    "the better session, more than those it is compared with do",
    "pair_margin": "Mean margin of the pairs before the step, in nats: a token with pairs_squared, "
    "a session with pairs_logistic",
    "learning_rate": "Learning rate of the step",
    "clip_fraction": "Share of trained tokens whose gradient a bound of the loss cut or took away",
    "entropy": "Mean entropy of the policy at trained tokens, in nats",
    "ratio_mean": "Mean of policy over engine probability of trained tokens",
    "ratio_p99": "Ratio that no more than one in a hundred of these tokens exceeds, within half a "
    "percent, between e^-3 and e^3",
    "policy_kl": "Estimated KL divergence of the trained policy from those that sampled, in nats",
    "effective_sample_size": "Effective sample size as a share of trained tokens",
    "mismatch_tokens": "Tokens measured under the same weights that sampled them",
    "mismatch_mean": "Their mean absolute difference of log-probs, trainer to engine",
    "mismatch_max": "Their largest absolute difference",
    "mismatch_kl": "Their estimated KL divergence, in nats",
    "filtered/*": "Share of the batch's groups that a rule kept out of the loss",
    "masked/*": "Masked tokens of the batch and of groups dropped since the step before, by rule",
    "eval_reward_mean": "Mean return of an evaluation, which is a row of its own",
    "eval_reward_error": "Standard error of that mean, as if the tasks were drawn at random",
    "eval_pass_at/*": "Estimated chance that one of so many sessions of a task, 1, 2, 4 and so on, "  # nosec B105
    "has a return of evaluation.success or more",
    "eval_pass_at_low/*": "Low end of the interval of 95% of each",  # nosec B105
    "eval_pass_at_high/*": "High end of it",  # nosec B105
    "eval_pass_all/*": "Estimated chance that all of so many sessions of a task have such a return",  # nosec B105
    "eval_pass_all_low/*": "Low end of the interval of 95% of each",  # nosec B105
    "eval_pass_all_high/*": "High end of it",  # nosec B105
    "eval_turns": "Mean turns of its sessions",
    "eval_sampled_tokens": "Mean tokens that the policy sampled in each",
    "eval_prompt_tokens": "Mean prompt tokens of all turns of each, with all that was read before",
    "eval_sessions": "Its sessions",
    "eval_version": "Version that was evaluated",
    "eval_reward_mean/*": "Mean return of one of several evaluation sets, by its name",
    "eval_reward_error/*": "Its standard error",
    "eval_turns/*": "Mean turns of its sessions",
    "eval_sampled_tokens/*": "Mean tokens that the policy sampled in each",
    "eval_prompt_tokens/*": "Mean prompt tokens of all turns of each",
    "eval_sessions/*": "Its sessions",
    "eval_version/*": "Version that was evaluated on it",
    "batch_s": "From the end of the step before, or the trainer's start, to the batch being ready, "
    "in seconds",
    "wait_s": "From the batch being ready to the step's start, in seconds",
    "train_s": "All from the step's start to its commit: columns, advantages, updates, the file of "
    "trained tokens; in seconds",
    "annotate_s": "Columns of the batch that the devices computed, in seconds; 0 if there is none",
    "advantages_s": "Advantages that follow from those columns, in seconds",
    "update_s": "Packing, forward, backward and updates, in seconds",
    "commit_s": "The file of trained tokens, and the commit until it is acknowledged, in seconds",
    "modelled_s": "Seconds that modelled devices took for them, without the scale (trainer.backend "
    "clock, which computes no loss)",
    "publish_s": "Writing the weights, in seconds",
    "checkpoint_s": "The copy for a checkpoint behind the step before, which is a part of batch_s, "
    "in seconds; its files are written beside other work",
    "tokens_per_s": "Trained tokens a second, of all phases from batch_s to publish_s",  # nosec B105
    "update_tokens_per_s": "Trained tokens a second of update_s, each once an epoch",  # nosec B105
}


def meaning_of(name: str) -> str:
    """Return a metric's meaning; empty for a metric that a user's function made."""
    if name in METRICS:
        return METRICS[name]
    family, slash, _ = name.partition("/")
    return METRICS.get(f"{family}/*", "") if slash else ""
