"""What several `ragen` commands do and print: tables for people, JSON for machines, progress, deployments.

What one command alone does is in its file in `flows.cli`.
"""
