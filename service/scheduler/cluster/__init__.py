"""The machines of a job: Ray, process trees, the environment of a run, shares of the cluster. Never here: which configs
are tried."""
