"""All that Ray Tune is given: searcher, pruner, recorder, trainable, and their parts. Never a decision: that is policy."""
