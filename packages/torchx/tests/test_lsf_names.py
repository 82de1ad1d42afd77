"""Names of ``torchx.schedulers.lsf_scheduler`` in older TorchX releases."""

from __future__ import annotations

import pytest

from torchx.schedulers.lsf_scheduler import (
    JOB_STATE,
    LsfBsub,
    LsfOpts,
    bjobs_msg_to_describe,
    bjobs_msg_to_list,
    bjobs_msg_to_log_file,
    cleanup_str,
    find_rank0_host_from_bhosts_stdout,
    get_bsub,
    get_command,
    get_docker_command,
    get_job_state,
    get_submit_script,
)
from torchx_specs import AppDef, AppState, Resource, Role
from torchx_specs.schedulers import Stream


def test_states() -> None:
    assert get_job_state("EXIT", "1") == AppState.FAILED
    assert get_job_state("EXIT", "130") == AppState.CANCELLED
    assert get_job_state("NEW", "-") == AppState.UNKNOWN
    assert {JOB_STATE[s] for s in ("PEND", "PSUSP", "USUSP", "SSUSP")} == {AppState.PENDING}


def test_parsers_of_bjobs() -> None:
    msg = "app app-a-b-0 DONE -\napp app-a-b-1 EXIT 3\nother other-x-0 RUN -\n"
    found = bjobs_msg_to_describe("app", msg)
    assert found is not None
    assert found.state == AppState.FAILED
    assert [(r.role, len(r.replicas)) for r in found.roles_statuses] == [("a-b", 2)]
    assert bjobs_msg_to_describe("app", "") is None
    listed = bjobs_msg_to_list("app DONE -\nb RUN -\napp DONE -\n")
    assert [(a.app_id, a.state) for a in listed] == [
        ("app", AppState.SUCCEEDED),
        ("b", AppState.RUNNING),
    ]


def test_log_files() -> None:
    msg = "app app-main-0 /jobs/x y\napp app-main-1 -\n"
    assert bjobs_msg_to_log_file("app", "main", 0, None, msg) == "/jobs/x y/app-main-0.out"
    path = bjobs_msg_to_log_file("app", "main", 0, Stream.STDERR, msg)
    assert path == "/jobs/x y/app-main-0.err"
    for k, stream in ((0, Stream.COMBINED), (1, None), (2, None)):
        with pytest.raises(ValueError, match=r"lsf writes|no output directory"):
            bjobs_msg_to_log_file("app", "main", k, stream, msg)


def test_rank0_host() -> None:
    role = Role("main", image="", resource=Resource(cpu=4, gpu=1, memMB=1))
    assert find_rank0_host_from_bhosts_stdout("a 2 0\nb 8 0\nc 8 4\n", role) == "c"
    with pytest.raises(ValueError, match="no host"):
        find_rank0_host_from_bhosts_stdout("a 2 0\n", role)


def test_command_lines() -> None:
    cfg = LsfOpts(jobdir="/j d")
    resource = Resource(cpu=2, gpu=0, memMB=64)
    job = Role("main", "i", entrypoint="python", args=["-m", "x"], env={"A": "b c"})
    job.resource = resource
    line = get_docker_command("name", job, cfg)
    assert line.startswith("docker run --name=name")
    assert "-e 'A=b c' --entrypoint python --rm i -m x" in line
    assert get_command("n", job, cfg).endswith(" > '/j d/n.out' 2> '/j d/n.err'")
    assert "-m host" in get_bsub("app", "app-r-0", job, cfg, "app-r-0", "host")
    other = get_bsub("app", "app-r-1", job, {"lsf_queue": "q"}, "app-r-0", "host")
    assert "-w 'started(app-r-0)'" in other
    assert "-q q" in other
    app = AppDef("x", [job])
    made = get_submit_script("app", ["/bin/bash"], app, cfg, "host")
    assert made == LsfBsub("/j d", "app", app, cfg, ["/bin/bash"]).materialize("host")
    assert made.startswith("#!/bin/bash")


def test_cleanup_str() -> None:
    assert cleanup_str("-Ab c_1-é") == "abc_1-"
