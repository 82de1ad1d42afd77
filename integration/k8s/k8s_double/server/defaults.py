"""The defaults that the API server sets."""

from __future__ import annotations

from typing import Any

from k8s_double.kinds import Kind


def fill(kind: Kind, obj: dict[str, Any]) -> None:
    """Set the defaults of an object, in place."""
    if kind.key == "pods":
        fill_pod(obj.setdefault("spec", {}))
        obj["spec"].setdefault("serviceAccountName", "default")
        obj["spec"].setdefault("serviceAccount", obj["spec"]["serviceAccountName"])
    elif kind.key == "jobs.batch":
        _fill_job(obj)
    elif kind.key == "services":
        _fill_service(obj.setdefault("spec", {}))
    elif kind.key == "secrets":
        obj.setdefault("type", "Opaque")
    elif kind.key == "jobs.batch.volcano.sh":
        _fill_volcano(obj.setdefault("spec", {}))
    elif kind.key == "jobsets.jobset.x-k8s.io":
        _fill_jobset(obj.setdefault("spec", {}))


def fill_pod(spec: dict[str, Any]) -> None:
    """Set the defaults of a pod's spec, or a template's, in place."""
    spec.setdefault("restartPolicy", "Always")
    spec.setdefault("terminationGracePeriodSeconds", 30)
    spec.setdefault("dnsPolicy", "ClusterFirst")
    spec.setdefault("securityContext", {})
    spec.setdefault("schedulerName", "default-scheduler")
    for container in [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]:
        image = container.get("image", "")
        tagged = "@" in image or ":" in image.rpartition("/")[2]
        latest = not tagged or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest else "IfNotPresent")
        container.setdefault("resources", {})
        container.setdefault("terminationMessagePath", "/dev/termination-log")
        container.setdefault("terminationMessagePolicy", "File")
        for port in container.get("ports") or []:
            port.setdefault("protocol", "TCP")
        for variable in container.get("env") or []:
            reference = (variable.get("valueFrom") or {}).get("fieldRef")
            if reference is not None:
                reference.setdefault("apiVersion", "v1")
        # a resource with a limit but without a request gets the limit as its request
        resources = container["resources"]
        if resources.get("limits"):
            asked = resources.setdefault("requests", {})
            for name, amount in resources["limits"].items():
                asked.setdefault(name, amount)
    for volume in spec.get("volumes") or []:
        for source in ("secret", "configMap"):
            if source in volume:
                volume[source].setdefault("defaultMode", 420)
        if "hostPath" in volume:
            volume["hostPath"].setdefault("type", "")


def _fill_job(obj: dict[str, Any]) -> None:
    spec = obj.setdefault("spec", {})
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    if spec.get("backoffLimit") is None:
        spec["backoffLimit"] = 2147483647 if spec.get("backoffLimitPerIndex") is not None else 6
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    policy = spec.get("podFailurePolicy")
    spec.setdefault("podReplacementPolicy", "Failed" if policy else "TerminatingOrFailed")
    for rule in (policy or {}).get("rules") or []:
        for condition in rule.get("onPodConditions") or []:
            condition.setdefault("status", "True")
    template = spec.setdefault("template", {})
    fill_pod(template.setdefault("spec", {}))


def _fill_service(spec: dict[str, Any]) -> None:
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4"])
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _fill_volcano(spec: dict[str, Any]) -> None:
    spec.setdefault("queue", "default")
    spec.setdefault("schedulerName", "volcano")
    spec.setdefault("maxRetry", 3)
    for i, task in enumerate(spec.get("tasks") or []):
        task.setdefault("name", f"default{i}")
        task.setdefault("replicas", 1)
        task.setdefault("minAvailable", task["replicas"])
        fill_pod(task.setdefault("template", {}).setdefault("spec", {}))
    tasks = spec.get("tasks") or []
    spec.setdefault("minAvailable", sum(task["minAvailable"] for task in tasks))


def _fill_jobset(spec: dict[str, Any]) -> None:
    network = spec.setdefault("network", {})
    network.setdefault("enableDNSHostnames", True)
    network.setdefault("publishNotReadyAddresses", True)
    spec.setdefault("successPolicy", {"operator": "All"})
    spec.setdefault("startupPolicy", {"startupPolicyOrder": "AnyOrder"})
    for job in spec.get("replicatedJobs") or []:
        job.setdefault("replicas", 1)
        job.setdefault("groupName", "default")
        inner = job["template"].setdefault("spec", {})
        inner.setdefault("completionMode", "Indexed")
        inner.setdefault("template", {}).setdefault("spec", {}).setdefault(
            "restartPolicy", "OnFailure"
        )
        _fill_job(job["template"])
