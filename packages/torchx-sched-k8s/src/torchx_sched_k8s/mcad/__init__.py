"""``kubernetes_mcad``: apps as AppWrappers of MCAD."""
