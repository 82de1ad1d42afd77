"""The record of an app with the option ``requeue``, in a volume that its containers share.

:mod:`torchx_kit.jobs.records` describes the files. The engine reads and writes them through one of
the app's containers, which need not run.
"""

from __future__ import annotations

import contextlib
import io
import posixpath
import tarfile
from fnmatch import fnmatch

from docker.client import DockerClient

from torchx_kit.hosts.local import LocalHost
from torchx_kit.jobs.records import REPORTS, JobRecord
from torchx_kit.signals import describe_exit
from torchx_kit.times import moment
from torchx_sched_docker.attempts import RECORD
from torchx_sched_docker.client import engine_errors, ignoring
from torchx_sched_docker.labels import LABEL_APP_ID
from torchx_specs.model.status import AppState, ReplicaStatus, is_terminal

# The longest record that is read, in bytes, because the program could write to it.
_LONGEST = 1 << 24


def open_record(client: DockerClient, container: str) -> None:
    """Let all users of containers write to the record, which the engine creates for root.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    folder = tarfile.TarInfo(posixpath.basename(RECORD))
    folder.type, folder.mode = tarfile.DIRTYPE, 0o777
    with engine_errors("prepare the record of the app"):
        client.api.put_archive(container, posixpath.dirname(RECORD), _tar(folder))


def record_cancel(client: DockerClient, container: str) -> None:
    """Record that an app is cancelled, so that no attempt follows.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    with ignoring(404, 409), engine_errors("record that the app is cancelled"):
        client.api.put_archive(container, RECORD, _tar(tarfile.TarInfo("cancelled")))


def read_record(client: DockerClient, container: str) -> JobRecord:
    """Return the record of an app; without files if the container was deleted.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    data = bytearray()
    with ignoring(404, 409), engine_errors("read the record of the app"):
        chunks, _ = client.api.get_archive(container, RECORD)
        for chunk in chunks:  # to the end, so that the connection can be used again
            data += chunk[: _LONGEST - len(data)]
    files = {}
    with contextlib.suppress(tarfile.TarError), tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            name = posixpath.basename(member.name)
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None and any(fnmatch(name, report) for report in REPORTS):
                files[name] = content.read()
    return JobRecord(LocalHost(), RECORD, files)


def remove_records(client: DockerClient, app_id: str) -> None:
    """Remove the volume with the record of an app, if it has one.

    Raises:
        BackendError: The engine does not answer, or refuses the request.
    """
    with engine_errors(f"list the volumes of {app_id}"):
        found = client.api.volumes(filters={"label": f"{LABEL_APP_ID}={app_id}"})["Volumes"]
    for volume in found or ():
        with ignoring(404), engine_errors(f"remove the volume {volume['Name']}"):
            client.api.remove_volume(volume["Name"])


def add_report(replica: ReplicaStatus, record: JobRecord, role_index: int) -> None:
    """Change the status of a container to that of its program, by the app's record."""
    report = record.replica(role_index, replica.id)
    code = report.exit_code if report is not None else None
    if report is not None:
        replica.restarts, replica.started = report.restarts, moment(report.started)
        replica.ended = moment(report.ended) or replica.ended
    if code is not None:
        replica.exit_code = 128 - code if code < 0 else code  # as containers have it
    if not is_terminal(replica.state):
        replica.exit_code = replica.ended = None
    elif replica.state == AppState.SUCCEEDED:
        replica.reason = describe_exit(code) if code else ""
        if code or (code is None and record.first_failure()):
            replica.state, replica.exit_code = AppState.FAILED, replica.exit_code or None


def _tar(member: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(member)
    return buffer.getvalue()
