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

An app with the option ``requeue`` has the annotation REQUEUE, with the rules of its attempts. The
program then watches the app's pods: only they show why an attempt ended, and a pod that is evicted
or preempted is deleted soon. Pods that ended by themselves stay with their logs. The annotation
ATTEMPTS has a list for each attempt: start, end, reason of the end, newest committed step at the
end, and names of its nodes. Times are in seconds since 1970.
"""

from __future__ import annotations

import calendar
import copy
import glob
import json
import os
import signal
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import http.client

PREFIX = "torchx.pytorch.org/"
ROLE_NAME = PREFIX + "role-name"
CANCELLED = PREFIX + "cancelled"
#: On the supervisor's Job, how many times the app has been restarted so far; on a Job or a pod of a
#: role, how many times the app had been restarted when it was created.
RESTARTS = PREFIX + "restarts"
DISRUPTIONS = PREFIX + "disruptions"
MAX_RESTARTS = PREFIX + "max-restarts"
REASON = PREFIX + "restart-reason"
ENDED = PREFIX + "ended"
TROUBLE = PREFIX + "trouble"
REQUEUE = PREFIX + "requeue"
ATTEMPTS = PREFIX + "attempts"
ATTEMPT = PREFIX + "attempt"
MANIFESTS = "jobs.json"

#: Variables of each attempt's pods.
ENV_ATTEMPT = "TORCHX_ATTEMPT"
ENV_REASON = "TORCHX_RESTART_REASON"
#: The nodes of this number of attempts are noted, if an attempt has at most this number of nodes:
#: the annotations of an object are limited to 256 KiB.
ATTEMPTS_WITH_NODES = 10
MOST_NODES = 100
#: The phases of pods that have ended.
ENDED_PHASES = ("Succeeded", "Failed")
#: Reasons of the condition DisruptionTarget of a pod whose node does not answer, or was deleted.
#: Others mean preemption, eviction (as by a drain), and termination by a node that shuts down:
#: https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
NODE_LOST = ("DeletionByTaintManager", "DeletionByPodGC")

#: The folder of the pod's token. Tests name another folder in the variable ACCOUNT_VARIABLE.
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ACCOUNT_VARIABLE = "TORCHX_SERVICE_ACCOUNT_DIR"

#: The pause between two polls of the app, in seconds; SHORT_PAUSE applies during a restart.
PAUSE = 3.0
SHORT_PAUSE = 0.5
#: Added to the pause for each role, in seconds, to limit the load on the API server.
PAUSE_PER_ROLE = 0.1
#: The first and the longest pause after a failed request to the API server, in seconds.
FIRST_DELAY = 1.0
LONGEST_DELAY = 30.0
#: How long to retry, in seconds, while the API server accepts nothing: no first step, and after a
#: refusal no annotation that reports it. Network and access rights may not be ready when the pod
#: starts. Another pod then replaces this one.
PATIENCE = 10.0
TIMEOUT = 30.0

#: Exit code if the API server accepts nothing. Status then shows the end of the pod's log as the
#: reason.
REFUSED = 3
#: Exit code after SIGTERM or a suspension; 0 would complete the supervisor's Job.
TERMINATED = 143


class UnreachableError(Exception):
    """The API server does not answer, or is busy."""


class RefusedError(Exception):
    """The API server refuses a request, and a retry may not help."""


class ChangedError(Exception):
    """A precondition failed: somebody else changed the object."""


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

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        is_watch: bool = False,
    ) -> Any:
        """Return the response to one request, or None if the object does not exist.

        Args:
            method: HTTP method.
            path: Path in the API.
            body: Request body, sent as JSON; None for no body.
            is_watch: Whether to wait for the end of a watch, and return its events as ``items``.

        Raises:
            UnreachableError: The API server does not answer, or is busy.
            RefusedError: The API server refuses the request, or the pod has no token.
            ChangedError: A precondition failed, or an object of that name exists.
        """
        # a dry run imports this module for its constants, and must start quickly
        import http.client
        import ssl

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
            if is_watch and answer.status < 300:
                return {"items": [json.loads(line) for line in raw.splitlines()]}
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
        # 404 without the reason NotFound comes from a proxy or from an API server that is starting;
        # after 410, the next step begins a new watch
        if answer.status in (404, 408, 410, 429) or answer.status >= 500 or answer.status < 300:
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
        # The rules of the app's attempts; empty without the option requeue.
        self._rules: dict[str, Any] = {}
        # The last states of pods by their uid, and the version from which to watch for changes.
        self._pods: dict[str, dict[str, Any]] = {}
        self._pods_version = ""
        #: Seconds to wait before the next step.
        self.pause = PAUSE

    def step(self) -> int | None:
        """Poll the app once and act; return an exit code if nothing is left to do, otherwise None.

        Raises:
            UnreachableError: A retry may help.
            RefusedError: A retry may not help.
            ChangedError: Somebody else has changed the app, so that the next step polls it again.
            SystemExit: The app was cancelled or deleted, or the supervisor was suspended.
        """
        own = self._own()
        self._trouble = annotations_of(own).get(TROUBLE) or ""
        manifests = [] if self._job_names else self._read_manifests()
        names = self._job_names or [manifest["metadata"]["name"] for manifest in manifests]
        found = {name: self._server.call("GET", self._job(name)) for name in names}
        jobs = [job for job in found.values() if job is not None]
        self.pause = PAUSE + PAUSE_PER_ROLE * len(jobs)
        restarts = max(number_of(job, RESTARTS) for job in [own, *jobs])
        self._rules = json.loads(annotations_of(own).get(REQUEUE) or "{}")
        if self._rules:
            own = self._observe(own, restarts)
        why = annotations_of(own).get(ENDED)
        if why:
            return self._end(jobs, why)
        old = [job for job in jobs if number_of(job, RESTARTS) < restarts or is_deleting(job)]
        if old and manifests:
            self.pause = SHORT_PAUSE
            self._keep_pods(own)
            for job in old:
                if not is_deleting(job):
                    self._delete(job)
            return None
        missing = [one for one in manifests if found[one["metadata"]["name"]] is None]
        for manifest in missing:
            # the app may have been cancelled or deleted, or another pod may have restarted it
            own = self._own()
            if number_of(own, RESTARTS) > restarts:
                raise ChangedError(f"another supervisor is restarting {self._app}")
            self._create(manifest, restarts, own)
        if missing:
            return None
        failed = first_failed(jobs) or self._preempted(own, jobs, restarts)
        if failed is not None:
            self.pause = 0.0
            self._decide(own, failed, restarts)
            return None
        if not all(condition(job, "Complete") for job in jobs):
            return None
        if self._rules:
            ended = max(str(job["status"].get("completionTime")) for job in jobs)
            attempts = self._end_attempt(own, restarts, ended, "succeeded")
            self._note(self._app, {"annotations": {ATTEMPTS: json.dumps(attempts)}})
        return 0

    def _own(self) -> dict[str, Any]:
        """Return the supervisor's Job.

        Raises:
            SystemExit: The app was cancelled or deleted, or the supervisor was suspended.
        """
        own: dict[str, Any] | None = self._server.call("GET", self._job(self._app))
        if own is not None and own["spec"].get("suspend"):
            sys.exit(TERMINATED)
        if own is None or is_deleting(own) or CANCELLED in annotations_of(own):
            sys.exit(0)
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
        most = number_of(failed, MAX_RESTARTS)
        disruptions = number_of(own, DISRUPTIONS)
        counted = restarts - disruptions
        role = f"role '{annotations_of(failed).get(ROLE_NAME)}'"
        why = failure(failed)
        changes: dict[str, str] = {}
        if self._rules:
            attempts, refused = self._judge(own, failed, restarts, most)
            changes[ATTEMPTS] = json.dumps(attempts)
            reason = attempts[-1][2]
            is_failure = reason in self._rules["failures"]
        else:
            reason = "a disruption"
            is_failure = not is_disruption(failed)
            refused = "" if is_failure and counted >= most else None
        if refused is None:
            of_disruption = f"restart after {reason}: {role}: {why}"
            why = failed_text(failed, counted) if is_failure else of_disruption
            disruptions += not is_failure
            changes.update(
                {RESTARTS: str(restarts + 1), DISRUPTIONS: str(disruptions), REASON: why}
            )
        else:
            times = "1 restart" if counted == 1 else f"{counted} restarts"
            after = f" after {times}" if counted else ""
            why = "; ".join(filter(None, (f"{role} failed{after}: {why}", refused)))
            changes[ENDED] = why
        print(why, flush=True)
        # the version is a precondition: two supervisors cannot count the same failure twice
        version = own["metadata"]["resourceVersion"]
        self._note(self._app, {"resourceVersion": version, "annotations": changes})

    # Methods for apps with the option requeue.

    def wait(self) -> None:
        """Wait for the pause, and note meanwhile how the pods change.

        Raises:
            UnreachableError: A retry may help.
            RefusedError: A retry may not help.
        """
        if not self._pods_version or self.pause < 1:
            time.sleep(self.pause)
            return
        since = f"&resourceVersion={self._pods_version}&timeoutSeconds={round(self.pause)}"
        version, self._pods_version = self._pods_version, ""  # after an error, list the pods again
        path = f"{self._pod_list()}&watch=1&allowWatchBookmarks=true{since}"
        for event in self._server.call("GET", path, is_watch=True)["items"]:
            if event["type"] == "ERROR":
                return  # the version is too old
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._pods[event["object"]["metadata"]["uid"]] = event["object"]
        self._pods_version = version

    def _observe(self, own: dict[str, Any], restarts: int) -> dict[str, Any]:
        """Read the pods, and note the start of the present attempt.

        Returns:
            The supervisor's Job, which may have changed.
        """
        if not self._pods_version:
            found = self._server.call("GET", self._pod_list()) or {"items": (), "metadata": {}}
            self._pods_version = str(found["metadata"].get("resourceVersion") or "")
            self._pods.update((pod["metadata"]["uid"], pod) for pod in found["items"])
        attempts = attempts_of(own)
        began = [pod["status"].get("startTime") for pod in self._present_pods(restarts)]
        if len(attempts) > restarts or not any(began):
            return own
        attempts.append([seconds_of(min(filter(None, began))), None, None, None, []])
        changes = {ATTEMPTS: json.dumps(attempts)}
        version = own["metadata"]["resourceVersion"]
        noted: dict[str, Any] = self._note(
            self._app, {"resourceVersion": version, "annotations": changes}
        )
        return noted

    def _preempted(
        self, own: Mapping[str, Any], jobs: Iterable[Mapping[str, Any]], restarts: int
    ) -> Mapping[str, Any] | None:
        """Return a Job that Kueue has suspended after the attempt began; None if there is none."""
        if not self._rules or len(attempts_of(own)) <= restarts:
            return None
        manifests = self._read_manifests()
        queued = {one["metadata"]["name"] for one in manifests if one["spec"].get("suspend")}
        found = (job for job in jobs if job["spec"].get("suspend") and condition(job, "Suspended"))
        return next((job for job in found if job["metadata"]["name"] in queued), None)

    def _end_attempt(
        self, own: Mapping[str, Any], restarts: int, ended: str, reason: str
    ) -> list[Any]:
        """Return the attempts with the end of the present one."""
        attempts, end = attempts_of(own), seconds_of(ended)
        began = attempts[restarts][0] if len(attempts) > restarts else end
        step, _ = newest_step(self._rules["folder"])
        names = {pod["spec"].get("nodeName") for pod in self._present_pods(restarts)} - {None}
        nodes = sorted(names) if len(names) <= MOST_NODES else []
        ended_before = attempts[:restarts]
        for one in ended_before[: -ATTEMPTS_WITH_NODES + 1]:
            one[-1] = []
        return [*ended_before, [began, max(began, end), reason, step, nodes]]

    def _judge(
        self, own: Mapping[str, Any], failed: Mapping[str, Any], restarts: int, most: int
    ) -> tuple[list[Any], str | None]:
        """Return the attempts with the end of the present one, which a Job has ended.

        Also return why the app does not start again; None if it does.
        """
        folder, pods = self._rules["folder"], self._present_pods(restarts)
        reason = reason_of_end(
            failed,
            pods,
            self._rules["exit_codes"],
            is_requested=is_requested(folder, restarts),
        )
        ending = condition(failed, "Failed") or condition(failed, "Suspended") or {}
        attempts = self._end_attempt(own, restarts, str(ending.get("lastTransitionTime")), reason)
        reasons, steps = [one[2] for one in attempts], [None, *(one[3] for one in attempts)]
        seconds, (_, is_known) = seconds_together(attempts), newest_step(folder)
        return attempts, refusal(self._rules, reasons, steps, seconds, most, is_known)

    def _present_pods(self, restarts: int) -> list[dict[str, Any]]:
        return [pod for pod in self._pods.values() if number_of(pod, RESTARTS) == restarts]

    def _keep_pods(self, own: Mapping[str, Any]) -> None:
        """Make the supervisor's Job the owner of ended pods, so that they stay with their logs."""
        owner = owner_reference(own)
        for uid, pod in list(self._pods.items()):
            metadata, is_over = pod["metadata"], pod["status"].get("phase") in ENDED_PHASES
            if is_over and not is_deleting(pod) and metadata.get("ownerReferences") != [owner]:
                changes = {"metadata": {"uid": uid, "ownerReferences": [owner]}}
                path = f"/api/v1/namespaces/{self._namespace}/pods/{metadata['name']}"
                self._server.call("PATCH", path, changes)
            del self._pods[uid]

    def _set_attempt(self, job: dict[str, Any], restarts: int, own: Mapping[str, Any]) -> None:
        """Set the variables and the time limit of the next attempt in its Job."""
        template, attempts = job["spec"]["template"], attempts_of(own)
        template["metadata"]["annotations"][ATTEMPT] = str(restarts)
        variables = {ENV_ATTEMPT: str(restarts), ENV_REASON: attempts[restarts - 1][2]}
        own_variables = [{"name": name, "value": value} for name, value in variables.items()]
        for container in template["spec"]["containers"]:
            others = [one for one in container.get("env") or () if one["name"] not in variables]
            if len(others) < len(container.get("env") or ()):
                container["env"] = [*own_variables, *others]
        if self._rules["max_total_seconds"] is not None:
            left = max(1, self._rules["max_total_seconds"] - seconds_together(attempts))
            limit = template["spec"].get("activeDeadlineSeconds") or left
            template["spec"]["activeDeadlineSeconds"] = min(left, limit)

    def _pod_list(self) -> str:
        # the label selector is app.kubernetes.io/instance=APP,torchx.pytorch.org/part=replica
        selector = (
            f"app.kubernetes.io%2Finstance%3D{self._app}%2Ctorchx.pytorch.org%2Fpart%3Dreplica"
        )
        return f"/api/v1/namespaces/{self._namespace}/pods?labelSelector={selector}"

    # Methods that change Jobs.

    def _end(self, jobs: Iterable[Mapping[str, Any]], why: str) -> int | None:
        """End the roles that have not ended; return 0 once none of them runs, otherwise None."""
        running = 0
        for job in jobs:
            if condition(job, "Complete") or condition(job, "Failed") or is_deleting(job):
                continue
            # do not wait for a suspended Job: it may stay in a queue, and its deadline ends it when
            # it is resumed
            running += not job["spec"].get("suspend")
            if ENDED not in annotations_of(job):
                print(f"ending {job['metadata']['name']}", flush=True)
                metadata = {"uid": job["metadata"]["uid"], "annotations": {ENDED: why}}
                # a deadline ends a Job for good; a suspended Job could be resumed
                deadline = {"activeDeadlineSeconds": 1}
                self._note(job["metadata"]["name"], metadata, deadline)
        self.pause = SHORT_PAUSE
        return None if running else 0

    def _delete(self, job: Mapping[str, Any]) -> None:
        name = job["metadata"]["name"]
        print(f"deleting {name} of an earlier attempt", flush=True)
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": job["metadata"]["uid"]},
        }
        self._server.call("DELETE", self._job(name), options)

    def _create(self, manifest: Mapping[str, Any], restarts: int, own: Mapping[str, Any]) -> None:
        job: dict[str, Any] = copy.deepcopy(dict(manifest))
        print(f"creating {job['metadata']['name']}, attempt {restarts + 1}", flush=True)
        for part in (job, job["spec"]["template"]):
            metadata = part.setdefault("metadata", {})
            metadata["annotations"] = {
                **(metadata.get("annotations") or {}),
                RESTARTS: str(restarts),
            }
        job["metadata"]["ownerReferences"] = [owner_reference(own)]
        if self._rules:
            self._set_attempt(job, restarts, own)
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
    ) -> Any:
        changes: dict[str, Any] = {"metadata": metadata}
        if spec:
            changes["spec"] = spec
        return self._server.call("PATCH", self._job(name), changes)

    def _job(self, name: str = "") -> str:
        path = f"/apis/batch/v1/namespaces/{self._namespace}/jobs"
        return f"{path}/{name}" if name else path


def annotations_of(job: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the annotations of an object."""
    return job["metadata"].get("annotations") or {}


def number_of(resource: Mapping[str, Any], annotation: str) -> int:
    """Return an annotation's value as a number; 0 if it is missing or is not a number."""
    text = annotations_of(resource).get(annotation) or ""
    return int(text) if text.isdigit() else 0


def is_deleting(job: Mapping[str, Any]) -> bool:
    """Return whether an object is being deleted."""
    return bool(job["metadata"].get("deletionTimestamp"))


def condition(job: Mapping[str, Any], name: str) -> Mapping[str, Any] | None:
    """Return a condition of a Job if it is true, otherwise None."""
    conditions = (job.get("status") or {}).get("conditions") or ()
    true = (one for one in conditions if one.get("status") == "True")
    return next((one for one in true if one.get("type") == name), None)


def failure(job: Mapping[str, Any]) -> str:
    """Return why a Job failed."""
    failed = condition(job, "Failed")
    if failed is None:
        return "suspended by its queue"
    reason, message = str(failed.get("reason") or ""), str(failed.get("message") or "")
    if reason == "PodFailurePolicy":
        # leave out the index of the rule: TorchX wrote the rule, not the user
        return message.partition(" matching FailJob")[0]
    return ": ".join(part for part in (reason, message) if part)


def failed_text(job: Mapping[str, Any], counted: int) -> str:
    """Return which role has failed and why, and whether the app is restarted for it.

    Args:
        job: The Job of the role.
        counted: How many restarts have followed a failure so far.
    """
    most = number_of(job, MAX_RESTARTS)
    count = f"restart {counted + 1} of {most}: " if counted < most else ""
    return f"{count}role '{annotations_of(job).get(ROLE_NAME)}' failed: {failure(job)}"


def is_disruption(job: Mapping[str, Any]) -> bool:
    """Return whether a Job failed because a pod was evicted or preempted, or lost its node.

    Such a pod has the condition ``DisruptionTarget``, for which the Job's failure policy fails the
    Job. Only the message of the Job's condition shows which rule of the policy matched.
    """
    failed = condition(job, "Failed") or {}
    by_rule = failed.get("reason") == "PodFailurePolicy"
    return by_rule and " has condition DisruptionTarget" in str(failed.get("message"))


def owner_reference(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reference to the supervisor's Job as the owner of another object."""
    name, uid = own["metadata"]["name"], own["metadata"]["uid"]
    return {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": uid}


def attempts_of(own: Mapping[str, Any]) -> list[Any]:
    """Return the attempts that the supervisor's Job has noted."""
    found: list[Any] = json.loads(annotations_of(own).get(ATTEMPTS) or "[]")
    return found


def seconds_of(stamp: str) -> int:
    """Return a time of the API in seconds since 1970."""
    return calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ"))


def seconds_together(attempts: Iterable[Sequence[Any]]) -> int:
    """Return how long attempts that have ended have run together."""
    return sum(ended - began for began, ended, *_ in attempts)


def newest_step(folder: str) -> tuple[int | None, bool]:
    """Return the newest committed step in a resume folder, and whether the folder can be read.

    The step is None if there is none. An empty name means that the supervisor has no such folder.
    """
    try:
        names = os.listdir(folder) if folder else None
    except FileNotFoundError:
        names = []
    except OSError:
        names = None
    steps = [name[len("step-") :] for name in names or () if name.startswith("step-")]
    return max((int(step) for step in steps if step.isdigit()), default=None), names is not None


def is_requested(folder: str, number: int) -> bool:
    """Return whether a rank of an attempt asked for another one, by a file in the resume folder."""
    path = os.path.join(glob.escape(folder), "attempts", f"{number}.*", "requeue")
    return bool(folder and glob.glob(path))


def reason_of_end(
    failed: Mapping[str, Any],
    pods: Iterable[Mapping[str, Any]],
    exit_codes: Sequence[int],
    *,
    is_requested: bool,
) -> str:
    """Return why an attempt ended.

    A disruption or the time limit of one pod is the reason even if other pods ended first, because
    the ranks of an app agree on a stop. Otherwise, the first pod that ended by itself decides.

    Args:
        failed: The Job that failed first.
        pods: The last states of the attempt's pods, also of deleted ones.
        exit_codes: The exit codes that ask for another attempt.
        is_requested: Whether a rank has asked for another attempt.
    """
    pods = [pod for pod in pods if pod["status"].get("phase") != "Succeeded"]
    disrupted = [found for found in (condition(pod, "DisruptionTarget") for pod in pods) if found]
    if disrupted:
        is_lost = any(one.get("reason") in NODE_LOST for one in disrupted)
        return "node-failure" if is_lost else "preempted"
    if any(pod["status"].get("reason") == "DeadlineExceeded" for pod in pods):
        return "time-limit"
    if is_disruption(failed) or not condition(failed, "Failed"):
        return "preempted"
    if is_requested:
        return "requested"
    ends = [
        # a pod that is being deleted was ended by its Job after the end of another pod
        (is_deleting(pod), str(ended.get("finishedAt")), ended["exitCode"] not in exit_codes, ended)
        for pod in pods
        for one in pod["status"].get("containerStatuses") or ()
        for ended in [(one.get("state") or {}).get("terminated") or {}]
        if ended.get("exitCode")
    ]
    if any(ended.get("reason") == "OOMKilled" for _, _, _, ended in ends):
        return "out-of-memory"
    if not ends:
        # the node has refused or lost the pod, so that its program has no exit code
        return "node-failure" if pods else "failed"
    _, _, is_failure, _ = min(ends, key=lambda one: one[:3])
    return "failed" if is_failure else "requested"


def refusal(
    rules: Mapping[str, Any],
    reasons: Sequence[str],
    steps: Sequence[int | None],
    seconds: int,
    max_retries: int,
    has_folder: bool,
) -> str | None:
    """Return why an app does not start again after its last attempt; None if it does.

    These are the rules of ``torchx_kit.jobs.attempts.refusal``, which describes the arguments.
    """
    failures, refusals = rules["failures"], rules["refusals"]
    is_failure = reasons[-1] in failures
    if is_failure and sum(reason in failures for reason in reasons) > max_retries:
        return ""
    if reasons.count("node-failure") > rules["max_node_failures"]:
        return str(refusals["node_failures"])
    if rules["max_total_seconds"] is not None and seconds >= rules["max_total_seconds"]:
        return str(refusals["total_time"])
    count = rules["most_without_progress"]
    is_stuck = len(reasons) >= count and steps[-1] == steps[-1 - count]
    return str(refusals["no_progress"]) if has_folder and not is_failure and is_stuck else None


def first_failed(jobs: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the Job that failed first, or None if no Job failed.

    The first failure is probably the cause of the others.
    """
    failed = [(condition(job, "Failed"), job) for job in jobs]
    known = [(str(why.get("lastTransitionTime") or ""), job) for why, job in failed if why]
    return min(known, key=lambda one: one[0])[1] if known else None


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
    worked, last_error, delay = False, "", FIRST_DELAY
    accepted = time.monotonic()
    while True:
        try:
            code = supervisor.step()
            if code is not None:
                return code
            supervisor.report_problem("")
            worked, last_error, delay = True, "", FIRST_DELAY
            accepted = time.monotonic()
            supervisor.wait()
            continue
        except ChangedError as e:
            print(str(e), flush=True)
            time.sleep(SHORT_PAUSE)
            continue
        except (UnreachableError, RefusedError) as e:
            if str(e) != last_error:
                print(str(e), flush=True)
            last_error = str(e)
            is_refusal = isinstance(e, RefusedError)
            if supervisor.report_problem(last_error) if is_refusal else worked:
                accepted = time.monotonic()
            elif time.monotonic() - accepted > PATIENCE:
                return REFUSED
        time.sleep(delay)
        delay = min(delay * 2, LONGEST_DELAY)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
