"""Log sinks: copies of job logs in folders and in object stores."""
