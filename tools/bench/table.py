"""The rows of the benchmarks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One measurement of our side and of the peer, upstream's TorchX.

    Attributes:
        name: Selects the row on the command line.
        work: The description in the table.
        limit: The largest valid ratio ours / peer; for ``absolute`` rows, the largest valid value
            in ``unit``. None for a row that has no limit.
        ours: Our command: a program of the environment, or a script of ``rows/`` (``.py``).
        peer: The command of the peer; None if only our side is measured.
        clock: ``process`` measures the whole process; ``script`` uses the value that the script
            prints.
        rounds: The number of measured rounds. Unless it is 1, another round precedes them.
        needs: Our distributions that the row needs beside ``torchx`` and its dependencies.
        python: The Python version of both sides; empty for the version of the measuring process.
        unit: The unit of an ``absolute`` row: ``MB``, ``s``, or what a script counts.
        peer_packages: Packages of PyPI that are the peer: the peer's side has an environment with
            these packages instead of TorchX.
        in_browser: Whether the row measures pages in a browser.
    """

    name: str
    work: str
    limit: float | None
    ours: tuple[str, ...]
    peer: tuple[str, ...] | None
    clock: str = "process"
    rounds: int = 9
    needs: tuple[str, ...] = ()
    python: str = ""
    unit: str = "MB"
    peer_packages: tuple[str, ...] = ()
    in_browser: bool = False

    @property
    def absolute(self) -> bool:
        return self.peer is None


@dataclass(frozen=True)
class Series:
    """Processor time of one piece of work at three sizes: ``size``, 10 and 100 times ``size``.

    Attributes:
        name: Selects the series on the command line, after ``growth-``.
        work: The description in the table; ``n`` is the size.
        size: The smallest size.
        needs: Our distributions that the series needs beside ``torchx`` and its dependencies.
    """

    name: str
    work: str
    size: int = 100
    needs: tuple[str, ...] = ()

    def rows(self) -> list[Row]:
        """Return a row for each size."""
        return [
            Row(
                f"growth-{self.name}",
                self.work,
                None,
                ("growth.py", self.name, str(size)),
                None,
                "script",
                2,
                self.needs,
                unit="s",
            )
            for size in (self.size, 10 * self.size, 100 * self.size)
        ]


def script(
    name: str,
    work: str,
    limit: float | None,
    rounds: int,
    *command: str,
    needs: str = "",
    python: str = "",
) -> Row:
    """Return a row whose script is the same on both sides and prints its own measurement."""
    distributions = (needs,) if needs else ()
    return Row(name, work, limit, command, command, "script", rounds, distributions, python)


def command(name: str, limit: float, *argv: str) -> Row:
    """Return a row that measures the process of one command."""
    return Row(name, f"`{' '.join(argv)}`", limit, argv, argv)


ECHO = ("-s", "local_cwd", "utils.echo", "--msg", "hi")
# Without this option, the peer contacts a cluster to validate the request, even in a dry run.
NO_CLUSTER = "queue=default,validate_spec=False"
KUBERNETES = ("-s", "kubernetes", "-cfg", NO_CLUSTER, "utils.echo", "--msg", "hi")

ROWS = (
    Row(
        "specs",
        "`import torchx_specs` and first use of AppDef, Role, Resource, runopts, macros, "
        "beside the same with `torchx.specs`",
        0.40,
        ("specs_ours.py",),
        ("specs_peer.py",),
    ),
    command("help", 0.50, "torchx", "--help"),
    # An answer must take less than 0.15 s. The peer has no completion; its `--help` takes 0.13 s.
    Row(
        "completion",
        "an answer to TAB after `torchx run dist.d` (peer: `torchx --help`)",
        1.00,
        ("completion.py",),
        ("torchx", "--help"),
    ),
    command("dryrun", 0.45, "torchx", "run", "--dryrun", *ECHO),
    command("run", 0.45, "torchx", "run", "--wait", *ECHO),
    # On Python 3.10, the peer's time is stable. On newer versions it varies from 1.7 to 9 s; a
    # ratio of 0.06 could then require less than the 0.21 s that starting 256 processes takes.
    script(
        "replicas",
        "`local_cwd`, one role × 256 replicas of `/bin/true`, `run` to `wait` returned "
        "(Python 3.10)",
        0.06,
        3,
        "many_replicas.py",
        python="3.10",
    ),
    script("replicas-here", "the same on the Python of this page", None, 5, "many_replicas.py"),
    script("log-finished", "read a finished 200,000-line log", 0.10, 5, "log_finished.py"),
    script("log-follow", "follow 200,000 lines while written", 0.40, 5, "log_follow.py"),
    # Our side fails if the median is 0.2 s or more.
    script(
        "log-latency",
        "a line of a followed log on the terminal, median of 60 lines (ours: under 0.2 s)",
        None,
        3,
        "log_latency.py",
    ),
    Row(
        "compare",
        "`torchx compare` of 100 local apps with metrics in the default tracker",
        0.5,
        ("compare.py", "100"),
        None,
        "script",
        1,
        unit="s",
    ),
    Row(
        "live-region",
        "64 progress bars on a terminal: processor time in each second",
        0.03,
        ("live_region.py",),
        None,
        "script",
        3,
        unit="s",
    ),
    # The peer has no list of all schedulers, and its status of Slurm jobs needs accounting.
    Row(
        "list-hanging",
        "`torchx list` over all schedulers, one of which never answers: time beyond its limit",
        0.3,
        ("list_hanging.py",),
        None,
        "script",
        5,
        unit="s",
    ),
    *(
        Row(
            f"status-{name}",
            f"`torchx status` of an app with 1,000 replicas, {where}",
            1.5,
            ("status_replicas.py", name, "1000"),
            None,
            "script",
            1,
            (f"torchx-sched-{package}",),
            unit="s",
        )
        for name, package, where in (
            ("slurm", "slurm", "pending on Slurm (needs Slurm here, and root)"),
            ("kubernetes", "k8s", "running on a double of Kubernetes"),
        )
    ),
    script(
        "dryrun-local",
        "dry run, 100 roles × 100 replicas, `local_cwd`",
        0.05,
        3,
        *("dryrun.py", "local_cwd", "100", "100"),
    ),
    script(
        "dryrun-slurm",
        "the same, `slurm`",
        0.05,
        3,
        *("dryrun.py", "slurm", "100", "100"),
        needs="torchx-sched-slurm",
    ),
    script(
        "dryrun-roles",
        "processor time of `torchx run --dryrun -s local_cwd`, 1,000 roles",
        0.95,
        3,
        *("many_roles.py", "1000"),
    ),
    script(
        "list-slurm",
        "`Runner.list` on Slurm, 10,000 ended jobs in its accounting (needs Slurm here, and root)",
        0.10,
        1,
        *("slurm_list.py", "10000"),
        needs="torchx-sched-slurm",
    ),
    script(
        "many-slurm",
        "500 jobs that differ in an argument, submitted to Slurm (needs Slurm here, and root)",
        0.20,
        1,
        *("slurm_many.py", "500"),
        needs="torchx-sched-slurm",
    ),
    *(
        script(
            f"{what}-slurm-jobs",
            f"{work}, one after another (needs Slurm here, and root)",
            None,
            1,
            *("slurm_jobs.py", what, "100"),
            needs="torchx-sched-slurm",
        )
        for what, work in (
            ("submit", "100 jobs submitted to Slurm"),
            ("status", "`Runner.status` of 100 jobs on Slurm"),
        )
    ),
    script(
        "list-slurm-jobs",
        "`Runner.list` of 100 own jobs on Slurm (needs Slurm here, and root)",
        None,
        1,
        *("slurm_jobs.py", "list", "100"),
        needs="torchx-sched-slurm",
    ),
    *(
        Row(
            f"ssh-{what}",
            f"{work}, a Slurm cluster that is 150 ms away over SSH (needs Slurm here, and root)",
            limit,
            ("ssh.py", what, str(count)),
            None,
            "script",
            1,
            ("torchx-sched-slurm", "torchx-host-ssh"),
            unit=unit,
        )
        for what, work, limit, count, unit in (
            ("submit", "a submission with an unchanged workspace", 2, 1, "round trips"),
            ("files", "a workspace of 2,000 files, one of them changed", 1, 2000, "files sent"),
            ("status", "the status of 100 jobs", 1, 100, "round trips"),
            ("line", "a line of a followed log, median of 20 lines", 0.5, 20, "s"),
            ("hosts", "ten hosts listed, beside one host", 2, 10, "× the time"),
        )
    ),
    *(
        Row(
            f"ssh-{what}-time",
            f"{work}, a Slurm cluster that is 150 ms away over SSH (peer: NeMo-Run's tunnel; needs"
            " Slurm with accounting and rsync here, and root)",
            0.5,
            ("ssh.py", f"{what}-time", str(count)),
            ("ssh_nemo.py", what, str(count)),
            "script",
            1,
            ("torchx-sched-slurm", "torchx-host-ssh"),
            # NeMo-Run works only with these versions of leptonai and kubernetes.
            peer_packages=("nemo_run==0.11.1", "leptonai==0.26.7", "kubernetes<32"),
        )
        for what, work, count in (
            ("submit", "a submission with an unchanged workspace", 1),
            # More jobs would exceed the MaxSessions of sshd, because NeMo-Run asks for all at once.
            ("status", "the status of 8 jobs", 8),
        )
    ),
    # This row measures processor time. About 0.7 s of it is the time of the processes of `true`.
    # The peer runs only 20 jobs, because each takes 0.2 s.
    Row(
        "many",
        "processor time for 1,000 elements of `true`, a sweep of 10,000 on `local_cwd` "
        "(peer: submitit)",
        0.05,
        ("many.py", "sweep", "10000"),
        ("many.py", "submitit", "20"),
        "script",
        1,
        ("torchx-sweep",),
    ),
    Row(
        "many-own",
        "the same without the processes of `true`: TorchX's own time for 1,000 elements",
        1.5,
        ("many.py", "own", "10000"),
        None,
        "script",
        1,
        ("torchx-sweep",),
        unit="s",
    ),
    Row(
        "sweep-status",
        "status of a sweep with 100,000 elements",
        0.2,
        ("sweep_status.py", "100000"),
        None,
        "script",
        1,
        ("torchx-sweep",),
        unit="s",
    ),
    *(
        Row(
            f"dashboard-{name}",
            work,
            limit,
            ("dashboard.py", name),
            None,
            "script",
            rounds,
            ("torchx-dashboard",),
            unit=unit,
        )
        for name, work, limit, rounds, unit in (
            ("line", "`torchx dashboard`: a line of a job reaches a page (median)", 0.3, 3, "s"),
            ("jobs", "`torchx dashboard`: a page has the rows of 1,000 jobs", 1.0, 3, "s"),
            ("idle", "`torchx dashboard`: memory while ten pages follow a log", 150.0, 1, "MB"),
        )
    ),
    *(
        Row(
            f"dashboard-{work}-{peer}",
            f"`torchx dashboard` in chromium (peer: {title}): {text}",
            1.0,
            ("dashboard_pages.py", "ours", work),
            ("dashboard_pages.py", peer, work),
            "script",
            1,
            ("torchx-dashboard",),
            peer_packages=("mlflow", "tensorboard"),
            in_browser=True,
        )
        for peer, title in (("mlflow", "MLflow's UI"), ("tensorboard", "TensorBoard"))
        for work, text in (
            ("table", "first rows of 1,000 runs drawn"),
            ("plot", "a metric of ten runs with 1,000 steps each plotted"),
        )
    ),
    *(
        Row(
            f"array-{name}",
            f"{work} of a sweep with 10,000 elements, one array of Slurm (needs Slurm, and root)",
            1.0,
            ("slurm_array.py", name, "10000"),
            None,
            "script",
            1,
            ("torchx-sweep", "torchx-sched-slurm"),
            unit="s",
        )
        for name, work in (("dryrun", "check"), ("status", "status"))
    ),
    Row(
        "resilience-step",
        "processor time of 1,000 steps of `torchx_resilience` without a stop, in each of 8 ranks",
        0.02,
        ("resilience_step.py", "200000"),
        None,
        "script",
        3,
        ("torchx-resilience",),
        unit="s",
    ),
    Row(
        "resilience-recovery",
        "from a replica's death to the start of both replicas' next attempt, `local_cwd`",
        1.0,
        ("resilience_recovery.py",),
        None,
        "script",
        3,
        ("torchx-sched-local",),
        unit="s",
    ),
    # No limit, because the peer does less: no other process can read, cancel or delete its jobs.
    Row(
        "many-loop",
        "processor time for 1,000 of 10,000 elements of `true` (peer: a loop as GNU parallel)",
        None,
        ("many.py", "sweep", "10000"),
        ("many.py", "loop", "10000"),
        "script",
        1,
        ("torchx-sweep",),
    ),
    Row(
        "dryrun-batch",
        "dry run, 10 roles × 1000 replicas, `kubernetes` (`batch`; peer: Volcano)",
        0.01,
        ("dryrun.py", "kubernetes", "10", "1000"),
        ("dryrun.py", "kubernetes", "10", "1000", "queue=default", "validate_spec=False"),
        "script",
        2,
        ("torchx-sched-k8s",),
    ),
    Row(
        "dryrun-command",
        "`torchx run --dryrun -s kubernetes`, the whole process",
        0.30,
        ("torchx", "run", "--dryrun", "--workspace", "", *KUBERNETES),
        ("torchx", "run", "--dryrun", "--workspace", "", *KUBERNETES),
        needs=("torchx-sched-k8s",),
    ),
    script(
        "dryrun-volcano",
        "the same, `volcano`",
        0.15,
        2,
        *("dryrun.py", "kubernetes", "10", "1000", "queue=default", "validate_spec=False"),
        needs="torchx-sched-k8s",
    ),
    Row(
        "tracker-write",
        "`import torchx_tracker` and one `add_metadata` on a local disk, beside `torchx.tracker`",
        0.50,
        ("tracker_write.py",),
        ("tracker_write.py",),
    ),
    script("tracker-runs", "10,000 runs listed", 0.20, 5, "tracker_runs.py", "all"),
    # No limit: reading each run's files, which both sides must do, takes most of our time.
    script(
        "tracker-children",
        "10,000 runs listed by parent",
        None,
        5,
        *("tracker_runs.py", "parent-3"),
    ),
    script("tracker-artifacts", "1,000 artifacts of a run read", 0.20, 5, "tracker_artifacts.py"),
    *(
        script(
            f"image-{kind}-{moment}",
            f"a workspace of 2,000 files, 100 MB {what}{when}",
            limit,
            3,
            *("image.py", kind, moment),
        )
        for kind, what in (
            ("engine", "made runnable on a Docker Engine (needs one here, and root)"),
            ("push", "put into a registry (peer: docker build and push)"),
        )
        for moment, when, limit in (
            ("first", "", 0.40),
            ("changed", ", one small file changed", 0.25),
            ("same", ", nothing changed", 0.05),
        )
    ),
    script(
        "replicas-docker",
        "`local_docker`, 16 replicas started (needs a Docker Engine here, and root)",
        0.50,
        3,
        "replicas_docker.py",
    ),
    script("dir-copy", "20,000 files of a workspace copied to a folder", 0.50, 5, "dir_copy.py"),
    Row(
        "log-memory",
        "memory above idle while a 2 GB log is followed",
        50.0,
        ("log_memory.py",),
        None,
        "script",
        1,
    ),
)

#: The largest exponent e of a series whose time grows as n to the power of e.
LARGEST_EXPONENT = 1.1

SERIES = (
    Series("lint", "`torchx lint` of a file with n components"),
    Series("component", "`torchx run --dryrun` of one of n components of a file"),
    Series("dryrun-local", "`torchx run --dryrun -s local_cwd` of n roles"),
    Series(
        "dryrun-kubernetes",
        "`torchx run --dryrun -s kubernetes` of n roles",
        10,
        ("torchx-sched-k8s",),
    ),
    Series("yaml-read", "a document with n roles read as YAML"),
    Series("yaml-written", "an app with n roles written as YAML"),
    Series("list", "`torchx list` of n apps"),
    Series("list-ten", "`torchx list -n 10` of n apps"),
    Series("list-mine", "`torchx list --mine` of n apps, all in the journal"),
    Series("status", "text of `torchx status` of n replicas, each with its own reason"),
    Series("history", "`torchx history` of n submissions"),
    Series("history-ten", "`torchx history -n 10` of n submissions"),
    Series("config", "`torchx config show` of n sections"),
    Series("redaction", "secrets masked in a text of n lines", 1000),
    Series("ignored-files", "a workspace of n files walked with ten rules", 1000),
)
