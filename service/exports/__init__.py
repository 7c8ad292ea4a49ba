"""Jobs as files that other programs open: tables of trials and measurements, TensorBoard's and MLflow's stores. Never
SQL, and never a trial in training."""
