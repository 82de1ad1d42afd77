"""The controller of batch/v1 Jobs: pods, indexes, retries, failure policies, suspension."""

from __future__ import annotations

import time
from datetime import datetime, timezone
from typing import Any

from k8s_double.controllers.scheduling import set_condition
from k8s_double.errors import ApiError
from k8s_double.kinds import JOBS, PODS
from k8s_double.server.api import Api
from k8s_double.store import Object, controlled_by, copied, now

INDEX = "batch.kubernetes.io/job-completion-index"
#: The finalizer of a Job's pods, removed when the Job's status counts the pod.
TRACKING = "batch.kubernetes.io/job-tracking"
CONTROLLER = "job-controller"


class _Kept:
    """The controller's memory of a Job.

    Attributes:
        counted: How each counted pod ended, by uid: "succeeded", "failed" or "ignored".
        index: Maps the uid of each pod to its index.
        failed_at: Maps an index to the time of its last failure; the key -1 means any index.
        failures: Maps an index to its number of failures; the key -1 has the number of failures of
            any index since the last success.
        failed_indexes: Indexes that have failed for good.
        doomed: Reason and message with which the Job will fail; None if it may succeed.
        enough: Index of the rule of the success policy that is met; None if none is met.
        refused_until: Time until which no pod is created, because the API has refused a pod.
        suspended: Uids of pods that were deleted because the Job was suspended or has too many
            pods.
    """

    def __init__(self) -> None:
        self.counted: dict[str, str] = {}
        self.index: dict[str, int] = {}
        self.failed_at: dict[int, float] = {}
        self.failures: dict[int, int] = {}
        self.failed_indexes: set[int] = set()
        self.doomed: tuple[str, str] | None = None
        self.enough: int | None = None
        self.refused_until = 0.0
        self.suspended: set[str] = set()

    def count(self, what: str) -> int:
        return sum(1 for found in self.counted.values() if found == what)


class JobController:
    """Creates and deletes the pods of Jobs, and sets the status of Jobs.

    Args:
        api: The API.
        delay: How long before a failed pod is replaced, in seconds. The delay doubles after each
            failure. A real cluster starts with 10 seconds.
    """

    def __init__(self, api: Api, delay: float) -> None:
        self.api = api
        self.store = api.store
        self.delay = delay
        self._kept: dict[str, _Kept] = {}
        self._gone: dict[str, list[Object]] = {}

    def pod_gone(self, pod: Object) -> None:
        """Remember the last state of a deleted pod that has ended, so that the pod is counted.

        In a real cluster, the finalizer delays the removal of such a pod. In the double, only pods
        without a node wait for the removal of their finalizers.
        """
        for owner in pod["metadata"].get("ownerReferences") or []:
            if owner["kind"] == "Job" and owner.get("controller") and _ended(pod):
                self._gone.setdefault(owner["uid"], []).append(pod)

    def _pods(self, job: Object) -> list[Object]:
        """Return the pods of which a Job is the controller; others may name it as an owner."""
        uid = job["metadata"]["uid"]
        return [
            pod
            for _, pod in self.store.owned(uid, PODS)
            if any(
                owner["uid"] == uid and owner.get("controller")
                for owner in pod["metadata"]["ownerReferences"]
            )
        ]

    def sync(self, namespace: str, name: str) -> float | None:
        """Reconcile a Job; return the seconds to the next call, or None to wait for a change."""
        job = self.store.find(JOBS, namespace, name)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return None
        if job["spec"].get("managedBy") not in (None, "kubernetes.io/job-controller"):
            return None
        kept = self._kept.setdefault(job["metadata"]["uid"], _Kept())
        if finished(job):
            return self._expire(job)
        pods = self._pods(job)
        self._count(job, [*pods, *self._gone.pop(job["metadata"]["uid"], [])], kept)
        active = [pod for pod in pods if _active(pod)]
        if job["spec"].get("suspend"):
            return self._suspend(job, active, pods, kept)
        self._resume(job)
        left = self._deadline(job, kept)
        if kept.doomed is None and kept.enough is None:
            kept.doomed = self._failed(job, kept)
        if kept.doomed is None and kept.enough is None:
            kept.enough = self._enough(job, kept)
        done = kept.enough is not None or self._succeeded(job, kept)
        if kept.doomed is not None or done:
            self._end(job, active, pods, kept)
            return 0.05 if any(not _ended(pod) for pod in pods) else self._expire(job)
        again = self._create_pods(job, active, pods, kept)
        self._status(job, pods, kept)
        waits = [w for w in (left, again) if w is not None]
        return min(waits) if waits else None

    # Methods that count ended pods.

    def _count(self, job: Object, pods: list[Object], kept: _Kept) -> None:
        policy = job["spec"].get("podFailurePolicy")
        present = set()
        for pod in pods:
            uid, phase = pod["metadata"]["uid"], pod["status"].get("phase")
            present.add(uid)
            index = _index(pod)
            kept.index[uid] = index
            if uid in kept.counted or uid in kept.suspended:
                continue
            if phase == "Succeeded":
                kept.counted[uid] = "succeeded"
                kept.failures.pop(-1, None)
            elif phase == "Failed":
                self._count_failed(job, pod, policy, kept)
            elif pod["metadata"].get("deletionTimestamp") and _replaces_deleted(job):
                self._failure(uid, index, kept)
            if uid in kept.counted:
                self._release(pod)
        gone = [uid for uid in kept.index if uid not in present and uid not in kept.counted]
        for uid in gone:
            if uid not in kept.suspended and _replaces_deleted(job):
                self._failure(uid, kept.index[uid], kept)
            else:
                kept.counted[uid] = "ignored"

    def _count_failed(
        self, job: Object, pod: Object, policy: dict[str, Any] | None, kept: _Kept
    ) -> None:
        uid, index = pod["metadata"]["uid"], _index(pod)
        for i, rule in enumerate((policy or {}).get("rules") or []):
            why = _rule_matches(rule, pod)
            if not why:
                continue
            action = rule["action"]
            if action == "Ignore":
                kept.counted[uid] = "ignored"
                return
            if action == "FailJob":
                kept.doomed = kept.doomed or (
                    "PodFailurePolicy",
                    f"{why} matching FailJob rule at index {i}",
                )
            if action == "FailIndex":
                kept.failed_indexes.add(index)
            break
        self._failure(uid, index, kept)
        limit = job["spec"].get("backoffLimitPerIndex")
        if limit is not None and kept.failures.get(index, 0) > limit:
            kept.failed_indexes.add(index)

    @staticmethod
    def _failure(uid: str, index: int, kept: _Kept) -> None:
        kept.counted[uid] = "failed"
        for key in (index, -1):
            kept.failed_at[key] = time.monotonic()
            kept.failures[key] = kept.failures.get(key, 0) + 1

    # Methods that end a Job.

    def _deadline(self, job: Object, kept: _Kept) -> float | None:
        seconds, started = job["spec"].get("activeDeadlineSeconds"), job["status"].get("startTime")
        if seconds is None or not started:
            return None
        left: float = seconds - (datetime.now(timezone.utc) - _time(started)).total_seconds()
        if left <= 0 and kept.doomed is None:
            kept.doomed = ("DeadlineExceeded", "Job was active longer than specified deadline")
        return max(left, 0.0)

    def _failed(self, job: Object, kept: _Kept) -> tuple[str, str] | None:
        spec = job["spec"]
        if kept.count("failed") > spec["backoffLimit"]:
            return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
        if spec.get("backoffLimitPerIndex") is not None:
            most = spec.get("maxFailedIndexes")
            if most is not None and len(kept.failed_indexes) > most:
                return (
                    "MaxFailedIndexesExceeded",
                    "Job has exceeded the specified maximal number of failed indexes",
                )
            over = len(kept.failed_indexes | self._done(kept)) >= (spec.get("completions") or 0)
            if kept.failed_indexes and over:
                return "FailedIndexes", "Job has failed indexes"
        return None

    @staticmethod
    def _done(kept: _Kept) -> set[int]:
        return {kept.index[uid] for uid, what in kept.counted.items() if what == "succeeded"}

    def _succeeded(self, job: Object, kept: _Kept) -> bool:
        spec = job["spec"]
        wanted = spec.get("completions")
        if spec["completionMode"] == "Indexed":
            return len([i for i in self._done(kept) if i < wanted]) >= wanted
        if wanted is None:
            return kept.count("succeeded") > 0
        return kept.count("succeeded") >= int(wanted)

    def _enough(self, job: Object, kept: _Kept) -> int | None:
        """Return the index of the first rule of the success policy that is met, or None."""
        done = self._done(kept)
        for i, rule in enumerate((job["spec"].get("successPolicy") or {}).get("rules") or []):
            wanted = _indexes(rule.get("succeededIndexes"))
            met = done if wanted is None else done & wanted
            least = rule.get("succeededCount")
            if least is None:
                least = len(wanted or ())
            if met and len(met) >= least:
                return i
        return None

    def _end(self, job: Object, active: list[Object], pods: list[Object], kept: _Kept) -> None:
        for pod in active:
            self._delete_pod(job, pod)
        pods = self._pods(job)
        for pod in pods:
            if pod["metadata"].get("deletionTimestamp") and not pod["spec"].get("nodeName"):
                # every pod of a failing Job that has not ended counts as failed
                if kept.doomed and pod["metadata"]["uid"] not in kept.counted:
                    self._failure(pod["metadata"]["uid"], _index(pod), kept)
                self._release(pod)
        pods = self._pods(job)
        over = all(_ended(pod) for pod in pods)
        self._count(job, pods, kept)
        doomed = kept.doomed
        reason, message = "CompletionsReached", "Reached expected number of succeeded pods"
        if kept.enough is not None:
            reason, message = "SuccessPolicy", f"Matched rules at index {kept.enough}"
        if doomed:
            reason, message = doomed
        first, last = ("FailureTarget", "Failed") if doomed else ("SuccessCriteriaMet", "Complete")

        def change(obj: Object) -> None:
            self._counts(obj, pods, kept)
            set_condition(obj, first, "True", reason, message)
            if over:
                set_condition(obj, last, "True", reason, message)
                obj["status"].pop("active", None)
                obj["status"]["ready"] = 0
                if not doomed:
                    obj["status"]["completionTime"] = now()

        after = self.store.mutate(JOBS, *_at(job), change)
        if over and after is not None:
            if doomed:
                self.store.event(JOBS, job, reason, message, "Warning", component=CONTROLLER)
            else:
                self.store.event(JOBS, job, "Completed", "Job completed", component=CONTROLLER)

    def _expire(self, job: Object) -> float | None:
        """Delete a finished Job after its time to live; return the seconds left, or None."""
        found = self.store.find(JOBS, *_at(job))
        seconds = job["spec"].get("ttlSecondsAfterFinished")
        if found is None or seconds is None or not finished(found):
            return None
        ended = next(
            c["lastTransitionTime"]
            for c in found["status"]["conditions"]
            if c["type"] in ("Complete", "Failed") and c["status"] == "True"
        )
        left: float = seconds - (datetime.now(timezone.utc) - _time(ended)).total_seconds()
        if left > 0:
            return left
        self.api.delete(JOBS, *_at(job), {"propagationPolicy": "Foreground"})
        return None

    # Methods that suspend a Job.

    def _suspend(
        self, job: Object, active: list[Object], pods: list[Object], kept: _Kept
    ) -> float | None:
        for pod in active:
            kept.suspended.add(pod["metadata"]["uid"])
            self._release(pod)
            self._delete_pod(job, pod)
        pods = self._pods(job)
        told = _condition(job, "Suspended")

        def change(obj: Object) -> None:
            self._counts(obj, pods, kept)
            set_condition(obj, "Suspended", "True", "JobSuspended", "Job suspended")
            obj["status"].pop("startTime", None)

        self.store.mutate(JOBS, *_at(job), change)
        if not told:
            self.store.event(JOBS, job, "Suspended", "Job suspended", component=CONTROLLER)
        return 0.05 if any(not _ended(pod) for pod in pods) else None

    def _resume(self, job: Object) -> None:
        resumed = _condition(job, "Suspended")
        if not resumed and job["status"].get("startTime"):
            return

        def change(obj: Object) -> None:
            if resumed:
                set_condition(obj, "Suspended", "False", "JobResumed", "Job resumed")
            obj["status"].setdefault("startTime", now())

        self.store.mutate(JOBS, *_at(job), change)
        if resumed:
            self.store.event(JOBS, job, "Resumed", "Job resumed", component=CONTROLLER)

    # Methods for pods.

    def _create_pods(
        self, job: Object, active: list[Object], pods: list[Object], kept: _Kept
    ) -> float | None:
        spec = job["spec"]
        terminating = [p for p in pods if p["metadata"].get("deletionTimestamp") and not _ended(p)]
        room = spec["parallelism"] - len(active)
        if spec["podReplacementPolicy"] == "Failed":
            room -= len(terminating)
        if room < 0:
            for pod in sorted(active, key=_index, reverse=True)[:-room]:
                kept.suspended.add(pod["metadata"]["uid"])
                self._release(pod)
                self._delete_pod(job, pod)
            return None
        wanted = self._wanted(spec, active, pods, kept)[:room]
        if time.monotonic() < kept.refused_until:
            return kept.refused_until - time.monotonic() if wanted else None
        wait: float | None = None
        for index in wanted:
            key = index if spec.get("backoffLimitPerIndex") is not None else -1
            failures = kept.failures.get(key, 0)
            ready = 0.0
            if failures:
                ready = kept.failed_at[key] + self.delay * 2 ** min(failures - 1, 10)
            left = ready - time.monotonic()
            if left > 0:
                wait = left if wait is None else min(wait, left)
                continue
            try:
                self._create_pod(job, index)
            except ApiError as e:
                message = f"Error creating: {e.message}"
                self.store.event(
                    JOBS, job, "FailedCreate", message, "Warning", component=CONTROLLER
                )
                kept.refused_until = time.monotonic() + max(self.delay, 0.2)
                return max(self.delay, 0.2)
        return wait

    def _wanted(
        self, spec: dict[str, Any], active: list[Object], pods: list[Object], kept: _Kept
    ) -> list[int]:
        if spec["completionMode"] != "Indexed":
            left = spec.get("completions")
            missing = spec["parallelism"] if left is None else left - kept.count("succeeded")
            return [-1] * max(0, missing - len(active))
        taken = {_index(pod) for pod in active} | self._done(kept) | kept.failed_indexes
        if spec["podReplacementPolicy"] == "Failed":
            taken |= {_index(pod) for pod in pods if not _ended(pod)}
        return [i for i in range(spec["completions"]) if i not in taken]

    def _create_pod(self, job: Object, index: int) -> None:
        metadata, template = job["metadata"], copied(job["spec"]["template"])
        inner = template.get("metadata") or {}
        labels = dict(inner.get("labels") or {})
        annotations = dict(inner.get("annotations") or {})
        spec = template["spec"]
        prefix = f"{metadata['name']}-"
        if index >= 0:
            tail = f"-{index}-"
            prefix = metadata["name"] + tail
            if len(prefix) > 58:
                prefix = prefix[: 58 - len(tail)] + tail
            labels[INDEX] = annotations[INDEX] = str(index)
            spec["hostname"] = f"{metadata['name']}-{index}"
            reference = {"fieldPath": f"metadata.labels['{INDEX}']", "apiVersion": "v1"}
            for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
                env = container.setdefault("env", [])
                if not any(v["name"] == "JOB_COMPLETION_INDEX" for v in env):
                    env.append(
                        {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": reference}}
                    )
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": prefix,
                "labels": labels,
                "annotations": annotations,
                "finalizers": [TRACKING],
                "ownerReferences": [controlled_by(job)],
            },
            "spec": spec,
        }
        made, _ = self.api.create(PODS, metadata["namespace"], pod)
        message = f"Created pod: {made['metadata']['name']}"
        self.store.event(JOBS, job, "SuccessfulCreate", message, component=CONTROLLER)

    def _delete_pod(self, job: Object, pod: Object) -> None:
        name = pod["metadata"]["name"]
        try:
            self.api.delete(PODS, pod["metadata"]["namespace"], name, {})
        except ApiError:
            return
        message = f"Deleted pod: {name}"
        self.store.event(JOBS, job, "SuccessfulDelete", message, component=CONTROLLER)

    def _release(self, pod: Object) -> None:
        """Remove the finalizer of a pod without a node; remove the pod if it is being deleted."""
        metadata = pod["metadata"]
        if pod["spec"].get("nodeName") or not metadata.get("finalizers"):
            return
        at = (metadata["namespace"], metadata["name"])

        def without_finalizer(obj: Object) -> None:
            if obj["metadata"]["uid"] == metadata["uid"]:
                left = obj["metadata"].get("finalizers") or []
                obj["metadata"]["finalizers"] = [name for name in left if name != TRACKING]

        with self.store.lock:
            found = self.store.mutate(PODS, *at, without_finalizer)
            if found is None or found["metadata"]["uid"] != metadata["uid"]:
                return
            is_leaving = found["metadata"].get("deletionTimestamp")
            if is_leaving and not found["metadata"].get("finalizers"):
                self.store.remove(PODS, *at)

    def release_orphans(self) -> None:
        """Remove the finalizers of leaving pods whose Jobs are finished or deleted."""
        for pod in self.store.all(PODS):
            metadata = pod["metadata"]
            if not metadata.get("deletionTimestamp") or TRACKING not in (
                metadata.get("finalizers") or []
            ):
                continue
            names = [o["name"] for o in metadata.get("ownerReferences") or [] if o["kind"] == "Job"]
            jobs = [self.store.find(JOBS, metadata["namespace"], name) for name in names]
            if all(
                job is None or job["metadata"].get("deletionTimestamp") or finished(job)
                for job in jobs
            ):
                self._release(pod)

    # Methods that set the status.

    def _status(self, job: Object, pods: list[Object], kept: _Kept) -> None:
        pods = self._pods(job)
        self.store.mutate(JOBS, *_at(job), lambda obj: self._counts(obj, pods, kept))

    def _counts(self, obj: Object, pods: list[Object], kept: _Kept) -> None:
        status, spec = obj["status"], obj["spec"]
        active = [pod for pod in pods if _active(pod)]
        counts = {
            "active": len(active),
            "succeeded": kept.count("succeeded"),
            "failed": kept.count("failed"),
        }
        for key, number in counts.items():
            if number:
                status[key] = number
            else:
                status.pop(key, None)
        status["ready"] = sum(1 for pod in active if _condition(pod, "Ready"))
        status["terminating"] = sum(
            1 for p in pods if p["metadata"].get("deletionTimestamp") and not _ended(p)
        )
        status["uncountedTerminatedPods"] = {}
        if spec["completionMode"] == "Indexed":
            status["completedIndexes"] = _ranges(self._done(kept))
            if not status["completedIndexes"]:
                status.pop("completedIndexes")
            if spec.get("backoffLimitPerIndex") is not None:
                status["failedIndexes"] = _ranges(kept.failed_indexes)


def finished(job: Object) -> bool:
    """Return whether a Job has ended."""
    return _condition(job, "Complete") or _condition(job, "Failed")


def _condition(obj: Object, type_: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)


def _replaces_deleted(job: Object) -> bool:
    """Return whether a pod that is being deleted counts as failed before it has ended."""
    policy: str = job["spec"]["podReplacementPolicy"]
    return policy != "Failed"


def _ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _active(pod: Object) -> bool:
    return not _ended(pod) and not pod["metadata"].get("deletionTimestamp")


def _index(pod: Object) -> int:
    return int((pod["metadata"].get("annotations") or {}).get(INDEX, -1))


def _at(obj: Object) -> tuple[str, str]:
    return obj["metadata"]["namespace"], obj["metadata"]["name"]


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def _ranges(indexes: set[int]) -> str:
    """Return indexes as a Job's status writes them: ``0,2-5``."""
    found: list[list[int]] = []
    for index in sorted(indexes):
        if found and found[-1][-1] == index - 1:
            found[-1] = [found[-1][0], index]
        else:
            found.append([index])
    return ",".join(
        f"{r[0]}{'-' if r[-1] - r[0] > 1 else ','}{r[-1]}" if len(r) > 1 else str(r[0])
        for r in found
    )


def _indexes(text: str | None) -> set[int] | None:
    if text is None:
        return None
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _rule_matches(rule: dict[str, Any], pod: Object) -> str:
    """Return how a failed pod matches a rule of a failure policy; empty if it does not."""
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    codes = rule.get("onExitCodes")
    if codes:
        for part in ("initContainerStatuses", "containerStatuses"):
            for status in pod["status"].get(part) or []:
                if codes.get("containerName") not in (None, status["name"]):
                    continue
                ended = (status["state"].get("terminated") or {}).get("exitCode")
                if ended in (None, 0):
                    continue
                if (ended in codes["values"]) is (codes["operator"] == "In"):
                    return (
                        f"Container {status['name']} for pod {name} failed with exit code {ended}"
                    )
    for wanted in rule.get("onPodConditions") or []:
        for condition in pod["status"].get("conditions") or []:
            if (condition["type"], condition["status"]) == (wanted["type"], wanted["status"]):
                return f"Pod {name} has condition {wanted['type']}"
    return ""
