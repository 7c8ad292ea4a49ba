"""The workloads on the handwritten digits that ship with scikit-learn. Never data of a user's."""
