"""Read the logs of replicas."""
