"""The processes of replicas: starting, finding, adopting and terminating them."""
