"""The Kubernetes objects of an app, made without a cluster."""
