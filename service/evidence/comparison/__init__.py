"""The comparison of configs over new seeds: who is chosen, the interval and its formulas, what else speaks. Never what
is trained again."""
