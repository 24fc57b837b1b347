"""Import and export of trajectories: other systems' formats to dataset `turns`, and stored runs to other formats.

trace          a trajectory in an external format, and the rows it becomes
lines          external files, read piece by piece
content        messages of chat formats as text; image_parts: their images
verifiers      traces of verifiers and prime-rl, import
atif           ATIF, import and export
messages       chat messages as JSON lines, import and export
inspect_log    logs of Inspect, import; inspect_process: their reader; inspect_sample: a sample as a trace
spool          temporary file of the rows of many traces, before they become a dataset
setting_aside  traces that could not be imported
intake         reads a file of traces into a spool
played         stored trajectories of a run, one by one
choosing       selection of trajectories
destination    the target folder of an export
exporting      export of a run's trajectories
"""
