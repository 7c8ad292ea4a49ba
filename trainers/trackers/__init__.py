"""Trials as runs of experiment trackers: TensorBoard, MLflow, Weights & Biases. Optional packages; never torch."""
