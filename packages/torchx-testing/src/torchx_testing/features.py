"""The features that a scheduler or another plugin may lack, for the conformance suites."""

from __future__ import annotations

#: The features that ``unsupported`` in the suite of schedulers, and a scheduler's ``lacks``, may
#: name.
SCHEDULER = frozenset(
    {
        "exit_code",
        "retries",
        "restart_count",
        "list",
        "delete",
        "cancel_state",
        "cancel_pending",
        "streams",
        "regex",
        "since_until",
        "tail",
        "closing",
        "blank_lines",
        "unterminated_line",
        "undecodable_output",
        "several_roles",
        "rank0",
        "hostile_arguments",
        "hostile_environment",
        "not_utf8",
        "odd_names",
        "describe_roles",
        "secrets",
        "times",
    }
)

#: The features that ``unsupported`` may name in the suite of trackers.
TRACKER = frozenset(
    {
        "artifacts",
        "artifact_metadata",
        "sources",
        "artifact_sources",
        "lineage",
        "run_ids",
        "parent_filter",
        "odd_run_ids",
        "odd_names",
        "typed_metadata",
        "cycles",
        "threads",
        "reopen",
    }
)

#: The features that ``unsupported`` may name in the suite of workspace builders.
WORKSPACE = frozenset(
    {
        "addressed_by_input",
        "base_image",
        "links",
        "modes",
        "several_projects",
        "build_again",
        "missing_workspace",
        "fsspec",
    }
)

#: The features that ``unsupported`` may name in the suite of distributions.
DISTRIBUTION = frozenset({"factories_offline"})
