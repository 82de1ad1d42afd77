"""Import path of the scheduler ``kubernetes`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_sched_k8s.scheduler",
    extra="kubernetes",
    distribution="torchx-sched-k8s",
    legacy=[
        "torchx._legacy_kubernetes",
        "torchx_sched_k8s.cluster.labels",
        "torchx_specs.overlays",
    ],
    names={
        "PLACEHOLDER_FIELD_PATH": "torchx_sched_k8s.request.pods",
        "RESERVED_MEMMB": "torchx_sched_k8s.options",
        "RESERVED_MILLICPU": "torchx_sched_k8s.options",
        "RETRY_POLICIES": "torchx_sched_k8s.backends.volcano",
        "normalize_str": "torchx_sched_k8s.cluster.names",
    },
)
