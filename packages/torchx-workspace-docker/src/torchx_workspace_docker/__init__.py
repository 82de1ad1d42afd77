"""TorchX workspace builder for container images, with or without a Docker Engine.

The public names are in :mod:`torchx_workspace_docker.builder`.
"""
