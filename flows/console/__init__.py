"""Code shared by several `starpo` commands: tables for people, JSON for machines, progress, deployments.

Code of a single command is in its file in `flows.cli`.
"""
