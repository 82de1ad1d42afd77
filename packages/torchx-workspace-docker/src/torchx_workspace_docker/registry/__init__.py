"""Build images in a registry, without a Docker Engine."""
