"""Copies of logs in log sinks: writes, resumes and reads them."""
