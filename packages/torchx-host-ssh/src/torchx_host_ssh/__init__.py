"""A host that the user's own OpenSSH reaches."""
