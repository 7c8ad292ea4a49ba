"""Ray Tune's side of a run: searcher, pruner, recorder, trainable, and their parts. Never a decision: policy does."""
