"""Submit descriptions, and the parsers of output recorded on HTCondor 23.9.6."""

from __future__ import annotations

import json
from typing import Any

import pytest

from torchx_kit.batch.errors import BatchError, EndedError, RefusedError
from torchx_kit.batch.request import BatchRequest
from torchx_kit.hosts.testing import FakeHost
from torchx_sched_htcondor.options import HTCondorOpts
from torchx_sched_htcondor.scheduler import create_scheduler
from torchx_sched_htcondor.states import CAUSES, cause_of, state_name
from torchx_sched_htcondor.system import HTCondor
from torchx_specs import AppDef, Resource, Role
from torchx_specs.errors import RequestError


def description(role: Role, folder: str = "/shared/a b", **options: Any) -> str:
    """Return the submit description of an app of one role."""
    app = AppDef("app", [role])
    request = BatchRequest(HTCondor(), "app-x", app, HTCondorOpts(**options), folder)
    [[job]] = request.jobs(folder)
    _, stdin = HTCondor().submission(job)
    assert stdin is not None
    return stdin.decode()


def test_description_has_resources_and_options() -> None:
    role = Role(
        "main",
        image="",
        entrypoint="true",
        num_replicas=3,
        resource=Resource(cpu=2, gpu=1, memMB=100),
    )
    text = description(role, time="1:00", extra=["request_memory = 2GB", "priority = 5"])
    lines = text.splitlines()
    assert "request_cpus = 2" in lines
    assert "request_gpus = 1" in lines
    assert "request_memory = 100" not in lines  # the user's own command replaces it
    assert lines[-3:] == ["request_memory = 2GB", "priority = 5", "queue 3"]
    limit = "periodic_remove = JobStatus == 2 && time() - JobCurrentStartDate > 60"
    assert limit in lines
    assert limit in description(role, time="1m").splitlines()


def test_odd_characters_of_a_folder_are_quoted() -> None:
    role = Role("main", image="", entrypoint="true")
    text = description(role, '/a b/it\'s $(x) "q"')
    assert 'initialdir = /a b/it\'s $(DOLLAR)(x) "q"\n' in text
    script = "'/a b/it''s $(DOLLAR)(x) \"\"q\"\"/.torchx-htcondor/app-x/script'"
    assert f"arguments = \"{script} '0' $(ProcId)\"\n" in text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"time": "1x"}, "option time: '1x' is not a time limit"),
        ({"container": "docker"}, "option container: 'docker' is not one of apptainer, none$"),
        ({"extra": ["queue = 5"]}, "option extra: 'queue' cannot be set; use Role.num_replicas"),
        ({"extra": ["-x"]}, "option extra: '-x' is not valid; use NAME = VALUE"),
        ({"requirements": "a\nqueue"}, "option requirements: .* contains a control character"),
        ({"accounting_group": "a b"}, "option accounting_group: 'a b' is not a name"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    with pytest.raises(RequestError, match=message):
        create_scheduler("test").submit_dryrun(app, options)


@pytest.mark.parametrize(
    ("ad", "state", "cause"),
    [
        ({"JobStatus": 1}, "idle", ""),
        ({"JobStatus": 2, "JobCurrentStartDate": 5}, "running", ""),
        (
            {"JobStatus": 2, "JobCurrentStartDate": 5, "JobDisconnectedDate": 6},
            "disconnected",
            "",
        ),
        (
            {"JobStatus": 2, "JobCurrentStartDate": 5, "JobDisconnectedDate": None},
            "running",
            "",
        ),
        ({"JobStatus": 3, "RemoteHost": "slot1@n1"}, "being removed", "removed"),
        ({"JobStatus": 3, "RemoveReason": "via condor_rm (by user x)"}, "removed", "removed"),
        (
            {"JobStatus": 3, "RemoveReason": "The job attribute PeriodicRemove expression"},
            "removed",
            "The job attribute PeriodicRemove",
        ),
        ({"JobStatus": 4, "ExitCode": 0, "ExitBySignal": False}, "completed", ""),
        ({"JobStatus": 4, "ExitCode": 130, "ExitBySignal": False}, "failed", ""),
        ({"JobStatus": 4, "ExitBySignal": True, "ExitSignal": 9}, "failed", ""),
        ({"JobStatus": 5, "HoldReasonCode": 1}, "held", ""),
        ({"JobStatus": 5, "HoldReasonCode": 6}, "held by an error", ""),
        ({"JobStatus": 5, "HoldReasonCode": 34}, "held by a policy", ""),
        ({"JobStatus": 7}, "suspended", ""),
        ({"JobStatus": 9}, "9", ""),
    ],
)
def test_states_and_causes(ad: dict[str, Any], state: str, cause: str) -> None:
    assert (state_name(ad), cause_of(ad)) == (state, cause)
    assert cause in ("", *CAUSES)


def test_jobs_that_htcondor_has_not_made_yet_wait(tmp_path: Any) -> None:
    made = {"ClusterId": 7, "ProcId": 0, "JobStatus": 2, "RemoteHost": "slot1_1@n2@n2"}
    factory = {"ClusterId": 7, "JobMaterializeNextProcId": 1, "TotalSubmitProcs": 3}

    def run(argv: list[str]) -> str:
        return json.dumps([factory if "-factory" in argv else made])

    jobs, _ = HTCondor(FakeHost(str(tmp_path), run)).listing(["7"])
    states = {job_id: (job.state, job.node) for job_id, job in jobs.items()}
    assert states == {
        "7.0": ("running", "n2"),
        "7.1": ("not made yet", ""),
        "7.2": ("not made yet", ""),
    }


def test_output_that_is_no_json_is_one_line() -> None:
    assert list(HTCondor().parse_listing("\n")) == []
    with pytest.raises(BatchError, match=r"HTCondor printed no JSON: .*; see condor_q -json"):
        list(HTCondor().parse_listing("-- Schedd"))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Couldn't find/remove all jobs in cluster 17", EndedError),
        ("Job 17.0 already marked for removal; Job 99.1 not found", EndedError),
        ("Job 17.0 not found; Permission denied", BatchError),
        ("ERROR: No such directory: /x", RefusedError),
    ],
)
def test_messages_become_errors(text: str, error: type[BatchError]) -> None:
    assert HTCondor().error_class(text) is error


def test_condor_submit_gets_the_variables_that_name_the_pool(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("_CONDOR_SCHEDD_HOST", "_CONDOR_COLLECTOR_HOST", "_CONDOR_SCRATCH_DIR"):
        monkeypatch.setenv(name, "1")
    app = AppDef("app", [Role("main", image="", entrypoint="true")])
    request = BatchRequest(HTCondor(), "app-x", app, HTCondorOpts(), "/shared")
    hidden = request.hidden_variables()
    assert [name for name in hidden if name.startswith("_CONDOR")] == ["_CONDOR_SCRATCH_DIR"]
