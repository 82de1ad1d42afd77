"""The states of operators' objects, played from named sequences, and the Workloads of Kueue.

:meth:`Operators.add` adds a row for a kind of objects, with the sequence of states that new objects
of this kind go through. Objects without a row stay as they were created, as if the operator were
down. With ``pods: true``, the double also creates and runs the pods that the operator would create,
with the operator's names and labels.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection
from datetime import datetime, timezone
from typing import Any

from k8s_double.controllers.scheduling import set_condition
from k8s_double.errors import ApiError
from k8s_double.kinds import BY_KEY, JOBS, PODS, SERVICES, Kind
from k8s_double.server.api import Api
from k8s_double.store import Change, Object, controlled_by, copied, now

VOLCANO = BY_KEY["jobs.batch.volcano.sh"]
JOBSET = BY_KEY["jobsets.jobset.x-k8s.io"]
APPWRAPPER = BY_KEY["appwrappers.workload.codeflare.dev"]
WORKLOAD = BY_KEY["workloads.kueue.x-k8s.io"]

#: Maps a kind and the name of a sequence to the states of the sequence, in order.
SEQUENCES: dict[str, dict[str, list[str]]] = {
    VOLCANO.key: {
        "pending": ["Pending"],
        "running": ["Pending", "Running"],
        "completed": ["Pending", "Running", "Completing", "Completed"],
        "failed": ["Pending", "Running", "Failed"],
        "terminated": ["Pending", "Running", "Terminating", "Terminated"],
        "aborted": ["Pending", "Running", "Aborting", "Aborted"],
        "restarting": ["Pending", "Running", "Restarting", "Pending", "Running"],
        "a-phase-of-tomorrow": ["Pending", "Hibernating"],
    },
    JOBSET.key: {
        "running": ["Running"],
        "completed": ["Running", "Completed"],
        "failed": ["Running", "Failed"],
        "suspended": ["Suspended"],
    },
    APPWRAPPER.key: {
        "pending": ["Pending"],
        "running": ["Pending", "Running"],
        "completed": ["Pending", "Running", "Completed"],
        "running-hold-completion": ["Pending", "Running", "RunningHoldCompletion"],
        "failed": ["Pending", "Running", "Failed"],
        "deleted": ["Pending", "Deleted"],
    },
}

#: The double stores no PodGroups of Volcano, only their events.
_POD_GROUP = Kind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup", "")

#: Label of a JobSet's Jobs and pods: how many times the JobSet had been restarted.
_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"

_PHASE_OF = {
    "Pending": "Pending",
    "Inqueue": "Pending",
    "Running": "Running",
    "Completing": "Running",
    "Completed": "Succeeded",
    "Failed": "Failed",
    "Terminated": "Failed",
    "Aborted": "Failed",
}


class Operators:
    """Plays the states of operators' objects, and creates the objects' pods."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.store = api.store
        self.rows: list[dict[str, Any]] = []
        self.kueue = False
        self._steps: dict[str, list[str]] = {}
        self._played: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()

    def add(self, row: dict[str, Any]) -> None:
        """Add a row.

        Args:
            row: ``kind`` (key of the kind), ``sequence`` (name of the sequence) and ``pods``
                (whether to create pods). For Volcano also ``gang`` and ``full``: texts of a warning
                and of a normal event of the Job's PodGroup, as the plugins of Volcano report them.

        Raises:
            ValueError: There is no such sequence.
        """
        known = SEQUENCES.get(row["kind"], {})
        if row.get("sequence") and row["sequence"] not in known:
            raise ValueError(f"no sequence named {row['sequence']}; there are {', '.join(known)}")
        self.rows.append(dict(row))

    def changed(self, change: Change) -> None:
        """Apply the rows to a new object."""
        if change.type != "ADDED" or change.key not in SEQUENCES:
            return
        uid = change.obj["metadata"]["uid"]
        for row in self.rows:
            if row["kind"] == change.key:
                with self._lock:
                    self._played[uid] = row
                    self._steps[uid] = list(SEQUENCES[change.key].get(row.get("sequence", ""), []))

    def tick(self) -> None:
        """Move each object to its next state, and let Kueue act if it is on."""
        for uid, steps in list(self._steps.items()):
            row = self._played[uid]
            kind = BY_KEY[row["kind"]]
            obj = next((o for o in self.store.all(kind) if o["metadata"]["uid"] == uid), None)
            if obj is None:
                self._steps.pop(uid)
                continue
            self._expire(kind, obj)
            restarted = kind is VOLCANO and (obj.get("status") or {}).get("retryCount")
            if row.get("pods") and not self.store.owned(uid) and not restarted:
                self._make(kind, obj)
            if steps:
                self._show(kind, obj, steps.pop(0), row)
            elif row.get("pods"):
                self._follow(kind, obj)
            else:
                self._steps.pop(uid)
        if self.kueue:
            self._admit()

    def _expire(self, kind: Kind, obj: Object) -> None:
        """Delete a finished object after its time to live.

        A Volcano Job is deleted only if its state contains the time of the last transition. An
        aborted Volcano Job is not finished.
        """
        seconds = obj["spec"].get("ttlSecondsAfterFinished")
        status = obj.get("status") or {}
        times = []
        if kind is JOBSET:
            times = [
                c["lastTransitionTime"]
                for c in status.get("conditions") or []
                if c["type"] in ("Completed", "Failed") and c["status"] == "True"
            ]
        elif kind is VOLCANO:
            state = status.get("state") or {}
            if state.get("phase") in ("Completed", "Failed", "Terminated"):
                times = [t for t in [state.get("lastTransitionTime")] if t]
        if seconds is None or not times or "deletionTimestamp" in obj["metadata"]:
            return
        ended = datetime.fromisoformat(times[0].replace("Z", "+00:00"))
        if (datetime.now(timezone.utc) - ended).total_seconds() >= seconds:
            options = {"propagationPolicy": "Foreground"}
            self.api.delete(kind, obj["metadata"]["namespace"], _name(obj), options)

    # Methods that set states.

    def _show(self, kind: Kind, obj: Object, phase: str, row: dict[str, Any]) -> None:
        def change(found: Object) -> None:
            if kind is VOLCANO:
                _volcano_status(found, phase, row)
            elif kind is JOBSET:
                _jobset_status(found, phase)
            else:
                _appwrapper_status(found, phase)

        self.store.mutate(kind, obj["metadata"]["namespace"], obj["metadata"]["name"], change)
        for key, type_ in (("gang", "Warning"), ("full", "Normal")):
            if kind is VOLCANO and row.get(key):
                metadata = {**obj["metadata"], "name": f"{_name(obj)}-{obj['metadata']['uid']}"}
                group = {"metadata": metadata}
                self.store.event(
                    _POD_GROUP, group, "Unschedulable", row[key], type_, component="volcano"
                )

    # Methods for pods.

    def _make(self, kind: Kind, obj: Object, present: Collection[str] = ()) -> None:
        """Create the objects that the operator makes for an object.

        Args:
            kind: Kind of the object.
            obj: The object.
            present: Names of objects that exist and are not created.
        """
        if kind is VOLCANO:
            made = _volcano_pods(obj)
        elif kind is JOBSET:
            made = _jobset_jobs(obj)
        else:
            made = _appwrapper_items(obj)
        owner = {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "name": obj["metadata"]["name"],
            "uid": obj["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
        for child_kind, child in made:
            if _name(child) in present:
                continue
            child["metadata"]["ownerReferences"] = [owner]
            try:
                self.api.create(child_kind, obj["metadata"]["namespace"], child)
            except ApiError as e:
                self.store.event(kind, obj, "FailedCreate", e.message, "Warning")

    def _follow(self, kind: Kind, obj: Object) -> None:
        """Set the state of an object from its pods."""
        owned = self.store.owned(obj["metadata"]["uid"])
        if kind is JOBSET:
            jobs = [found for key, found in owned if key == JOBS.key]
            self._suspend(obj, jobs)
            if self._jobset_restarts(obj, jobs):
                return
            ends = [_end_of(job) for job in jobs]
            targets = (obj["spec"].get("successPolicy") or {}).get("targetReplicatedJobs")
            deciding = [
                end
                for job, end in zip(jobs, ends, strict=True)
                if not targets
                or job["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] in targets
            ]
            if "Failed" in ends:
                self._show(kind, obj, "Failed", {})
            elif all(end == "Complete" for end in deciding):
                self._show(kind, obj, "Completed", {})
                # a JobSet that has ended deletes its active Jobs
                for job, end in zip(jobs, ends, strict=True):
                    if not end and "deletionTimestamp" not in job["metadata"]:
                        options = {"propagationPolicy": "Foreground"}
                        self.api.delete(JOBS, job["metadata"]["namespace"], _name(job), options)
            else:
                self._show(kind, obj, "Running", {})
            return
        if kind is VOLCANO and self._volcano_restarts(
            obj, [found for key, found in owned if key == PODS.key]
        ):
            return
        phases = [found["status"].get("phase") for key, found in owned if key == PODS.key]
        if not phases:
            return
        if "Failed" in phases:
            phase = "Failed"
        elif {*phases} == {"Succeeded"} or (
            kind is VOLCANO and _is_completed_by_a_task(obj, owned)
        ):
            phase = "Completed"
        elif "Running" in phases or "Succeeded" in phases:
            phase = "Running"
        else:
            phase = "Pending"

        def change(found: Object) -> None:
            if kind is VOLCANO:
                _volcano_status(found, phase, {})
                pods = [p for key, p in owned if key == PODS.key]
                counts: dict[str, Counter[str]] = {}
                for pod in pods:
                    task = pod["metadata"]["labels"]["volcano.sh/task-spec"]
                    counts.setdefault(task, Counter())[pod["status"].get("phase", "Pending")] += 1
                found["status"]["taskStatusCount"] = {
                    task: {"phase": dict(by)} for task, by in counts.items()
                }
            else:
                _appwrapper_status(found, phase)

        self.store.mutate(kind, obj["metadata"]["namespace"], obj["metadata"]["name"], change)

    def _jobset_restarts(self, jobset: Object, jobs: list[Object]) -> bool:
        """Restart a JobSet as its failure policy says; return whether a restart is in progress.

        Jobs of an earlier attempt are deleted. New Jobs are created after the deletion has ended.
        """
        status = jobset.get("status") or {}
        restarts = int(status.get("restarts") or 0)
        attempts = [int(job["metadata"]["labels"][_ATTEMPT]) for job in jobs]
        old = [job for job, attempt in zip(jobs, attempts, strict=True) if attempt < restarts]
        if old:
            for job in old:
                if "deletionTimestamp" not in job["metadata"]:
                    options = {"propagationPolicy": "Foreground"}
                    self.api.delete(JOBS, job["metadata"]["namespace"], _name(job), options)
            return True
        if not jobs:
            self._make(JOBSET, jobset)
            return True
        failed = [job for job in jobs if _end_of(job) == "Failed"]
        policy = jobset["spec"].get("failurePolicy") or {}
        if not failed or not policy:
            return False
        action = _jobset_action(policy, failed[0])
        counted = int(status.get("restartsCountTowardsMax") or 0)
        limited = action == "RestartJobSet"
        if action == "FailJobSet" or (limited and counted >= int(policy.get("maxRestarts") or 0)):
            return False

        def restart(found: Object) -> None:
            found["status"]["restarts"] = restarts + 1
            found["status"]["restartsCountTowardsMax"] = counted + limited

        self.store.mutate(JOBSET, jobset["metadata"]["namespace"], _name(jobset), restart)
        return True

    def _suspend(self, jobset: Object, jobs: list[Object]) -> None:
        """Suspend or resume the Jobs of a JobSet, as the JobSet's field ``suspend`` says."""
        wanted = bool(jobset["spec"].get("suspend"))
        for job in jobs:
            if bool(job["spec"].get("suspend")) is not wanted and not _end_of(job):

                def suspend(found: Object) -> None:
                    found["spec"]["suspend"] = wanted

                self.store.mutate(JOBS, job["metadata"]["namespace"], _name(job), suspend)

    def _volcano_restarts(self, job: Object, pods: list[Object]) -> bool:
        """Restart pods of a Volcano Job by its policies; return whether to leave its state alone.

        The rules are those of Volcano's source. ``runningState`` and ``restartingState``: each
        restart adds 1 to ``retryCount``, and the Job fails when ``retryCount`` has reached
        ``maxRetry``. ``killPods`` (1.12): the last ``RestartJob`` keeps the pods that have ended;
        ``RestartTask`` and ``RestartPod`` delete their pods each time. ``finishedState``: a Job
        that has ended keeps only the pods that have ended.
        """
        status = job.get("status") or {}
        phase = (status.get("state") or {}).get("phase")
        leaving = any("deletionTimestamp" in pod["metadata"] for pod in pods)
        if phase == "Restarting":
            if leaving:
                return True
            if int(status.get("retryCount") or 0) >= int(job["spec"].get("maxRetry") or 3):
                self._show(VOLCANO, job, "Failed", {})
                return True
            self._make(VOLCANO, job, {_name(pod) for pod in pods})
            self._show(VOLCANO, job, "Pending", {})
            return True
        if phase in ("Aborted", "Terminated", "Failed", "Completed"):
            for pod in pods:
                if not _has_ended(pod) and not leaving:
                    self.api.delete(PODS, job["metadata"]["namespace"], _name(pod), {})
        if phase in ("Failed", "Completed", "Aborted", "Aborting", "Terminated"):
            return phase != "Completed"
        present = {_name(pod): pod for pod in pods if "deletionTimestamp" not in pod["metadata"]}
        for _, wanted in _volcano_pods(job):
            pod = present.get(_name(wanted))
            if pod is not None and pod["status"].get("phase") != "Failed":
                continue
            task = wanted["metadata"]["labels"]["volcano.sh/task-spec"]
            event = "PodEvicted" if pod is None else "PodFailed"
            action = _volcano_action(job, task, event)
            if action is None:
                continue
            of_task = [
                name
                for name, one in present.items()
                if one["metadata"]["labels"]["volcano.sh/task-spec"] == task
            ]
            last = int(status.get("retryCount") or 0) >= int(job["spec"].get("maxRetry") or 3) - 1
            of_job = [name for name, one in present.items() if not (last and _has_ended(one))]
            doomed = {"RestartJob": of_job, "RestartTask": of_task}.get(
                action, [_name(pod)] if pod is not None else []
            )
            for name in doomed:
                self.api.delete(PODS, job["metadata"]["namespace"], name, {})

            def count(found: Object) -> None:
                found["status"]["retryCount"] = int(found["status"].get("retryCount") or 0) + 1

            self.store.mutate(VOLCANO, job["metadata"]["namespace"], _name(job), count)
            self._show(VOLCANO, job, "Restarting", {})
            return True
        if not leaving and len(present) < len(_volcano_pods(job)):
            # like Volcano's `syncJob`, create a missing pod again under the same name
            self._make(VOLCANO, job, present)
        return False

    # Methods of Kueue.

    def queue(self, kind: Kind, obj: Object) -> None:
        """Suspend a new Job or JobSet that names a queue, as Kueue's webhook does."""
        labels = obj["metadata"].get("labels") or {}
        queued = kind in (JOBS, JOBSET) and "kueue.x-k8s.io/queue-name" in labels
        if self.kueue and queued and not obj["metadata"].get("ownerReferences"):
            obj.setdefault("spec", {})["suspend"] = True

    def _admit(self) -> None:
        """Create a Workload for each queued Job; let the Job run while its Workload is admitted."""
        for job in self.store.all(JOBS):
            metadata = job["metadata"]
            queue = (metadata.get("labels") or {}).get("kueue.x-k8s.io/queue-name")
            if not queue:
                continue
            owned = [o for key, o in self.store.owned(metadata["uid"]) if key == WORKLOAD.key]
            if _end_of(job):
                self._finish(owned)
                continue
            if not owned:
                self._make_workload(job, queue)
                continue
            workload = owned[0]
            active = workload["spec"].get("active", True)
            admitted = _is_true(workload, "Admitted")
            if not active and admitted:

                def evict(found: Object) -> None:
                    set_condition(found, "Admitted", "False", "NoReservation", "evicted")
                    set_condition(
                        found, "Evicted", "True", "Deactivated", "The workload is deactivated"
                    )

                self.store.mutate(WORKLOAD, metadata["namespace"], _name(workload), evict)
                admitted = False
            wanted = not (admitted and active)
            if job["spec"].get("suspend") is not wanted:

                def suspend(found: Object, value: bool = wanted) -> None:
                    found["spec"]["suspend"] = value
                    found["metadata"]["generation"] += 1

                self.store.mutate(JOBS, metadata["namespace"], metadata["name"], suspend)

    def _finish(self, workloads: list[Object]) -> None:
        """Mark the Workloads of a Job that has ended as finished, which releases their quota."""

        def change(obj: Object) -> None:
            set_condition(obj, "Finished", "True", "JobFinished", "Job finished")

        for workload in workloads:
            if not _is_true(workload, "Finished"):
                self.store.mutate(
                    WORKLOAD, workload["metadata"]["namespace"], _name(workload), change
                )

    def _make_workload(self, job: Object, queue: str) -> None:
        metadata = job["metadata"]
        body = {
            "apiVersion": WORKLOAD.api_version,
            "kind": "Workload",
            "metadata": {
                "name": f"job-{metadata['name'][:50]}-{metadata['uid'][:5]}",
                "labels": {"kueue.x-k8s.io/job-uid": metadata["uid"]},
                "ownerReferences": [controlled_by(job)],
            },
            "spec": {
                "queueName": queue,
                "active": True,
                "podSets": [
                    {
                        "name": "main",
                        "count": job["spec"]["parallelism"],
                        "template": {"spec": copied(job["spec"]["template"]["spec"])},
                    }
                ],
            },
        }
        made, _ = self.api.create(WORKLOAD, metadata["namespace"], body)
        # The message is that of Kueue's scheduler (pkg/scheduler/flavorassigner).
        self._wait(
            made,
            "Pending",
            "couldn't assign flavors to pod set main: insufficient unused quota for cpu in flavor"
            " default-flavor, 1 more needed",
        )

    def _wait(self, workload: Object, reason: str, message: str) -> None:
        def change(obj: Object) -> None:
            set_condition(obj, "QuotaReserved", "False", reason, message)

        self.store.mutate(WORKLOAD, workload["metadata"]["namespace"], _name(workload), change)

    def admit(self, namespace: str, most: int | None) -> int:
        """Admit the Workloads of a namespace that wait in a queue, the oldest first.

        Kueue admits a Workload while the ClusterQueue has unused quota for the Workload's flavor. A
        Workload that is admitted, finished or not active does not wait.

        Args:
            namespace: The namespace.
            most: For how many Workloads the quota is enough; None means for all.

        Returns:
            How many Workloads were admitted.
        """

        def change(obj: Object) -> None:
            set_condition(obj, "QuotaReserved", "True", "QuotaReserved", "quota reserved")
            set_condition(obj, "Admitted", "True", "Admitted", "The workload is admitted")

        waiting = [
            workload
            for workload in self.store.all(WORKLOAD, namespace)
            if workload["spec"].get("active", True)
            and not _is_true(workload, "Admitted")
            and not _is_true(workload, "Finished")
        ]
        waiting.sort(key=lambda workload: str(workload["metadata"]["creationTimestamp"]))
        for workload in waiting[:most]:
            self.store.mutate(WORKLOAD, namespace, _name(workload), change)
        return len(waiting[:most])


def _jobset_action(policy: dict[str, Any], job: Object) -> str:
    """Return the action of the first rule of a failure policy that matches a failed Job.

    If no rule matches, the action is ``RestartJobSet``.
    """
    reasons = [c.get("reason") for c in job["status"]["conditions"] if c["type"] == "Failed"]
    part = job["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"]
    for rule in policy.get("rules") or []:
        if rule.get("targetReplicatedJobs") and part not in rule["targetReplicatedJobs"]:
            continue
        if rule.get("onJobFailureReasons") and reasons[0] not in rule["onJobFailureReasons"]:
            continue
        return str(rule["action"])
    return "RestartJobSet"


def _is_completed_by_a_task(job: Object, owned: list[tuple[str, Object]]) -> bool:
    """Return whether a task with the policy ``CompleteJob`` for ``TaskCompleted`` has succeeded."""
    phases: dict[str, list[str]] = {}
    for key, pod in owned:
        if key == PODS.key:
            task = pod["metadata"]["labels"]["volcano.sh/task-spec"]
            phases.setdefault(task, []).append(pod["status"].get("phase", "Pending"))
    wanted = {"event": "TaskCompleted", "action": "CompleteJob"}
    return any(
        wanted in (task.get("policies") or ())
        and phases.get(task["name"], []).count("Succeeded") == task.get("replicas", 1)
        for task in job["spec"]["tasks"]
    )


def _volcano_action(job: Object, task: str, event: str) -> str | None:
    """Return the action of the first policy for an event; the task's policies come first.

    Return None if neither the task nor the Job has a policy for the event.
    """
    tasks = [one for one in job["spec"]["tasks"] if one["name"] == task]
    for part in (*tasks, job["spec"]):
        for policy in part.get("policies") or []:
            if event in (policy.get("event"), *(policy.get("events") or [])):
                return str(policy["action"])
    return None


def _has_ended(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _name(obj: Object) -> str:
    return str(obj["metadata"]["name"])


def _is_true(obj: Object, condition: str) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or []
    return any(c["type"] == condition and c["status"] == "True" for c in conditions)


def _end_of(job: Object) -> str:
    for condition in (job.get("status") or {}).get("conditions") or []:
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return str(condition["type"])
    return ""


def _volcano_status(obj: Object, phase: str, row: dict[str, Any]) -> None:
    tasks = obj["spec"].get("tasks") or []
    status = obj.setdefault("status", {})
    reached = status.get("conditions") or []
    state = {"phase": phase, "lastTransitionTime": now()}
    if row.get("reason"):
        state.update(reason=row["reason"], message=row.get("message", ""))
    if not reached or reached[-1]["status"] != phase:
        status["conditions"] = [*reached, {"status": phase, "lastTransitionTime": now()}]
        status["state"] = state
    pod_phase = _PHASE_OF.get(phase, "Running")
    total = sum(task["replicas"] for task in tasks)
    for key in ("pending", "running", "succeeded", "failed"):
        status.pop(key, None)
    status[pod_phase.lower()] = total
    status["minAvailable"] = obj["spec"].get("minAvailable", total)
    status["taskStatusCount"] = {
        task["name"]: {"phase": {pod_phase: task["replicas"]}} for task in tasks
    }
    status["runningDuration"] = "1s"


def _jobset_status(obj: Object, phase: str) -> None:
    status = obj.setdefault("status", {})
    parts = obj["spec"].get("replicatedJobs") or []
    counts = {"ready": 0, "succeeded": 0, "failed": 0, "active": 0, "suspended": 0}
    field = {"Running": "active", "Completed": "succeeded", "Failed": "failed"}.get(
        phase, "suspended"
    )
    status["replicatedJobsStatus"] = [
        {**counts, "name": part["name"], field: part["replicas"]} for part in parts
    ]
    status.setdefault("restarts", 0)
    if phase == "Completed":
        set_condition(obj, "Completed", "True", "AllJobsCompleted", "jobset completed successfully")
        status["terminalState"] = "Completed"
    elif phase == "Failed":
        words = "jobset failed due to one or more job failures"
        set_condition(obj, "Failed", "True", "FailedJobs", words)
        status["terminalState"] = "Failed"
    elif phase == "Suspended":
        set_condition(obj, "Suspended", "True", "SuspendedJobs", "jobset is suspended")


def _appwrapper_status(obj: Object, phase: str) -> None:
    status = obj.setdefault("status", {})
    pods = [
        item
        for item in (obj["spec"].get("resources") or {}).get("GenericItems") or []
        if (item.get("generictemplate") or {}).get("kind") == "Pod"
    ]
    for key in ("pending", "running", "failed", "Succeeded"):
        status.pop(key, None)
    counts = {
        "Pending": "pending",
        "Running": "running",
        "Failed": "failed",
        "Completed": "Succeeded",
        "RunningHoldCompletion": "Succeeded",
    }
    if phase in counts and pods:
        status[counts[phase]] = len(pods)
    status["state"] = phase
    status["queuejobstate"] = phase
    status["filterignore"] = True


def _volcano_pods(obj: Object) -> list[tuple[Kind, Object]]:
    name = obj["metadata"]["name"]
    hosts = {
        task["name"]: [f"{name}-{task['name']}-{i}.{name}" for i in range(task["replicas"])]
        for task in obj["spec"].get("tasks") or []
    }
    env = []
    for task, names in hosts.items():
        word = task.replace("-", "_").upper()
        env.append({"name": f"VC_{word}_HOSTS", "value": ",".join(names)})
        env.append({"name": f"VC_{word}_NUM", "value": str(len(names))})
    found = []
    for task in obj["spec"].get("tasks") or []:
        for i in range(task["replicas"]):
            template = copied(task["template"])
            metadata = template.get("metadata") or {}
            spec = template["spec"]
            spec.update(schedulerName="default-scheduler", subdomain=name)
            spec["hostname"] = f"{name}-{task['name']}-{i}"[:63]
            for container in spec["containers"]:
                container.setdefault("env", []).extend(
                    [
                        *copied(env),
                        {"name": "VC_TASK_INDEX", "value": str(i)},
                        {"name": "VK_TASK_INDEX", "value": str(i)},
                    ]
                )
            pod = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": f"{name}-{task['name']}-{i}",
                    "labels": {
                        **(metadata.get("labels") or {}),
                        "volcano.sh/job-name": name,
                        "volcano.sh/job-namespace": obj["metadata"]["namespace"],
                        "volcano.sh/queue-name": obj["spec"]["queue"],
                        "volcano.sh/task-index": str(i),
                        "volcano.sh/task-spec": task["name"],
                    },
                    "annotations": {
                        **(metadata.get("annotations") or {}),
                        "volcano.sh/job-name": name,
                        "volcano.sh/task-spec": task["name"],
                        "volcano.sh/task-index": str(i),
                        "volcano.sh/job-retry-count": str(
                            (obj.get("status") or {}).get("retryCount") or 0
                        ),
                    },
                },
                "spec": spec,
            }
            found.append((PODS, pod))
    return found


def _jobset_jobs(obj: Object) -> list[tuple[Kind, Object]]:
    name = obj["metadata"]["name"]
    found: list[tuple[Kind, Object]] = []
    for part in obj["spec"].get("replicatedJobs") or []:
        for i in range(part["replicas"]):
            template = copied(part["template"])
            labels = {
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": part["name"],
                "jobset.sigs.k8s.io/replicatedjob-replicas": str(part["replicas"]),
                "jobset.sigs.k8s.io/job-index": str(i),
                _ATTEMPT: str((obj.get("status") or {}).get("restarts") or 0),
            }
            spec = template["spec"]
            spec.pop("selector", None)
            inner = spec["template"].setdefault("metadata", {})
            inner["labels"] = {**(inner.get("labels") or {}), **labels}
            inner["annotations"] = {**(inner.get("annotations") or {}), **labels}
            spec["template"]["spec"]["subdomain"] = (obj["spec"].get("network") or {}).get(
                "subdomain"
            ) or name
            metadata = template.get("metadata") or {}
            job = {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {
                    "name": f"{name}-{part['name']}-{i}",
                    "labels": {**(metadata.get("labels") or {}), **labels},
                    "annotations": {**(metadata.get("annotations") or {}), **labels},
                },
                "spec": spec,
            }
            found.append((JOBS, job))
    return found


def _appwrapper_items(obj: Object) -> list[tuple[Kind, Object]]:
    kinds = {
        "Pod": PODS,
        "Service": SERVICES,
        "PodGroup": BY_KEY["podgroups.scheduling.sigs.k8s.io"],
    }
    found = []
    for item in (obj["spec"].get("resources") or {}).get("GenericItems") or []:
        template = copied(item.get("generictemplate") or {})
        kind = kinds.get(template.get("kind", ""))
        if kind is not None:
            template.get("metadata", {}).pop("namespace", None)
            if kind is PODS:
                template["spec"]["schedulerName"] = "default-scheduler"
            found.append((kind, template))
    return found
