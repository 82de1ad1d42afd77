"""The logs of replicas."""
