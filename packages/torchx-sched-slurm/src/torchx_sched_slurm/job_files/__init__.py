"""The files of jobs: scripts, records, directories with copies of workspaces; unused copies."""
