"""What needs no LSF: the request and its script, what LSF prints, names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.records import JobRecord
from torchx_sched_lsf import queries, records, states
from torchx_sched_lsf.scheduler import (
    JOB_STATE,
    LsfBsub,
    LsfError,
    LsfOpts,
    LsfScheduler,
    bjobs_msg_to_describe,
    bjobs_msg_to_list,
    bjobs_msg_to_log_file,
    cleanup_str,
    create_scheduler,
    find_rank0_host_from_bhosts_stdout,
    get_bsub,
    get_command,
    get_docker_command,
    get_job_state,
    get_submit_script,
)
from torchx_specs import AppDef, AppState, BindMount, Resource, Role, VolumeMount, macros
from torchx_specs.errors import RequestError
from torchx_specs.schedulers import Stream


def role(name: str = "main", **attributes: object) -> Role:
    values: dict[str, object] = {
        "image": "",
        "entrypoint": "python",
        "args": ["-m", "train"],
        "resource": Resource(cpu=2, gpu=0, memMB=64),
    }
    return Role(name, **{**values, **attributes})  # type: ignore[arg-type]


@pytest.fixture
def scheduler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LsfScheduler:
    monkeypatch.setenv("TORCHX_HOME", str(tmp_path / "torchx"))
    monkeypatch.setenv("PATH", "")  # a dry run calls nobody
    monkeypatch.chdir(tmp_path)
    return create_scheduler("test", docker_client="ignored")


def text(scheduler: LsfScheduler, *roles: Role, **cfg: object) -> str:
    info = scheduler.submit_dryrun(AppDef("My App", list(roles)), cfg)
    made: str = info.request.materialize()
    return made


def submissions(made: str) -> list[str]:
    return re.findall(r"^submit .*$", made, re.M)


def test_what_a_replica_said_last_counts(
    scheduler: LsfScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end while bjobs is asked."""
    roles = [records.RoleEntry("main", "main", ["7"])]
    entry = records.Entry("app-1", "app", str(tmp_path), roles=roles)
    records.Index().put(entry)
    record = JobRecord(LocalHost(), entry.record)
    record.create(records.SCRIPT, "", "jobdir")
    said = Path(record.replica_path(0, 0))
    said.write_text("0 host 1\n")

    def ends_meanwhile(_: object, jobs: list[str]) -> dict[str, queries.Job]:
        said.write_text("2 host 1 2 3\n")
        return {jobs[0]: queries.Job(jobs[0], "EXIT")}

    monkeypatch.setattr("torchx_sched_lsf.describe.jobs_by_id", ends_meanwhile)
    found = scheduler.describe("app-1")
    assert found is not None
    [status] = found.roles_statuses[0].replicas
    assert (found.state, status.restarts, status.exit_code) == (AppState.FAILED, 2, 3)


class TestScript:
    def test_a_job_for_each_replica_after_the_first(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(num_replicas=2), role("b"), lsf_queue="q", time="1:30")
        app_id = re.findall(r"^tx_app=(\S+)$", made, re.M)[0]
        assert app_id.startswith("myapp-")
        asked = "-q q -W 1:30 -n 2 -R 'span[hosts=1] rusage[mem=64]'"
        assert submissions(made) == [
            f"submit 0 0 {asked}",
            f"submit 0 1 {asked} -w 'started({app_id}-main-0)'",
            f"submit 1 0 {asked} -w 'started({app_id}-main-0)'",
        ]

    def test_bash_reads_it(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role("it's\n", args=["x\ny", "'", "é"]), jobdir="/a 'b'")
        done = subprocess.run(["/bin/bash", "-n"], input=made, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.fullmatch(r"[\n -~]*", made)

    def test_brackets_are_balanced_without_memory(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(resource=Resource(cpu=-1, gpu=-1, memMB=-1)))
        assert submissions(made) == ["submit 0 0 -R 'span[hosts=1]'"]

    def test_gpus(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(resource=Resource(cpu=1, gpu=2, memMB=1)))
        assert "-gpu num=2:mode=shared:j_exclusive=yes" in made

    def test_docker_gets_variables_by_name(self, scheduler: LsfScheduler) -> None:
        job = role(
            image="ubuntu:24.04",
            env={"TOKEN_X": "hush hush", "a.b": "c"},
            mounts=[BindMount("/a b", "/c", read_only=True), VolumeMount("v", "/v")],
            port_map={"http": 80},
        )
        made = text(scheduler, job)
        assert "-e TOKEN_X" in made
        assert made.count("hush hush") == 1
        assert "-v '/a b:/c:ro'" in made
        assert "--mount type=volume,src=v,dst=/v" in made
        assert "--shm-size 64m" in made
        assert "--memory=67108864" in made
        assert "--entrypoint python --rm ubuntu:24.04 -m train" in made
        assert re.search(r'--name=myapp-\w+-main-"\$1"', made)

    def test_a_program_that_env_would_take_for_a_variable(self, scheduler: LsfScheduler) -> None:
        assert "exec -- a=b -m" in text(scheduler, role(entrypoint="a=b"))
        with pytest.raises(RequestError, match=r"role 'main': entrypoint 'a=b' holds a ="):
            text(scheduler, role(entrypoint="a=b", env={"odd-name": "1"}))

    def test_a_folder_is_no_image(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(image="/work", args=[macros.img_root]))
        assert "exec -- python /work\n" in made

    def test_apptainer(self, scheduler: LsfScheduler) -> None:
        made = text(scheduler, role(image="ubuntu:24.04"), container="apptainer")
        assert "exec -- apptainer exec docker://ubuntu:24.04 python -m train\n" in made

    def test_secrets_are_not_shown(self, scheduler: LsfScheduler) -> None:
        info = scheduler.submit_dryrun(AppDef("x", [role(env={"HF_TOKEN": "hush"})]), {})
        assert "hush" not in str(info)
        assert str(info).startswith("/bin/bash $BSUB_SCRIPT\n\n#-")

    @pytest.mark.parametrize(
        ("cfg", "words"),
        [
            ({"time": "soon"}, "option time"),
            ({"container": "podman"}, "none of docker"),
            ({"lsf_queue": "a\nb"}, "control character"),
            ({"jobdir": "/a/%J"}, "%"),
        ],
    )
    def test_bad_options(self, scheduler: LsfScheduler, cfg: dict[str, object], words: str) -> None:
        with pytest.raises(ValueError, match=re.escape(words)):
            text(scheduler, role(), **cfg)

    def test_a_dry_run_leaves_nothing(self, scheduler: LsfScheduler, tmp_path: Path) -> None:
        text(scheduler, role(), jobdir=str(tmp_path / "job"))
        assert list(tmp_path.iterdir()) == []

    def test_no_lsf(self, scheduler: LsfScheduler) -> None:
        with pytest.raises(
            LsfError, match="LSF is not installed: there is no command bjobs on PATH"
        ):
            scheduler.list()


class TestWhatLsfPrints:
    """Written from IBM's documentation: there is no LSF to record from."""

    def test_columns(self) -> None:
        out = (
            "JOBID STAT PROJ_NAME JOB_NAME EXEC_HOST\n"
            "101 RUN app app-main-0 4*host1:4*host2\n102 PEND app app-main-1 -\n"
        )
        first, second = queries.parse_columns(out)
        assert (first.job_id, first.stat, first.host) == ("101", "RUN", "host1")
        assert (second.name, second.host) == ("app-main-1", "")

    def test_default_columns_of_older_systems(self) -> None:
        out = (
            "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME   SUBMIT_TIME\n"
            "101     me      PEND  normal     login                   app-main-0 Nov 21 03:00\n"
        )
        [job] = queries.parse_wide(out)
        assert (job.job_id, job.stat) == ("101", "PEND")

    @pytest.mark.parametrize(
        ("lines", "found"),
        [
            (
                [
                    "Job <1>, Status <EXIT>",
                    "Mon: Exited with exit code 137. The CPU",
                    "Mon: Completed <exit>; TERM_MEMLIMIT: job killed after reaching memory limit",
                ],
                ("TERM_MEMLIMIT: out of memory", 137, False),
            ),
            (
                ["Mon: Exited by signal 9. Completed <exit>; TERM_RUNLIMIT: job killed"],
                ("TERM_RUNLIMIT: time limit", None, False),
            ),
            (
                [
                    "Mon: Exited with exit co",
                    "                     de 130; TERM_OWN",
                    "                     ER: job killed by owner",
                ],
                ("TERM_OWNER: killed by its owner", 130, True),
            ),
            (
                [" PENDING REASONS:", " Not enough slots: 3 hosts;", " Load: 1 host;", "", " X"],
                ("Not enough slots: 3 hosts; Load: 1 host", None, False),
            ),
            (["Job <1>, Status <RUN>"], ("", None, False)),
        ],
    )
    def test_long_form(self, lines: list[str], found: tuple[str, int | None, bool]) -> None:
        reason, code, killed = states.parse_long_form("\n".join([*lines, ""]))
        assert reason.startswith(found[0])
        assert (code, killed) == found[1:]


class TestOlderNames:
    def test_states(self) -> None:
        assert get_job_state("EXIT", "1") == AppState.FAILED
        assert get_job_state("EXIT", "130") == AppState.CANCELLED
        assert get_job_state("ZOMBI", "-") == AppState.UNKNOWN
        assert {JOB_STATE[s] for s in ("PEND", "PSUSP", "USUSP", "SSUSP")} == {AppState.PENDING}

    def test_cleanup_str(self) -> None:
        assert cleanup_str("-Ab c_1-é") == "abc_1-"

    def test_bjobs(self) -> None:
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

    def test_log_file(self) -> None:
        msg = "app app-main-0 /jobs/x y\napp app-main-1 -\n"
        assert bjobs_msg_to_log_file("app", "main", 0, None, msg) == "/jobs/x y/app-main-0.out"
        path = bjobs_msg_to_log_file("app", "main", 0, Stream.STDERR, msg)
        assert path == "/jobs/x y/app-main-0.err"
        for k, stream in ((0, Stream.COMBINED), (1, None), (2, None)):
            with pytest.raises(ValueError, match=r"lsf writes|no output directory|does not exist"):
                bjobs_msg_to_log_file("app", "main", k, stream, msg)

    def test_rank0_host(self) -> None:
        out = "a 2 0\nb 8 0\nc 8 4\n"
        job = role(resource=Resource(cpu=4, gpu=1, memMB=1))
        assert find_rank0_host_from_bhosts_stdout(out, job) == "c"
        with pytest.raises(ValueError, match="no host"):
            find_rank0_host_from_bhosts_stdout("a 2 0\n", job)

    def test_commands(self) -> None:
        cfg = LsfOpts(jobdir="/j d")
        job = role(image="i", env={"A": "b c"})
        line = get_docker_command("name", job, cfg)
        assert line.startswith("docker run --name=name")
        assert "-e 'A=b c' --entrypoint python --rm i -m train" in line
        assert get_command("n", job, cfg).endswith(" > '/j d/n.out' 2> '/j d/n.err'")
        assert "-m host" in get_bsub("app", "app-r-0", job, cfg, "app-r-0", "host")
        other = get_bsub("app", "app-r-1", job, {"lsf_queue": "q"}, "app-r-0", "host")
        assert "-w 'started(app-r-0)'" in other
        assert "-q q" in other
        app = AppDef("x", [job])
        made = get_submit_script("app", ["/bin/bash"], app, cfg, "host")
        assert made == LsfBsub("/j d", "app", app, cfg, ["/bin/bash"]).materialize("host")
