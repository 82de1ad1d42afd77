"""A double of Kubernetes: an API server, controllers and a kubelet that runs pods as processes.

The double is not Kubernetes. It is written from Kubernetes' documentation and published schemas
(1.32), so that a client sees the same objects, refusals, watches, pages and logs as on a cluster.
The double differs from a cluster in these points:

- Images are only names.
- There is no network: no cluster DNS, no addresses of services.
- Volumes are checked but not mounted.
- A command is not process 1 of a container, so SIGTERM ends a process without a handler.
- A Job's failed pod is replaced after 0.1 seconds instead of 10.

This command starts a double and writes FOLDER/kubeconfig (integration/k8s must be on PYTHONPATH)::

    python -m k8s_double FOLDER

Tests start and control a double with :mod:`k8s_double.handle`.
"""
