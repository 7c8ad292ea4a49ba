"""Claims jobs and runs them as Ray Tune experiments. Nothing here answers HTTP, and nothing trains.

What a large cluster would need, and what breaks first, is worked out in service/INSIDE.md.
"""
