"""Submitted jobs: the index on this machine, and the record and logs beside each job."""
