"""Tests of the suite of schedulers: working and broken ones, declared features, reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from suite_runs import Case, Run, run_cases

from torchx_testing.scheduler_cases.sessions import SessionCases

IMPORTS = """
import sys
import fake_scheduler
from torchx_testing.scheduler_suite import SchedulerConformance
"""


def case(
    scheduler: str,
    test: str = "",
    unsupported: dict[str, str] | None = None,
    cannot_carry: dict[str, str] | None = None,
    timeout: int = 30,
) -> Case:
    body = f"""
unsupported = {unsupported or {}!r}
cannot_carry = {cannot_carry or {}!r}
timeout = {timeout}
time_limit_cfg = {{}}
poll_interval = 0.05
python = sys.executable

@pytest.fixture
def scheduler(self):
    return fake_scheduler.{scheduler}()
"""
    return Case(f"Test{scheduler}", "SchedulerConformance", body, test)


ASCII_ONLY = "it speaks ASCII"
SPACES = ["no-break", "next line", "line sep", "paragraph", "zero-width", "ideographic"]
NOT_ASCII = ["unicode", "quote: \N{LEFT SINGLE QUOTATION MARK}"]
NOT_ASCII += [f"blank: {space}" for space in SPACES]

#: Schedulers with a defect, each with the test that must fail.
WRONG = [
    ("CutsLines", "test_no_log_line_is_cut_or_lost"),
    ("LosesExitCode", "test_failure_and_its_code"),
    ("UsesAShell", "test_hostile_values"),
    ("StripsVariables", "test_hostile_values"),
    ("PassesReferences", "test_a_secret_reaches_the_program_and_nothing_shows_it"),
    ("PassesReferences", "test_an_app_without_its_secret_does_not_run"),
    ("ShowsSecrets", "test_a_secret_reaches_the_program_and_nothing_shows_it"),
    ("ChangesTheApp", "test_dry_run_changes_nothing"),
    ("CancelFails", "test_cancel_a_running_app"),
    ("NeverRetries", "test_retries"),
    ("KnowsEverything", "test_an_unknown_app"),
    ("LeavesAFile", "test_dry_run_contacts_nobody_and_leaves_nothing"),
    ("AsksOnDryRun", "test_dry_run_contacts_nobody_and_leaves_nothing"),
    ("FollowsLate", "test_lines_come_while_the_job_runs"),
    ("FollowsForEver", "test_closing_ends_the_threads_that_follow_and_wait"),
    ("ForgetsToDelete", "test_delete"),
    ("SplitsAtEverySeparator", "test_odd_lines_stay_whole"),
    ("ReplacesBytes", "test_bytes_that_are_not_utf8"),
    ("OneIdForAll", "test_apps_from_several_threads"),
    ("KeepsRank0", "test_replicas_know_their_place_and_rank0"),
    ("RunsAnything", "test_any_name_of_an_app_is_accepted_or_refused"),
    ("RunsOneRetryTooMany", "test_retries"),
    ("KillsNothing", "test_kill_ends_a_running_app"),
    ("TreatsOneOfMany", "test_submit_many_yields_an_id_for_each_request"),
    ("TreatsOneOfMany", "test_many_apps_are_cancelled_and_deleted"),
    ("IgnoresTheLimit", "test_no_more_apps_than_allowed_run_at_the_same_time"),
    ("TurnsLogs", "test_lines_of_both_streams_keep_their_order"),
    ("HasNoSetup", "test_setup_lines_run_before_the_program"),
    ("NeverEndsAJob", "test_a_job_ends_at_its_time_limit"),
    ("WaitsForServers", "test_a_role_that_ends_the_app"),
    ("CountsNoGpus", "test_gpus_of_the_cluster_are_counted"),
    ("DeniesWhatItDoes", "test_a_call_for_which_the_record_denies_the_feature_is_an_error"),
    ("WaitsForNobody", "test_an_app_waits_for_another"),
    ("ShowsNoRequest", "test_the_native_request_of_an_app"),
    ("WaitsForTheNewline", "test_text_without_a_newline_is_followed"),
    ("WaitsWithoutATimeout", "test_optional_methods_have_the_signature_of_the_contract"),
    ("MixesUpLogs", "test_logs_of_several_replicas_arrive_whole_and_in_order"),
    ("SwapsTimes", "test_times_of_an_app"),
    ("ForgetsTheZone", "test_times_of_an_app"),
    ("TakesLocalTimeForUtc", "test_times_of_an_app"),
    ("ListsNoTimes", "test_times_of_an_app"),
    ("EndsWhatRuns", "test_an_app_that_runs_has_no_end"),
    ("ListsNoNames", "test_list_shows_the_name_of_an_app_as_soon_as_it_is_submitted"),
    ("CutsNames", "test_list_shows_the_name_of_an_app_as_soon_as_it_is_submitted"),
    ("EndsAllLogs", "test_the_log_of_a_missing_replica_does_not_end_the_others"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run, for each scheduler in WRONG, the test that must fail."""
    return run_cases(
        tmp_path_factory.mktemp("wrong"), IMPORTS, [case(*w, timeout=5) for w in WRONG]
    )


@pytest.mark.parametrize(("scheduler", "test"), WRONG)
def test_a_scheduler_that_is_wrong_fails(wrong: Run, scheduler: str, test: str) -> None:
    assert "failure" in wrong.outcomes[f"Test{scheduler}", test], wrong.text


def test_a_scheduler_that_works_passes(tmp_path: Path) -> None:
    run = run_cases(tmp_path, IMPORTS, [case("FakeScheduler")])
    assert set().union(*run.outcomes.values()) == {"passed", "skipped"}, run.text
    skipped = {test for (_, test), kinds in run.outcomes.items() if "skipped" in kinds}
    of_sessions = {name for name in vars(SessionCases) if name.startswith("test_")}
    others = {
        "test_log_of_a_time",
        "test_setup_lines_run_before_the_program",
        "test_a_job_ends_at_its_time_limit",
        "test_a_role_that_ends_the_app",
        "test_exit_code_75_starts_another_attempt",
        "test_describe",
        "test_cancel_a_pending_app",
        "test_the_native_request_of_an_app",
        "test_gpus_of_the_cluster_are_counted",
        "test_an_app_waits_for_another",
        "test_no_more_apps_than_allowed_run_at_the_same_time",
        "test_text_without_a_newline_is_followed",
    }
    assert skipped == of_sessions | others
    denied = "the scheduler's record denies it"
    assert f"TestFakeScheduler: exec ({len(of_sessions) - 2}): {denied}" in run.text
    assert "TestFakeScheduler: since_until (1): the fake keeps no times" in run.text


def test_a_scheduler_that_resolves_secrets_passes(tmp_path: Path) -> None:
    run = run_cases(
        tmp_path, IMPORTS, [case("ResolvesSecrets", "(test_a_secret or test_an_app_without)")]
    )
    assert set().union(*run.outcomes.values()) == {"passed"}, run.text
    assert len(run.outcomes) == 2


VALUES = "test_hostile_values"
BOTH = ("hostile_arguments", "hostile_environment")
#: What the schedulers or their suites declare, each with the name of its test class.
DECLARATIONS = {
    "TestSuite": case("UsesAShell", VALUES, dict.fromkeys(BOTH, "the fake quotes badly")),
    "TestScheduler": case("LacksValues", VALUES),
    "TestBoth": case("LacksValues", VALUES, dict.fromkeys(BOTH, "this shell is old")),
    "TestUnknown": case("FakeScheduler", "test_list", {"lisst": "a typo"}),
    "TestCarried": case(
        "FakeScheduler", "test_what_cannot_be_carried_is_refused", None, {"unicode": ASCII_ONLY}
    ),
    "TestRefused": case(
        "RefusesBytes",
        "(test_what_cannot or test_bytes or test_hostile)",
        {"not_utf8": ASCII_ONLY},
        dict.fromkeys(NOT_ASCII, ASCII_ONLY),
    ),
    "TestChanged": case(
        "ReplacesBytes", "test_bytes_that_are_not_utf8", {"not_utf8": "it speaks Unicode"}
    ),
}


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Run:
    cases = [declared._replace(name=name) for name, declared in DECLARATIONS.items()]
    return run_cases(tmp_path_factory.mktemp("declared"), IMPORTS, cases)


class TestDeclarations:
    def test_an_unknown_feature_is_an_error(self, declared: Run) -> None:
        message = "TestUnknown.unsupported: unknown feature 'lisst'; did you mean 'list'?"
        assert message in declared.text

    @pytest.mark.parametrize(
        ("name", "reason"),
        [
            ("TestSuite", "the fake quotes badly"),
            ("TestScheduler", "the fake quotes badly"),
            ("TestBoth", "this shell is old"),  # The suite's reason comes first.
        ],
    )
    def test_a_feature_that_is_lacking_is_skipped(
        self, declared: Run, name: str, reason: str
    ) -> None:
        assert declared.outcomes[name, VALUES] == {"skipped"}
        assert f"{name}: hostile_arguments (1): {reason}" in declared.text

    def test_a_value_that_is_carried_in_spite_of_its_declaration_fails(self, declared: Run) -> None:
        assert declared.outcomes["TestCarried", "test_what_cannot_be_carried_is_refused"] == {
            "failure"
        }

    def test_values_that_are_refused_pass(self, declared: Run) -> None:
        outcomes = [
            kinds for (name, _), kinds in declared.outcomes.items() if name == "TestRefused"
        ]
        assert outcomes == [{"passed"}] * 3, declared.text
        assert f"TestRefused: value 'unicode: latin' (1): {ASCII_ONLY}" in declared.text
        assert f"TestRefused: not_utf8 (1): {ASCII_ONLY}" in declared.text

    def test_a_value_that_changes_fails_in_spite_of_its_declaration(self, declared: Run) -> None:
        assert declared.outcomes["TestChanged", "test_bytes_that_are_not_utf8"] == {"failure"}


def test_patience_is_an_option(tmp_path: Path) -> None:
    never = case("NeverStarts", "test_cancel_a_running_app")
    run = run_cases(tmp_path, IMPORTS, [never], "--torchx-timeout", "0.5")
    assert "has not started after 0.5 seconds" in run.text


def test_conformance_tests_are_marked(tmp_path: Path) -> None:
    run = run_cases(tmp_path, IMPORTS, [case("FakeScheduler")], "-m", "not conformance")
    assert run.outcomes == {}
    assert "deselected" in run.text


def test_each_suite_has_a_report(tmp_path: Path) -> None:
    cases = [
        case("FakeScheduler", "test_success"),
        case("LosesExitCode", "test_failure_and_its_code"),
        case("LacksValues", VALUES),
    ]
    run_cases(tmp_path, IMPORTS, cases, "--torchx-report", "reports")
    reports = {
        path.parent.relative_to(tmp_path / "reports").as_posix(): json.loads(path.read_text())
        for path in tmp_path.glob("reports/*/*/report.json")
    }
    names = ["FakeScheduler", "LacksValues", "LosesExitCode"]
    assert sorted(reports) == [f"conformance/Test{name}" for name in names]
    passed, lacking, failed = (reports[f"conformance/Test{name}"] for name in names)
    assert passed["summary"] == {"passed": 1, "failed": 0, "skipped": 0}
    assert (passed["kind"], passed["name"], passed["suite"]) == (
        "scheduler",
        "conformance",
        "TestFakeScheduler",
    )
    assert failed["summary"] == {"passed": 0, "failed": 1, "skipped": 0}
    assert lacking["unsupported"] == dict.fromkeys(BOTH, "the fake quotes badly")
    for name in ("index.html", "badge.svg"):
        assert (tmp_path / "reports" / "conformance" / "TestFakeScheduler" / name).exists()
