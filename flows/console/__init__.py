"""Code shared by several `ragen` commands: tables for people, JSON for machines, progress, deployments.

Code of a single command is in its file in `flows.cli`.
"""
