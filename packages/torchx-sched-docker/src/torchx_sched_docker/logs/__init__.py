"""The logs of replicas: whole lines, and incomplete lines whose newline is not written yet."""
