"""The scheduler ``kubernetes_mcad``."""
