"""The contract between schedulers and jobs: environment variables, signals and one exit code.

A scheduler sets the variables for every start of a replica; all replicas of an app start together.
"""

from __future__ import annotations

#: The number of the attempt: 0 for the first one. It is larger in each later attempt.
ENV_ATTEMPT = "TORCHX_ATTEMPT"
#: Why the previous attempt ended, one of :data:`REASONS`; not set in the first attempt.
ENV_RESTART_REASON = "TORCHX_RESTART_REASON"
#: The absolute path of a folder that all replicas share, the same for all attempts of a run.
ENV_RESUME_DIR = "TORCHX_RESUME_DIR"
#: The id of a user who may own the resume folder, too. The user of a container is often not the one
#: who has submitted the app.
ENV_RESUME_OWNER = "TORCHX_RESUME_OWNER"
#: How long after each stop signal the processes are killed, such as ``SIGTERM=30,SIGUSR1=120``.
#: Signals for which the scheduler does not know it are left out.
ENV_STOP_GRACE = "TORCHX_STOP_GRACE"
#: The handle of the app, which is the same for all attempts of a run.
ENV_JOB_ID = "TORCHX_JOB_ID"

#: The values of :data:`ENV_RESTART_REASON`. Later versions may have more.
REASONS = ("preempted", "time-limit", "node-failure", "out-of-memory", "failed", "requested")

#: A process that ends with this exit code asks for another attempt (``EX_TEMPFAIL``).
EXIT_REQUEUE = 75

#: The signals that schedulers send before they end a process. SIGTERM: all schedulers. SIGUSR1 and
#: SIGUSR2: Slurm's ``--signal``, Grid Engine's ``-notify``, LSF's ``-wa``.
STOP_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGUSR2")
