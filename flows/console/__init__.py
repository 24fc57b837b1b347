"""What the `ragen` commands do and print: tables for people, JSON for machines. One file a group of commands.

`flows.cli` declares the commands and imports these when one is used.
"""
