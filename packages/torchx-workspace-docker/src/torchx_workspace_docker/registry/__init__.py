"""Images built in a registry, without a Docker Engine."""
