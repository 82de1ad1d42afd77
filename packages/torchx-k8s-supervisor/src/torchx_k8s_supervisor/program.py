"""The program of a supervisor's pod, which restarts or ends a whole app after a failure.

The text of this module is an argument of ``python3 -c``. It is ASCII, and it imports only the
standard library of Python 3.7. The program keeps no state, so that another pod can continue at any
time. The state is in the cluster:

- Annotations of the supervisor's Job, to which this pod belongs, hold the number of restarts, how
  many of these followed a disruption, and the reason of the last one. The program increases the
  numbers before it deletes anything.
- A role's Job with a lower number belongs to an earlier attempt. The program deletes this Job and
  its pods.
- When no such Job is left, the program creates the missing Jobs from the manifests in the config
  map.

If the arguments contain the names of the roles' Jobs, the program restarts nothing, and there is no
config map: the program only ends the other roles when one has failed for good.
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import signal
import ssl
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PREFIX = "torchx.pytorch.org/"
ROLE_NAME = PREFIX + "role-name"
CANCELLED = PREFIX + "cancelled"
RESTARTS = PREFIX + "restarts"
DISRUPTIONS = PREFIX + "disruptions"
MAX_RESTARTS = PREFIX + "max-restarts"
REASON = PREFIX + "restart-reason"
ENDED = PREFIX + "ended"
TROUBLE = PREFIX + "trouble"
MANIFESTS = "jobs.json"

#: The folder of the pod's token. Tests name another folder in the variable ACCOUNT_VARIABLE.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "TORCHX_SERVICE_ACCOUNT_DIR"

#: The pause between two polls of the app, in seconds; SHORT_PAUSE applies during a restart.
PAUSE = 2.0
SHORT_PAUSE = 0.5
#: Added to the pause for each role, in seconds, to limit the load on the API server.
PAUSE_PER_ROLE = 0.1
#: Added to the pause for each second without a change, in seconds, and the limit of this addition.
PAUSE_PER_SECOND = 0.01
LONGEST_IDLE_PAUSE = 8.0
#: The first and the longest pause after a failed request to the API server, in seconds.
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
#: How long to retry before the first successful step, in seconds: the network may not be ready when
#: the pod starts.
PATIENCE = 120.0
#: How long to retry a refused request, in seconds, if the refusal cannot be reported in an
#: annotation. New access rights may not be effective when the pod starts.
REFUSAL_PATIENCE = 5.0
TIMEOUT = 30.0

#: Exit code if a refusal cannot be reported in an annotation. Status then shows the end of the
#: pod's log as the reason.
REFUSED = 3
#: Exit code after SIGTERM or a suspension; 0 would complete the supervisor's Job.
TERMINATED = 143


class UnreachableError(Exception):
    """The API server does not answer, or is busy."""


class RefusedError(Exception):
    """The API server refuses a request, and a retry may not help."""


class ChangedError(Exception):
    """A precondition failed: somebody else changed the object."""


class NothingLeftError(Exception):
    """The supervisor has nothing left to do.

    Args:
        code: Exit code of the program.
    """

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Server:
    """The API server, called with the service account of this pod.

    Args:
        host: Host name or address.
        port: Port.
        account: Folder with the files ``token`` and ``ca.crt``.
    """

    def __init__(self, host: str, port: int, account: str) -> None:
        self._host = host
        self._port = port
        self._account = account
        self._connection: http.client.HTTPSConnection | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Return the response to one request, or None if the object does not exist.

        Args:
            method: HTTP method.
            path: Path in the API.
            body: Request body, sent as JSON; None for no body.

        Raises:
            UnreachableError: The API server does not answer, or is busy.
            RefusedError: The API server refuses the request, or the pod has no token.
            ChangedError: A precondition failed, or an object of that name exists.
        """
        request = f"{method} {path}"
        headers = {"Accept": "application/json", "Authorization": "Bearer " + self._token()}
        data = None
        if body is not None:
            data = json.dumps(body).encode("ascii")
            merge = "application/merge-patch+json"
            headers["Content-Type"] = merge if method == "PATCH" else "application/json"
        try:
            if self._connection is None:
                context = ssl.create_default_context(cafile=os.path.join(self._account, "ca.crt"))
                # many clusters have certificates that do not pass the strict checks of Python 3.13
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT, context=context
                )
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            raw = answer.read()
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise UnreachableError(f"{request}: {type(e).__name__}: {e}") from e
        found: Any = None
        try:
            found = json.loads(raw.decode("utf-8"))
            message = str(found.get("message") or "")
        except (ValueError, AttributeError):
            message = raw.decode("utf-8", "replace")
        if answer.status < 300 and isinstance(found, dict):
            return found
        if answer.status == 404 and isinstance(found, dict) and found.get("reason") == "NotFound":
            return None
        text = f"{request}: {answer.status} {' '.join(message.split())}"
        if answer.status == 409:
            raise ChangedError(text)
        # 404 without the reason NotFound comes from a proxy or from an API server that is starting
        if answer.status in (404, 408, 429) or answer.status >= 500 or answer.status < 300:
            raise UnreachableError(text)
        raise RefusedError(text)

    def close(self) -> None:
        """Close the connection. The next request reads the certificate file and connects again."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _token(self) -> str:
        # the cluster replaces the token about once an hour
        try:
            with open(os.path.join(self._account, "token"), encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError) as e:
            raise RefusedError(f"this pod has no token of a service account: {e}") from e


class Supervisor:
    """Restarts or ends one app.

    Args:
        server: The API server.
        app: Name of the app, of the supervisor's Job and of its config map.
        namespace: Namespace of the app.
        jobs: Names of the roles' Jobs if the app is not restarted; otherwise empty.
    """

    def __init__(self, server: Server, app: str, namespace: str, jobs: Sequence[str] = ()) -> None:
        self._server = server
        self._app = app
        self._namespace = namespace
        self._job_names = list(jobs)
        self._manifests: list[dict[str, Any]] | None = None
        self._trouble = ""
        self._versions: list[str] = []
        self._changed = time.monotonic()
        #: Seconds to wait before the next step.
        self.pause = PAUSE

    def step(self) -> int | None:
        """Poll the app once and act; return an exit code if nothing is left to do, otherwise None.

        Raises:
            UnreachableError: A retry may help.
            RefusedError: A retry may not help.
        """
        self.pause = PAUSE
        try:
            return self._step()
        except NothingLeftError as e:
            return e.code
        except ChangedError as e:
            log(str(e))
            self.pause = SHORT_PAUSE
            return None

    def _step(self) -> int | None:
        own = self._own()
        self._trouble = annotations_of(own).get(TROUBLE) or ""
        manifests = [] if self._job_names else self._read_manifests()
        names = self._job_names or [manifest["metadata"]["name"] for manifest in manifests]
        found = {name: self._server.call("GET", self._job(name)) for name in names}
        jobs = [job for job in found.values() if job is not None]
        self.pause = self._pause_after([own, *jobs])
        restarts = max(restart_count(job) for job in [own, *jobs])
        why = annotations_of(own).get(ENDED)
        if why:
            return self._end(jobs, why)
        old = [job for job in jobs if restart_count(job) < restarts or is_deleting(job)]
        if old and manifests:
            self.pause = SHORT_PAUSE
            for job in old:
                if not is_deleting(job):
                    self._delete(job)
            return None
        missing = [one for one in manifests if found[one["metadata"]["name"]] is None]
        for manifest in missing:
            # the app may have been cancelled or deleted, or another pod may have restarted it
            own = self._own()
            if restart_count(own) > restarts:
                raise ChangedError(f"another supervisor is restarting {self._app}")
            self._create(manifest, restarts, own)
        if missing:
            return None
        failed = first_failed(jobs)
        if failed is not None:
            self.pause = 0.0
            self._decide(own, failed, restarts)
            return None
        return 0 if all(condition(job, "Complete") for job in jobs) else None

    def _pause_after(self, jobs: Sequence[Mapping[str, Any]]) -> float:
        """Return the pause before the next poll, in seconds; it grows while no Job changes."""
        versions = [str(job["metadata"].get("resourceVersion")) for job in jobs]
        if versions != self._versions:
            self._versions, self._changed = versions, time.monotonic()
        idle = (time.monotonic() - self._changed) * PAUSE_PER_SECOND
        return PAUSE + PAUSE_PER_ROLE * (len(jobs) - 1) + min(idle, LONGEST_IDLE_PAUSE)

    def _own(self) -> dict[str, Any]:
        """Return the supervisor's Job.

        Raises:
            NothingLeftError: The app was cancelled or deleted, or the supervisor was suspended.
        """
        own: dict[str, Any] | None = self._server.call("GET", self._job(self._app))
        if own is None or is_deleting(own):
            raise NothingLeftError(0)
        if own["spec"].get("suspend"):
            raise NothingLeftError(TERMINATED)
        if CANCELLED in annotations_of(own):
            raise NothingLeftError(0)
        return own

    def _read_manifests(self) -> list[dict[str, Any]]:
        if self._manifests is None:
            path = f"/api/v1/namespaces/{self._namespace}/configmaps/{self._app}"
            held = self._server.call("GET", path)
            if held is None:
                raise RefusedError(f"GET {path}: 404 the app's config map was deleted")
            self._manifests = json.loads(held["data"][MANIFESTS])
        return self._manifests

    def _decide(self, own: Mapping[str, Any], failed: Mapping[str, Any], restarts: int) -> None:
        """Decide whether a failure restarts or ends the app, and store this in annotations."""
        most = int(annotations_of(failed).get(MAX_RESTARTS) or 0)
        role = f"role '{annotations_of(failed).get(ROLE_NAME)}'"
        why = f"{role} failed"
        reason = failure(failed)
        disruptions = disruption_count(own)
        counted = restarts - disruptions
        if is_disruption(failed):
            why = f"restart after a disruption: {role}: {reason}"
            disruptions += 1
            changes = {RESTARTS: str(restarts + 1), DISRUPTIONS: str(disruptions), REASON: why}
        elif counted < most:
            why = f"restart {counted + 1} of {most}: {why}: {reason}"
            changes = {RESTARTS: str(restarts + 1), REASON: why}
        else:
            times = "1 restart" if counted == 1 else f"{counted} restarts"
            after = f" after {times}" if counted else ""
            why = f"{why}{after}: {reason}"
            changes = {ENDED: why}
        log(why)
        # the version is a precondition: two supervisors cannot count the same failure twice
        version = own["metadata"]["resourceVersion"]
        self._note(self._app, {"resourceVersion": version, "annotations": changes})

    def _end(self, jobs: Iterable[Mapping[str, Any]], why: str) -> int | None:
        """End the roles that have not ended; return 0 once none of them runs, otherwise None."""
        running = 0
        for job in jobs:
            if finished(job) or is_deleting(job):
                continue
            # do not wait for a suspended Job: it may stay in a queue, and its deadline ends it when
            # it is resumed
            running += not job["spec"].get("suspend")
            if ENDED not in annotations_of(job):
                log(f"ending {job['metadata']['name']}")
                metadata = {"uid": job["metadata"]["uid"], "annotations": {ENDED: why}}
                # a deadline ends a Job for good; a suspended Job could be resumed
                deadline = {"activeDeadlineSeconds": 1}
                self._note(job["metadata"]["name"], metadata, deadline)
        self.pause = SHORT_PAUSE
        return None if running else 0

    def _delete(self, job: Mapping[str, Any]) -> None:
        name = job["metadata"]["name"]
        log(f"deleting {name} of an earlier attempt")
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": job["metadata"]["uid"]},
        }
        self._server.call("DELETE", self._job(name), options)

    def _create(self, manifest: Mapping[str, Any], restarts: int, own: Mapping[str, Any]) -> None:
        job: dict[str, Any] = copy.deepcopy(dict(manifest))
        log(f"creating {job['metadata']['name']}, attempt {restarts + 1}")
        for part in (job, job["spec"]["template"]):
            metadata = part.setdefault("metadata", {})
            metadata["annotations"] = dict(metadata.get("annotations") or {})
            metadata["annotations"][RESTARTS] = str(restarts)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self._app}
        job["metadata"]["ownerReferences"] = [{**owner, "uid": own["metadata"]["uid"]}]
        if self._server.call("POST", self._job(), job) is None:
            raise RefusedError(f"POST {self._job()}: 404 the namespace was deleted")

    def report_problem(self, problem: str) -> bool:
        """Write a problem into an annotation, from which users see it in the app's status.

        Args:
            problem: The problem; an empty string removes the annotation.

        Returns:
            False if the API server refuses to change the annotation, otherwise True. After another
            error, the next step tries again.
        """
        if problem == self._trouble:
            return True
        try:
            self._note(self._app, {"annotations": {TROUBLE: problem or None}})
            self._trouble = problem
        except RefusedError:
            return False
        except (UnreachableError, ChangedError):
            pass  # the next step reports the problem
        return True

    def _note(
        self, name: str, metadata: Mapping[str, Any], spec: Mapping[str, Any] | None = None
    ) -> None:
        changes: dict[str, Any] = {"metadata": metadata}
        if spec:
            changes["spec"] = spec
        self._server.call("PATCH", self._job(name), changes)

    def _job(self, name: str = "") -> str:
        path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        return f"{path}/{name}" if name else path


def annotations_of(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return job["metadata"].get("annotations") or {}


def restart_count(job: Mapping[str, Any]) -> int:
    """Return how many times the app had been restarted when a role's Job was created.

    For the supervisor's Job, return how many times the app has been restarted so far.
    """
    text = annotations_of(job).get(RESTARTS) or ""
    return int(text) if text.isdigit() else 0


def disruption_count(job: Mapping[str, Any]) -> int:
    """Return how many restarts of the app followed a disruption of a pod and are not retries."""
    text = annotations_of(job).get(DISRUPTIONS) or ""
    return int(text) if text.isdigit() else 0


def is_deleting(job: Mapping[str, Any]) -> bool:
    """Return whether an object is being deleted."""
    return bool(job["metadata"].get("deletionTimestamp"))


def condition(job: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a condition of a Job if it is true, otherwise None."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("type") == name and one.get("status") == "True":
            found: Mapping[str, Any] = one
            return found
    return None


def finished(job: Mapping[str, Any]) -> bool:
    """Return whether a Job has ended."""
    return bool(condition(job, "Complete") or condition(job, "Failed"))


def failure(job: Mapping[str, Any]) -> str:
    """Return why a Job failed."""
    failed = condition(job, "Failed") or {}
    reason, message = str(failed.get("reason") or ""), str(failed.get("message") or "")
    if reason == "PodFailurePolicy":
        # leave out the index of the rule: TorchX wrote the rule, not the user
        return message.partition(" matching FailJob")[0]
    return ": ".join(part for part in (reason, message) if part)


def is_disruption(job: Mapping[str, Any]) -> bool:
    """Return whether a Job failed because a pod was evicted or preempted, or lost its node.

    Such a pod has the condition ``DisruptionTarget``, for which the Job's failure policy fails the
    Job. Only the message of the Job's condition shows which rule of the policy matched.
    """
    failed = condition(job, "Failed") or {}
    by_rule = failed.get("reason") == "PodFailurePolicy"
    return by_rule and " has condition DisruptionTarget" in str(failed.get("message"))


def first_failed(jobs: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the Job that failed first, or None if no Job failed.

    The first failure is probably the cause of the others.
    """
    failed = [(condition(job, "Failed"), job) for job in jobs]
    known = [(str(why.get("lastTransitionTime") or ""), job) for why, job in failed if why]
    return min(known, key=lambda one: one[0])[1] if known else None


def log(text: str) -> None:
    """Write a line to the log."""
    print(text, flush=True)


def _terminated(number: int, frame: Any) -> None:
    # process 1 of a container ignores SIGTERM unless it has a handler
    sys.exit(TERMINATED)


def main(argv: list[str]) -> int:
    """Supervise an app until the app has ended, and return an exit code.

    Args:
        argv: Name of the app, its namespace, and the ``jobs`` of :class:`Supervisor`.
    """
    signal.signal(signal.SIGTERM, _terminated)
    app, namespace, *jobs = argv
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ["KUBERNETES_SERVICE_PORT"])
    account = os.environ.get(ACCOUNT_VARIABLE) or ACCOUNT
    supervisor = Supervisor(Server(host, port, account), app, namespace, jobs)
    begun, worked, delay = time.monotonic(), False, FIRST_DELAY
    refused_since = None
    last_error = ""
    while True:
        try:
            code = supervisor.step()
            if code is not None:
                return code
            supervisor.report_problem("")
            worked, delay = True, FIRST_DELAY
            refused_since, last_error = None, ""
            time.sleep(supervisor.pause)
            continue
        except (UnreachableError, RefusedError) as e:
            if str(e) != last_error:
                log(str(e))
            last_error = str(e)
            now = time.monotonic()
            if isinstance(e, RefusedError) and not supervisor.report_problem(str(e)):
                refused_since = now if refused_since is None else refused_since
                if now - refused_since > REFUSAL_PATIENCE:
                    return REFUSED
            elif not worked and now - begun > PATIENCE:
                return 1
        time.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
