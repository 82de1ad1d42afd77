"""TorchX workspace builder for container images, with a Docker daemon or without.

Everything public is in :mod:`torchx_workspace_docker.builder`.
"""
