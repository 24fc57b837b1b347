"""What is kept, what may be deleted, and what can be derived again.

inventory     contents of a store, by listing it
reachability  artifacts that a run needs: those it names and everything they were made from
garbage       deletion of what no run needs, and of leftovers of killed writers
retention     which checkpoints a run keeps
checkpoints   the checkpoints of a run: kept, dropped, derivable; recipe: the updates that derive one again
usage         numbers and bytes by kind and by run
integrity     hashes everything again in place
copying       copies a run with everything it needs to another store
"""
