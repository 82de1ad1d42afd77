"""Make the Kubernetes objects of an app, without a request to a cluster."""
