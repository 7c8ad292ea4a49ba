"""Training: workloads, the loop, checkpoints and ranks. Never Ray, SQL or HTTP."""

# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.

from trainers.installation.distribution import check_packages, is_command

if not is_command():  # which says it without a traceback
    check_packages(["search_spaces", "shampoo"])
