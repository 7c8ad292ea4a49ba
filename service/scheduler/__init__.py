"""Claims jobs and runs them as Ray Tune experiments.

What a large cluster would need, and what breaks first, is worked out in service/README.md.
"""
