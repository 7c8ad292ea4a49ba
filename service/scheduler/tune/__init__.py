"""All that Ray Tune is given: searcher, pruner, recorder, trainable, placement groups. Never a decision: that is policy."""
