"""What stays, what may go, and what can be had again.

inventory     what lies in a store, by listing it
reachability  which artifacts a run needs: those it names and all they were made from
garbage       what no run needs goes, and what killed writers left
retention     which checkpoints a run keeps
checkpoints   those of a run: kept, dropped, derivable; recipe: by which updates one can be made again
usage         numbers and bytes by kind and by run
integrity     everything hashed again where it lies
copying       a run with everything it needs, to another store
packing       the same as one file, and back
"""
