"""A double of Kubernetes: an API server, controllers and a kubelet that runs pods as processes.

It is not Kubernetes. It is written from Kubernetes' documentation and published schemas (1.32), so
that a client sees the same objects, refusals, watches, pages and logs as on a cluster. It differs
in these points:

- Images are only names.
- There is no network: no cluster DNS, no addresses of services.
- Volumes are checked but not mounted.
- A command is not process 1 of a container, so SIGTERM ends a process without a handler.
- A Job's failed pod is replaced after 0.1 seconds instead of 10.

    python -m k8s_double FOLDER        (with integration/k8s on PYTHONPATH)

starts a double and writes FOLDER/kubeconfig. Tests start and control one with
:mod:`k8s_double.handle`.
"""
