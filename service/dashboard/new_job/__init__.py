"""The page on which a job is put together: a form made of the schemas of a job and of its workloads. It checks
nothing itself: the API does.
"""
