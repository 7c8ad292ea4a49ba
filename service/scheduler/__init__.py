"""Claims jobs and runs them as Ray Tune experiments. Nothing here answers HTTP, and nothing trains.

service/INSIDE.md works out what a large cluster would need, and what breaks first.
"""
