"""The scheduler ``kubernetes_mcad``, which runs apps as AppWrappers of MCAD."""
