"""Build images with a Docker Engine."""
