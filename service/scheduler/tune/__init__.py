"""Ray Tune's side of a run: searcher, pruner, recorder and trainable; the orders for trials, and their ends.

Never a decision of the search: that is the policy's.
"""
