"""Import path of the scheduler ``kubernetes_mcad`` in older TorchX releases."""

from torchx._forward import forward_backend

forward_backend(
    __name__,
    "torchx_sched_mcad.scheduler",
    extra="kubernetes",
    distribution="torchx-sched-mcad",
    legacy=["torchx._legacy_mcad", "torchx_sched_k8s.cluster.labels"],
    names={
        "RESERVED_MEMMB": "torchx_sched_k8s.options",
        "RESERVED_MILLICPU": "torchx_sched_k8s.options",
        "RETRY_POLICIES": "torchx_sched_k8s.backends.volcano",
        "sanitize_for_serialization": "torchx._legacy_kubernetes",
    },
)
