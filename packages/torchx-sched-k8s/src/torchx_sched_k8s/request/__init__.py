"""The Kubernetes objects of an app."""
