"""The tuning service: HTTP API, SQL store, scheduler, dashboard and command line. No optimizer and no training loop
stands here: those are `shampoo` and `trainers`."""

# A package of the distribution shampoo-tuner: trainers.installation.distribution looks for this line.

from trainers.installation.distribution import PACKAGES, check_packages, is_command

if not is_command():  # which says it without a traceback
    check_packages(PACKAGES)
