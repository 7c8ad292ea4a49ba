"""Ray Tune's side of a run: searcher, pruner, recorder and trainable; how trials are ordered, and how each one ends.

Never a decision of the search: that is the policy's.
"""
