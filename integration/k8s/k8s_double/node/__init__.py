"""The node: a kubelet that runs pods as processes, and their logs."""
