"""Sharing of the tests among processes: `pytest -n 3` has three, each with a broker of its own.

A file is one unit, so that its fixtures are made once. Whole runs and computations are one unit all
together: two of them at once would take the cores from each other and miss their deadlines.
"""

from collections.abc import Iterable

from xdist.scheduler import LoadScopeScheduling

ALONE = (
    "tests/e2e",
    "tests/faults",
    "tests/golden",
    "tests/integration/trainer/gang",
    "tests/integration/trainer/memory",
)
"""Folders of which never two tests run at once."""
_TOGETHER = "alone"
"""The unit that they are."""

NIGHTLY = (
    "tests/e2e/runs/test_adapters.py",
    "tests/e2e/runs/test_classes.py",
    "tests/e2e/runs/test_demo.py::test_ctrl_c_ends_everything_in_order[warm-up.log]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[expert]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[judge]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[league]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[lockstep]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[multi_turn_game]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[own_environment]",
    "tests/e2e/runs/test_examples.py::test_an_example_trains[two_policies]",
    "tests/e2e/runs/test_examples.py::test_sessions_of_one_example_are_the_beginnings_of_another",
    "tests/e2e/runs/test_failing_agent.py",
    "tests/e2e/runs/test_model_hub.py",
    "tests/e2e/runs/test_names.py",
    "tests/e2e/runs/test_nodes.py::test_a_gang_on_two_nodes",
    "tests/e2e/runs/test_nodes.py::test_a_node_that_does_not_see",
    "tests/e2e/runs/test_paths.py",
    "tests/e2e/runs/test_policies.py::test_each_policy_trains_its_own_tokens_of_the_sessions_that_both",
    "tests/e2e/runs/test_rehearsal.py",
    "tests/e2e/runs/test_second_run.py",
    "tests/e2e/test_frozen_policies.py::test_a_frozen_policy_answers_and_no_token_of_it_is_trained",
    "tests/e2e/test_real_demo.py",
    "tests/exploration/test_exploration.py::test_no_worker_holds_two_roles_and_every_state_leads_on[crash]",
    "tests/faults/test_leader.py",
    "tests/faults/test_matrix.py",
    "tests/integration/infra/test_group_lookup.py",
    "tests/integration/infra/test_hanging_transactions.py::test_a_kafka_that_starts_meanwhile",
    "tests/integration/infra/test_hanging_transactions.py::test_on_a_secured_cluster",
    "tests/integration/infra/test_stranded.py::test_a_member_of_a_group_whose_commit",
    "tests/integration/recorded/test_share.py::test_bad_records_end_nothing[10000]",
    "tests/integration/scheduler/test_arms.py::test_schedulers_killed_at_any_moment_lose_no_statistics[1]",
    "tests/integration/seamlessflow/test_environments_doctor.py::test_an_episode_that_fails",
    "tests/integration/seamlessflow/test_environments_doctor.py::test_the_example_s_episodes",
    "tests/integration/seamlessflow/test_topics.py::test_three_brokers_keep_three_copies",
    "tests/integration/trainer/gang/test_whole_steps.py::test_logits_in_parts_are_those_of_one_rank[megatron",
    "tests/integration/trainer/memory",
    "tests/integration/trainer/test_several_devices.py::test_the_end_of_a_further_rank_ends_all_and_the_run_goes_on[megatron",
    "tests/integration/trajectories/test_garbage.py::test_a_manager_stops_at_a_record_of_a_newer_release_and_commits_nothing_behind_it[topic1]",
    "tests/integration/trajectories/test_garbage.py::test_a_manager_stops_at_a_record_of_a_newer_release_and_commits_nothing_behind_it[topic2]",
    "tests/integration/trajectories/test_group_protocols.py::test_managers_share_and_take_over_on_a_broker_without",
    "tests/unit/benchmarks/test_algorithms.py::test_three_steps_are_equal_for_equal_seeds[distill]",
    "tests/unit/benchmarks/test_algorithms.py::test_three_steps_are_equal_for_equal_seeds[turn",
    "tests/unit/benchmarks/test_gpu.py::test_a_part_runs_on_a_cpu_and_its_figures_are_json[real]",
    "tests/unit/benchmarks/test_gpu.py::test_a_part_runs_on_a_cpu_and_its_figures_are_json[run]",
    "tests/unit/benchmarks/test_gpu.py::test_a_part_runs_on_a_cpu_and_its_figures_are_json[shapes-4b]",
    "tests/unit/benchmarks/test_gpu.py::test_a_part_runs_on_a_cpu_and_its_figures_are_json[shapes-8b]",
    "tests/unit/benchmarks/test_gpu.py::test_a_part_that_lacks_something_is_skipped_and_says_what[throughput]",
    "tests/properties/test_invariants.py::test_the_invariants_hold_in_thousands_of_sessions",
)
"""Beginnings of the ids of tests that `scripts/nightly` runs.

They take a minute or more, or a quicker test shows most of the same.
"""


def is_nightly(test: str) -> bool:
    """Return whether a test, by its id, is one of those at night."""
    return test.startswith(NIGHTLY)


def unit_of(test: str) -> str:
    """Return the unit that a test belongs to, by its id."""
    file = test.partition("::")[0]
    return _TOGETHER if file.startswith(tuple(f"{folder}/" for folder in ALONE)) else file


def readable(sections: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return captured output without what UTF-8 lacks, which no process could send."""
    return [(name, text.encode(errors="backslashreplace").decode()) for name, text in sections]


class SharedByFile(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """Gives each process one unit at a time: whole runs first, then the largest.

    Whole runs take longest. Were they begun late, the other processes would wait for them.
    """

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)

    def _assign_work_unit(self, node: object) -> None:
        if _TOGETHER in self.workqueue:
            self.workqueue.move_to_end(_TOGETHER, last=False)
        super()._assign_work_unit(node)
