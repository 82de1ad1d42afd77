"""A double of Kubernetes: an API server over HTTP or HTTPS, controllers, and a kubelet that runs
each pod's command as a process of this machine.

It is no Kubernetes. What it answers is written from Kubernetes' documentation and published schemas
(1.32), so that a client meets here what it would meet there: the same objects, refusals, watches,
pages and logs. Images are names only, and networks and volumes aren't there at all: there is no
cluster DNS, no address of a service is reached, and a mount is checked and not made. A command
isn't the first process of a container: SIGTERM ends one that would there ignore it until SIGKILL.
A Job's failed pod is made anew after a tenth of a second, not after ten.

    python -m k8s_double FOLDER        (with integration/k8s on PYTHONPATH)

starts one and writes FOLDER/kubeconfig; :mod:`k8s_double.handle` does so for tests, and is what
they steer it with.
"""
