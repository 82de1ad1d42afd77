"""Records of submitted jobs, kept on this machine."""
