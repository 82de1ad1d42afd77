"""Schemas of the operators' objects, written from the operators' documentation.

The operators are JobSet (jobset.x-k8s.io/v1alpha2), Volcano (batch.volcano.sh/v1alpha1), the
Multi-Cluster App Dispatcher (workload.codeflare.dev/v1beta1) with the PodGroup of the coscheduling
plugin, and Kueue (kueue.x-k8s.io/v1beta1). The status of an object is not checked.
"""

from __future__ import annotations

from typing import Any

_TEMPLATE = {"$ref": "#/$defs/io.k8s.api.core.v1.PodTemplateSpec"}
_JOB_TEMPLATE = {"$ref": "#/$defs/io.k8s.api.batch.v1.JobTemplateSpec"}
_STRING = {"type": "string"}
_STRINGS = {"type": "array", "items": _STRING}
_BOOLEAN = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 0}
_INTEGER = {"type": "integer"}
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_QUANTITIES = {
    "type": "object",
    "additionalProperties": {
        "$ref": "#/$defs/io.k8s.apimachinery.pkg.api.resource.Quantity",
    },
}


def _object(required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


def _kind(**spec: Any) -> dict[str, Any]:
    """Return the schema of an object whose spec has these fields; any status is valid."""
    return _object(spec=_object(**spec), status=_ANYTHING)


def _list(of: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": of}


def _enum(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


_VOLCANO_POLICY = _object(
    action=_enum(
        "AbortJob", "RestartJob", "RestartTask", "RestartPod", "RestartPartition", "TerminateJob",
        "CompleteJob", "ResumeJob", "SyncJob", "EnqueueJob", "SyncQueue", "OpenQueue", "CloseQueue",
    ),
    event=_enum(
        "*", "PodPending", "PodRunning", "PodFailed", "PodEvicted", "JobUnknown", "TaskCompleted",
        "TaskFailed", "Unknown", "OutOfSync", "CommandIssued", "JobUpdated",
    ),
    events=_STRINGS,
    exitCode=_INTEGER,
    timeout=_STRING,
)  # fmt: skip
_VOLCANO_TASK = _object(
    ("template",),
    name=_STRING,
    replicas=_COUNT,
    minAvailable=_COUNT,
    template=_TEMPLATE,
    policies=_list(_VOLCANO_POLICY),
    topologyPolicy=_enum("none", "best-effort", "restricted", "single-numa-node"),
    maxRetry=_COUNT,
    dependsOn=_object(name=_STRINGS, iteration=_enum("any", "all")),
)
_JOBSET_RULE = _object(
    ("action",),
    name=_STRING,
    action=_enum("FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"),
    onJobFailureReasons=_list(
        _enum(
            "BackoffLimitExceeded",
            "DeadlineExceeded",
            "FailedIndexes",
            "MaxFailedIndexesExceeded",
            "PodFailurePolicy",
        )
    ),
    targetReplicatedJobs=_STRINGS,
)

_REPLICATED_JOB = _object(
    ("name", "template"),
    name=_STRING,
    groupName=_STRING,
    replicas=_COUNT,
    template=_JOB_TEMPLATE,
    dependsOn=_list(_object(("name", "status"), name=_STRING, status=_enum("Ready", "Complete"))),
)

DEFINITIONS: dict[str, dict[str, Any]] = {
    "double.JobSet": _kind(
        replicatedJobs=_list(_REPLICATED_JOB),
        network=_object(
            enableDNSHostnames=_BOOLEAN, subdomain=_STRING, publishNotReadyAddresses=_BOOLEAN
        ),
        successPolicy=_object(
            ("operator",), operator=_enum("All", "Any"), targetReplicatedJobs=_STRINGS
        ),
        failurePolicy=_object(
            maxRestarts=_COUNT,
            restartStrategy=_enum("Recreate", "BlockingRecreate"),
            rules=_list(_JOBSET_RULE),
        ),
        startupPolicy=_object(
            ("startupPolicyOrder",), startupPolicyOrder=_enum("AnyOrder", "InOrder")
        ),
        suspend=_BOOLEAN,
        coordinator=_object(
            ("replicatedJob",), replicatedJob=_STRING, jobIndex=_COUNT, podIndex=_COUNT
        ),
        managedBy=_STRING,
        ttlSecondsAfterFinished=_COUNT,
    ),
    "double.VolcanoJob": _kind(
        schedulerName=_STRING,
        minAvailable=_COUNT,
        volumes=_list(
            _object(
                ("mountPath",),
                mountPath=_STRING,
                volumeClaimName=_STRING,
                volumeClaim={"$ref": "#/$defs/io.k8s.api.core.v1.PersistentVolumeClaimSpec"},
            )
        ),
        tasks=_list(_VOLCANO_TASK),
        policies=_list(_VOLCANO_POLICY),
        plugins={"type": "object", "additionalProperties": _STRINGS},
        runningEstimate=_STRING,
        queue=_STRING,
        maxRetry=_COUNT,
        ttlSecondsAfterFinished=_COUNT,
        priorityClassName=_STRING,
        minSuccess={"type": "integer", "minimum": 1},
        networkTopology=_object(mode=_enum("hard", "soft"), highestTierAllowed=_INTEGER),
    ),
    "double.VolcanoQueue": _object(spec=_ANYTHING, status=_ANYTHING),
    "double.AppWrapper": _kind(
        priority=_INTEGER,
        priorityslope={"type": "number"},
        service=_ANYTHING,
        resources=_object(
            GenericItems=_list(
                _object(
                    replicas=_COUNT,
                    minavailable=_COUNT,
                    allocated=_INTEGER,
                    priority=_INTEGER,
                    priorityslope={"type": "number"},
                    completionstatus=_STRING,
                    custompodresources=_list(
                        _object(
                            ("replicas", "requests"),
                            replicas=_COUNT,
                            requests=_QUANTITIES,
                            limits=_QUANTITIES,
                        )
                    ),
                    generictemplate=_ANYTHING,
                )
            )
        ),
        schedulingSpec=_object(
            nodeSelector={"type": "object", "additionalProperties": _STRING},
            minAvailable=_COUNT,
            requeuing=_object(
                initialTimeInSeconds=_COUNT,
                timeInSeconds=_COUNT,
                maxTimeInSeconds=_COUNT,
                growthType=_enum("exponential", "linear", "none"),
                numRequeuings=_COUNT,
                maxNumRequeuings=_COUNT,
            ),
            dispatchDuration=_ANYTHING,
        ),
        selector={"$ref": "#/$defs/io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"},
    ),
    "double.PodGroup": _kind(
        minMember={"type": "integer", "minimum": 1},
        minResources=_QUANTITIES,
        scheduleTimeoutSeconds=_INTEGER,
    ),
    "double.Workload": _kind(
        podSets=_list(
            _object(
                ("template",),
                name=_STRING,
                template=_TEMPLATE,
                count=_COUNT,
                minCount=_COUNT,
            )
        ),
        queueName=_STRING,
        priorityClassName=_STRING,
        priority=_INTEGER,
        priorityClassSource=_STRING,
        active=_BOOLEAN,
        maximumExecutionTimeSeconds=_COUNT,
    ),
    "double.LocalQueue": _kind(clusterQueue=_STRING, stopPolicy=_STRING),
}
