"""The conformance suite passes for a scheduler that works, and fails for one that does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from suite_runs import Case, Run, run_cases

IMPORTS = """
import sys
import fake_scheduler
from torchx_testing.scheduler_suite import SchedulerConformance
"""
#: What the fake does not do.
UNSUPPORTED = {
    "since_until": "the fake keeps no times",
    "describe_roles": "the fake keeps none",
    "cancel_pending": "its jobs start at once",
}


def case(
    scheduler: str,
    test: str = "",
    unsupported: dict[str, str] | None = None,
    cannot_carry: dict[str, str] | None = None,
    timeout: int = 30,
) -> Case:
    body = f"""
unsupported = {UNSUPPORTED | (unsupported or {})!r}
cannot_carry = {cannot_carry or {}!r}
timeout = {timeout}
poll_interval = 0.05
long_job = 4
python = sys.executable

@pytest.fixture
def scheduler(self):
    return fake_scheduler.{scheduler}()
"""
    return Case(f"Test{scheduler}", "SchedulerConformance", body, test)


#: A way to be wrong, and the test that finds it out.
WRONG = [
    ("CutsLines", "test_no_log_line_is_cut_or_lost"),
    ("LosesExitCode", "test_failure_and_its_code"),
    ("UsesAShell", "test_hostile_arguments"),
    ("StripsVariables", "test_hostile_environment"),
    ("PassesReferences", "test_a_secret_reaches_the_program_and_nothing_shows_it"),
    ("PassesReferences", "test_an_app_without_its_secret_does_not_run"),
    ("ShowsSecrets", "test_a_secret_reaches_the_program_and_nothing_shows_it"),
    ("ChangesTheApp", "test_dry_run_changes_nothing"),
    ("CancelFails", "test_cancel_a_running_app"),
    ("NeverRetries", "test_retries"),
    ("KnowsEverything", "test_an_unknown_app"),
    ("SubmitsOnDryRun", "test_dry_run_submits_nothing"),
    ("LeavesAFile", "test_dry_run_contacts_nobody_and_leaves_nothing"),
    ("AsksOnDryRun", "test_dry_run_contacts_nobody_and_leaves_nothing"),
    ("FollowsLate", "test_lines_come_while_the_job_runs"),
    ("ForgetsToDelete", "test_delete"),
    ("SplitsAtEverySeparator", "test_odd_lines_stay_whole"),
    ("ReplacesBytes", "test_bytes_that_are_not_utf8"),
    ("OneIdForAll", "test_apps_from_several_threads"),
    ("KeepsRank0", "test_rank0_host"),
    ("RunsAnything", "test_any_name_is_taken_or_refused"),
    ("RunsOneRetryTooMany", "test_retries"),
    ("KillsNothing", "test_kill_ends_a_running_app"),
    ("SubmitsOneOfMany", "test_submit_many_yields_an_id_for_each_request"),
    ("WaitsWithoutATimeout", "test_optional_methods_have_the_signature_of_the_contract"),
    ("MixesUpLogs", "test_logs_of_several_replicas_arrive_whole_and_in_order"),
    ("EndsAllLogs", "test_the_log_of_a_missing_replica_does_not_end_the_others"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run each scheduler that is wrong."""
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
    assert skipped == {"test_log_of_a_time", "test_describe", "test_cancel_a_pending_app"}
    assert "declared unsupported: 3" in run.text
    assert "TestFakeScheduler: since_until (1): the fake keeps no times" in run.text


def test_a_scheduler_that_resolves_secrets_passes(tmp_path: Path) -> None:
    run = run_cases(
        tmp_path, IMPORTS, [case("ResolvesSecrets", "(test_a_secret or test_an_app_without)")]
    )
    assert set().union(*run.outcomes.values()) == {"passed"}, run.text
    assert len(run.outcomes) == 2


class TestDeclarations:
    def test_of_a_feature_that_does_not_exist(self, tmp_path: Path) -> None:
        run = run_cases(
            tmp_path, IMPORTS, [case("FakeScheduler", "test_list", {"lisst": "a typo"})]
        )
        message = "TestFakeScheduler.unsupported: unknown feature 'lisst'; did you mean 'list'?"
        assert message in run.text

    def test_leave_only_that_out(self, tmp_path: Path) -> None:
        reason = {"hostile_arguments": "the fake quotes badly"}
        run = run_cases(tmp_path, IMPORTS, [case("UsesAShell", "test_hostile_arguments", reason)])
        assert run.outcomes["TestUsesAShell", "test_hostile_arguments"] == {"skipped"}
        assert "hostile_arguments (1): the fake quotes badly" in run.text

    def test_of_values_that_are_carried_all_the_same(self, tmp_path: Path) -> None:
        test = "test_what_cannot_be_carried_is_refused"
        declared = case("FakeScheduler", test, None, {"unicode": "it speaks ASCII"})
        run = run_cases(tmp_path, IMPORTS, [declared])
        assert run.outcomes["TestFakeScheduler", test] == {"failure"}

    def test_of_values_that_are_refused(self, tmp_path: Path) -> None:
        ascii_only = "it speaks ASCII"
        spaces = ["no-break", "next line", "line sep", "paragraph", "zero-width", "ideographic"]
        names = ["unicode", "quote: \N{LEFT SINGLE QUOTATION MARK}"]
        names += [f"blank: {space}" for space in spaces]
        cannot = dict.fromkeys(names, ascii_only)
        test = "(test_what_cannot or test_bytes or test_hostile)"
        declared = case("RefusesBytes", test, {"not_utf8": ascii_only}, cannot)
        run = run_cases(tmp_path, IMPORTS, [declared])
        assert set().union(*run.outcomes.values()) == {"passed"}, run.text
        assert len(run.outcomes) == 4
        assert "TestRefusesBytes: value 'unicode: latin' (1): it speaks ASCII" in run.text
        assert "TestRefusesBytes: not_utf8 (1): it speaks ASCII" in run.text

    def test_do_not_excuse_a_change(self, tmp_path: Path) -> None:
        lacks = {"not_utf8": "it speaks Unicode"}
        test = "test_bytes_that_are_not_utf8"
        run = run_cases(tmp_path, IMPORTS, [case("ReplacesBytes", test, lacks)])
        assert run.outcomes["TestReplacesBytes", test] == {"failure"}


def test_conformance_tests_are_marked(tmp_path: Path) -> None:
    run = run_cases(tmp_path, IMPORTS, [case("FakeScheduler")], "-m", "not conformance")
    assert run.outcomes == {}
    assert "deselected" in run.text


def test_patience_is_an_option(tmp_path: Path) -> None:
    never = case("NeverStarts", "test_running_is_reported")
    run = run_cases(tmp_path, IMPORTS, [never], "--torchx-timeout", "0.5")
    assert "has not started after 0.5 seconds" in run.text
