"""What every wing uses and none owns. Begin with `errors`, then `registry`.

errors, faults, redaction, visible, templates   what users are told, and untrusted text made safe to show
registry, lookup                                everything that a setting chooses by name, and how
identity, definitions                           a digest of the code behind a name
seeding, settings, frames, process_start, allocator
"""
