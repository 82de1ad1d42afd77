"""Jobs in LSF's queue: queries, job arrays, kills, and withdrawals of pending jobs."""
