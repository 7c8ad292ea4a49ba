"""Processes that run what this one must not import: started cold, or forked from a warm one. Standard library alone, so
that the API has it, but for what the warm process imports ahead.
"""
