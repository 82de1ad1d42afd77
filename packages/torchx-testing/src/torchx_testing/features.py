"""The features that a scheduler or another plugin may lack, for the conformance suites."""

from __future__ import annotations

from dataclasses import fields

from torchx_specs.schedulers.features import SchedulerFeatures

#: The features that ``unsupported`` may name in the suite of schedulers.
SCHEDULER = frozenset(field.name for field in fields(SchedulerFeatures))

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
