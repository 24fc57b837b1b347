"""Code shared by all packages. Start with `errors`, then `registry`.

errors, faults, redaction, visible, templates   error messages, and making untrusted text safe to display
registry, lookup, rooms                         everything that a setting selects by name, and how names are resolved
identity, sources                               a digest of the code behind a name
outputs                                         files and folders that commands write: whole, or not there
guard, limits                                   calls of third-party code: limited, and without a trace
pictures, tabular                               figures, and rows as CSV and LaTeX, as files
candidates, curriculum                          what all searches, all curricula have in common
gone                                            names that were removed, and what to use
counts, seeding, settings, frames, process_start, allocator
"""
