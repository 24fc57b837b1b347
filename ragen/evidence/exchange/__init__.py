"""Trajectories in and out: what other systems write becomes `turns`, and what runs stored becomes what others read.

trace          a trajectory as others tell it, and the rows it becomes
lines          files of others, read piece by piece
content        messages of chat formats as text
verifiers      traces of verifiers and prime-rl, in
atif           ATIF, in and out
messages       chat messages as JSON lines, in and out
verl           verl's dumps of rollouts, in and out
trl            TRL's completions, in
spool          rows of many traces on their way into a dataset
setting_aside  what could not be imported
intake         a file of traces, read into a spool
played         what a run stored, trajectory by trajectory
choosing       which trajectories are wanted
preferences    pairs for DPO, out
hub_folder     a folder for Hugging Face's `datasets`, out
hub            a folder pushed to the Hugging Face Hub
cards          what the card of a pushed folder says
destination    where an export goes
exporting      a run's trajectories, written for others
"""
