"""The jobs in the queue: queries, arrays, and holds of jobs that have not started."""
