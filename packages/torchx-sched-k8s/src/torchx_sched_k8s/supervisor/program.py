"""The program that starts a whole app again after a failure, in a pod of the app's cluster.

Its text is an argument of ``python3 -c``: it imports nothing but the standard library of Python
3.7, and is all ASCII. It works from what the cluster holds, and remembers nothing itself, so that
another can take its place at any time:

- the app's own Job, which this program is the pod of, has in its annotations how often the app was
  started again, and why; the count is written before anything is deleted;
- a role's Job with a lower count is of an earlier attempt: it is deleted, with its pods;
- once none of those is left, what is missing is made from the manifests in the config map.
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
MAX_RESTARTS = PREFIX + "max-restarts"
REASON = PREFIX + "restart-reason"
ENDED = PREFIX + "ended"
TROUBLE = PREFIX + "trouble"
MANIFESTS = "jobs.json"

#: Where a pod finds its token; the variable is set where that is no container's file system.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "TORCHX_SERVICE_ACCOUNT_DIR"

#: Seconds between two looks at the app, and while it is being started again.
PAUSE = 2.0
SHORT_PAUSE = 0.5
#: Seconds more for each role: what asks for hundreds of objects asks less often.
PAUSE_PER_ROLE = 0.1
#: Seconds more for each second in which nothing has changed, and the most of that.
PAUSE_PER_SECOND = 0.01
LONGEST_IDLE_PAUSE = 8.0
#: Seconds until the next try where the API server cannot be reached, the first and the longest.
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
#: Seconds for which what never worked (rights, a network) may still come to work.
PATIENCE = 120.0
TIMEOUT = 30.0

#: How this program ends if it was ended: no success, which would end its Job.
TERMINATED = 143


class UnreachableError(Exception):
    """The API server does not answer, or is busy."""


class RefusedError(Exception):
    """The API server refuses."""


class ChangedError(Exception):
    """What was to be changed is not as it was: somebody else was faster."""


class OverError(Exception):
    """The app is not to be looked after any more."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class Server:
    """The API server, as a pod reaches it.

    Args:
        host: of the server
        port: of the server
        account: folder with the files token and ca.crt
    """

    def __init__(self, host: str, port: int, account: str) -> None:
        self._host = host
        self._port = port
        self._account = account
        self._connection: http.client.HTTPSConnection | None = None

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Returns the answer of one request, None if there is no such object.

        Raises:
            UnreachableError: asking again may help
            RefusedError: asking again may not
            ChangedError: a precondition is not met, or an object of that name exists
        """
        what = f"{method} {path}"
        headers = {"Accept": "application/json", "Authorization": "Bearer " + self._token()}
        data = None
        if body is not None:
            data = json.dumps(body).encode("ascii")
            merge = "application/merge-patch+json"
            headers["Content-Type"] = merge if method == "PATCH" else "application/json"
        try:
            if self._connection is None:
                context = ssl.create_default_context(cafile=os.path.join(self._account, "ca.crt"))
                # authorities of clusters are older than what Python 3.13 expects of them
                context.verify_flags &= ~ssl.VERIFY_X509_STRICT
                self._connection = http.client.HTTPSConnection(
                    self._host, self._port, timeout=TIMEOUT, context=context
                )
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
            raw = answer.read()
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise UnreachableError(f"{what}: {type(e).__name__}: {e}") from e
        found: Any = None
        try:
            found = json.loads(raw.decode("utf-8"))
            words = str(found.get("message") or "")
        except (ValueError, AttributeError):
            words = raw.decode("utf-8", "replace")
        if answer.status < 300 and isinstance(found, dict):
            return found
        if answer.status == 404 and isinstance(found, dict) and found.get("reason") == "NotFound":
            return None
        told = f"{what}: {answer.status} {' '.join(words.split())}"
        if answer.status == 409:
            raise ChangedError(told)
        # 404 without that reason is of a proxy, or of a server that has not found itself yet
        if answer.status in (404, 408, 429) or answer.status >= 500 or answer.status < 300:
            raise UnreachableError(told)
        raise RefusedError(told)

    def close(self) -> None:
        """Closes the connection; the next request makes another, with the authority of then."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _token(self) -> str:
        # it is replaced every hour or so
        try:
            with open(os.path.join(self._account, "token"), encoding="ascii") as file:
                return file.read().strip()
        except (OSError, ValueError) as e:
            raise RefusedError(f"this pod has no token of a service account: {e}") from e


class Supervisor:
    """Looks after one app.

    Args:
        server: the API server
        app: name of the app, its own Job and its config map
        namespace: of the app
    """

    def __init__(self, server: Server, app: str, namespace: str) -> None:
        self._server = server
        self._app = app
        self._namespace = namespace
        self._manifests: list[dict[str, Any]] | None = None
        self._trouble = ""
        self._versions: list[str] = []
        self._changed = time.monotonic()
        #: Seconds to wait before the next step.
        self.pause = PAUSE

    def step(self) -> int | None:
        """Brings the app one step forward; returns an exit code once there is nothing left to do.

        Raises:
            UnreachableError: asking again may help
            RefusedError: asking again may not
        """
        self.pause = PAUSE
        try:
            return self._step()
        except OverError as e:
            return e.code
        except ChangedError as e:
            say(str(e))
            self.pause = SHORT_PAUSE
            return None

    def _step(self) -> int | None:
        own = self._own()
        self._trouble = notes(own).get(TROUBLE) or ""
        manifests = self._read_manifests()
        names = [manifest["metadata"]["name"] for manifest in manifests]
        found = {name: self._server.call("GET", self._job(name)) for name in names}
        jobs = [job for job in found.values() if job is not None]
        self.pause = self._pause_after([own, *jobs])
        restarts = max(count(job) for job in [own, *jobs])
        why = notes(own).get(ENDED)
        if why:
            return self._end(jobs, why)
        old = [job for job in jobs if count(job) < restarts or leaving(job)]
        if old:
            self.pause = SHORT_PAUSE
            for job in old:
                if not leaving(job):
                    self._delete(job)
            return None
        missing = [one for one in manifests if found[one["metadata"]["name"]] is None]
        for manifest in missing:
            # it may have been cancelled or deleted meanwhile, or be another's who is further
            own = self._own()
            if count(own) > restarts:
                raise ChangedError(f"{self._app} is started again by another supervisor")
            self._create(manifest, restarts, own)
        if missing:
            return None
        failed = first_failed(jobs)
        if failed is not None:
            self.pause = 0.0
            self._answer(own, failed, restarts)
            return None
        return 0 if all(condition(job, "Complete") for job in jobs) else None

    def _pause_after(self, jobs: Sequence[Mapping[str, Any]]) -> float:
        """Returns how long to wait until these are looked at again."""
        versions = [str(job["metadata"].get("resourceVersion")) for job in jobs]
        if versions != self._versions:
            self._versions, self._changed = versions, time.monotonic()
        idle = (time.monotonic() - self._changed) * PAUSE_PER_SECOND
        return PAUSE + PAUSE_PER_ROLE * (len(jobs) - 1) + min(idle, LONGEST_IDLE_PAUSE)

    def _own(self) -> dict[str, Any]:
        """Returns the app's own Job; raises OverError if that says that this is the end."""
        own: dict[str, Any] | None = self._server.call("GET", self._job(self._app))
        if own is None or leaving(own):
            raise OverError(0)
        if own["spec"].get("suspend"):
            raise OverError(TERMINATED)
        if CANCELLED in notes(own):
            raise OverError(0)
        return own

    def _read_manifests(self) -> list[dict[str, Any]]:
        if self._manifests is None:
            path = f"/api/v1/namespaces/{self._namespace}/configmaps/{self._app}"
            held = self._server.call("GET", path)
            if held is None:
                raise RefusedError(f"GET {path}: 404 the app's config map is gone")
            self._manifests = json.loads(held["data"][MANIFESTS])
        return self._manifests

    def _answer(self, own: Mapping[str, Any], failed: Mapping[str, Any], restarts: int) -> None:
        """Decides what a failure leads to, and writes it down."""
        most = int(notes(failed).get(MAX_RESTARTS) or 0)
        why = f"role '{notes(failed).get(ROLE_NAME)}' failed"
        words = failure(failed)
        if restarts < most:
            why = f"restart {restarts + 1} of {most}: {why}: {words}"
            changes = {RESTARTS: str(restarts + 1), REASON: why}
        else:
            times = "once" if restarts == 1 else f"{restarts} times"
            after = f" after it was started again {times}" if restarts else ""
            why = f"{why}{after}: {words}"
            changes = {ENDED: why}
        say(why)
        # two that do this at once count one failure once: the version must be the one that was read
        version = own["metadata"]["resourceVersion"]
        self._note(self._app, {"resourceVersion": version, "annotations": changes})

    def _end(self, jobs: Iterable[Mapping[str, Any]], why: str) -> int | None:
        """Ends the roles that still run after one has failed for good."""
        running = 0
        for job in jobs:
            if finished(job) or leaving(job):
                continue
            # what has not begun waits for a place in a queue, and ends when it gets one
            running += not job["spec"].get("suspend")
            if ENDED not in notes(job):
                say(f"ending {job['metadata']['name']}")
                metadata = {"uid": job["metadata"]["uid"], "annotations": {ENDED: why}}
                # a deadline makes a Job fail, which is an end; a suspended one waits for ever
                deadline = {"activeDeadlineSeconds": 1}
                self._note(job["metadata"]["name"], metadata, deadline)
        self.pause = SHORT_PAUSE
        return None if running else 0

    def _delete(self, job: Mapping[str, Any]) -> None:
        name = job["metadata"]["name"]
        say(f"deleting {name}, which is of an earlier attempt")
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": job["metadata"]["uid"]},
        }
        self._server.call("DELETE", self._job(name), options)

    def _create(self, manifest: Mapping[str, Any], restarts: int, own: Mapping[str, Any]) -> None:
        job: dict[str, Any] = copy.deepcopy(dict(manifest))
        say(f"creating {job['metadata']['name']}, attempt {restarts + 1}")
        for part in (job, job["spec"]["template"]):
            metadata = part.setdefault("metadata", {})
            metadata["annotations"] = dict(metadata.get("annotations") or {})
            metadata["annotations"][RESTARTS] = str(restarts)
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self._app}
        job["metadata"]["ownerReferences"] = [{**owner, "uid": own["metadata"]["uid"]}]
        if self._server.call("POST", self._job(), job) is None:
            raise RefusedError(f"POST {self._job()}: 404 the namespace is gone")

    def tell_trouble(self, words: str) -> None:
        """Notes what keeps this program from its work where the app's users see it."""
        if words == self._trouble:
            return
        try:
            self._note(self._app, {"annotations": {TROUBLE: words or None}})
            self._trouble = words
        except (UnreachableError, RefusedError, ChangedError):
            pass  # the log has it

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


def notes(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns the annotations of an object."""
    return job["metadata"].get("annotations") or {}


def count(job: Mapping[str, Any]) -> int:
    """Returns how often the app had been started again when a Job was made."""
    text = notes(job).get(RESTARTS) or ""
    return int(text) if text.isdigit() else 0


def leaving(job: Mapping[str, Any]) -> bool:
    """Returns True for an object that is being deleted."""
    return bool(job["metadata"].get("deletionTimestamp"))


def condition(job: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Returns a condition of a Job if it is true."""
    for one in (job.get("status") or {}).get("conditions") or ():
        if one.get("type") == name and one.get("status") == "True":
            found: Mapping[str, Any] = one
            return found
    return None


def finished(job: Mapping[str, Any]) -> bool:
    """Returns True for a Job that has ended."""
    return bool(condition(job, "Complete") or condition(job, "Failed"))


def failure(job: Mapping[str, Any]) -> str:
    """Returns why a Job failed."""
    told = condition(job, "Failed") or {}
    reason, message = str(told.get("reason") or ""), str(told.get("message") or "")
    if reason == "PodFailurePolicy":
        # which rule of ours it was says nothing
        return message.partition(" matching FailJob")[0]
    return ": ".join(part for part in (reason, message) if part)


def first_failed(jobs: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Returns the Job that failed first: others may have failed for its sake."""
    failed = [(condition(job, "Failed"), job) for job in jobs]
    known = [(str(why.get("lastTransitionTime") or ""), job) for why, job in failed if why]
    return min(known, key=lambda one: one[0])[1] if known else None


def say(text: str) -> None:
    """Writes a line to the log."""
    print(text, flush=True)


def _terminated(number: int, frame: Any) -> None:
    # the first process of a container has no handler of its own
    sys.exit(TERMINATED)


def main(argv: list[str]) -> int:
    """Looks after an app until it has ended.

    Args:
        argv: name of the app, and its namespace
    """
    signal.signal(signal.SIGTERM, _terminated)
    app, namespace = argv
    host = os.environ["KUBERNETES_SERVICE_HOST"]
    port = int(os.environ["KUBERNETES_SERVICE_PORT"])
    account = os.environ.get(ACCOUNT_VARIABLE) or ACCOUNT
    supervisor = Supervisor(Server(host, port, account), app, namespace)
    begun, worked, delay = time.monotonic(), False, FIRST_DELAY
    while True:
        try:
            code = supervisor.step()
            if code is not None:
                return code
            supervisor.tell_trouble("")
            worked, delay = True, FIRST_DELAY
            time.sleep(supervisor.pause)
            continue
        except (UnreachableError, RefusedError) as e:
            say(str(e))
            if not worked and time.monotonic() - begun > PATIENCE:
                return 1
            if isinstance(e, RefusedError):
                supervisor.tell_trouble(str(e))
        time.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
