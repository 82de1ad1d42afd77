"""Images built by a Docker Engine."""
