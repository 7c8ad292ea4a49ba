"""The cost of a job, told before it is submitted, as the command line and the form show it."""

from __future__ import annotations

from service.domain import Phase, Side
from service.evidence.in_words.wording import counted, joined, mebibytes, optimizer_title, share
from service.specification.estimate import EarlierMeasurements, Estimate, MemoryEstimate, SpaceMemory, StartUp
from service.transfer.promise import PresetsCompared


def estimate_lines(estimate: Estimate) -> list[str]:
    """The cost of a job at most, in plain words: minutes, and MiB of each rank."""
    several = len(estimate.num_baseline_trials) > 1
    baselines = ", ".join(f"{optimizer_title(side)} {num}" for side, num in estimate.num_baseline_trials.items())
    phases = ", ".join(
        f"{phase} {num}{f' ({baselines})' if several and phase is Phase.BASELINE else ''}"
        for phase, num in estimate.num_trials.items()
    )
    trials = f"{counted(sum(estimate.num_trials.values()), 'trial')} ({phases})"
    length = f"up to {counted(estimate.num_steps, 'step')}"
    if estimate.num_examples is not None:
        length = f"{counted(estimate.num_examples, 'example')} in {length}"
    if estimate.equal_seconds:
        length += ", each as long as the quickest config takes for so many"
    lines = [f"{trials} of {length}, {counted(estimate.max_steps, 'step')} in all if none are pruned."]
    if estimate.num_left_over:
        lines.append(left_over_words(estimate.num_left_over))
    if num := estimate.num_trials.get(Phase.CONFIRMATION):
        lines.append(
            f"{num} of them, {estimate.confirmation_share:.0%}, train the best configs again with new seeds, to their "
            'ends: `"confirmation": null` leaves that out, and the answer provisional.'
        )
    else:
        lines.append("Nothing is trained again with new seeds: the answer will be provisional.")
    if estimate.measured is None:
        lines.append("No earlier job like this one has completed a trial here, so its time is unknown.")
    else:
        lines.extend(_measured_lines(estimate.measured, estimate.step_seconds, estimate.smallest_batch))
        lines.extend(_side_lines(estimate))
    if estimate.start_up is not None:
        lines.append(_start_up_line(estimate.start_up))
    if estimate.memory is not None:
        lines.extend(_memory_lines(estimate.memory))
    most = [] if estimate.max_seconds is None else [f"{_minutes(estimate.max_seconds)}, start-up included"]
    most += [] if estimate.max_device_hours is None else [f"{estimate.max_device_hours:.3g} device-hours"]
    most += [] if estimate.max_cost is None else [f"{estimate.max_cost:.2f} {estimate.currency}"]
    if most:
        lines.append(f"At most {'; '.join(most)}.")
    for side, winners in estimate.winners.items():
        if not winners:
            lines.append(f"No earlier job with this model, objective and optimizer has a winner for the {_side(side)}.")
            continue
        told = (
            f"trial {winner.trial} of {winner.job_id}"
            + (f" ({', '.join(winner.clipped)} clipped)" if winner.clipped else "")
            for winner in winners
        )
        lines.append(f"The {_side(side)} begins with winners of earlier jobs: {'; '.join(told)}.")
    if estimate.presets is not None:
        lines.append(presets_line(estimate.presets))
    return lines


def presets_line(compared: PresetsCompared) -> str:
    """The order of presets on tuned models, for a person."""
    first, *others = compared.presets
    told, words = list[str](), " times the loss"
    for one in others:
        ratio = "" if one.loss_ratio is None else f" ({one.loss_ratio:.2f}{words})"
        told.append(f"`{one.preset}`{ratio}")
        words = "" if ratio else words
    models = counted(compared.num_models, "tuned model")
    return (
        f"On {models} near this one, the nearest {compared.octaves:.1f} octaves away, the best trials of the preset "
        f"`{first.preset}` were the best at equal steps, before those of {joined(told)}."
    )


def left_over_words(num_left_over: int) -> str:
    """Says that some trials of the budget are nobody's, and why."""
    left = f"{counted(num_left_over, 'trial')} of the budget {'is' if num_left_over == 1 else 'are'} left over"
    return f"{left}, so that search and baselines get equally many."


def _measured_lines(measured: EarlierMeasurements, step_seconds: float | None, smallest_batch: int | None) -> list[str]:
    of = f"median of {counted(measured.num_trials, 'trial')}"
    if smallest_batch is not None:
        of += f" with batches of {measured.batch_size}"
    told = f"In job {measured.job_id} a step took {measured.step_seconds:.3g} s ({of})"
    if step_seconds is not None and step_seconds != measured.step_seconds:
        ranks = counted(measured.workers_per_trial, "rank")
        is_larger = smallest_batch is not None and smallest_batch > measured.batch_size
        how = "at most in proportion to the batch" if is_larger else "as if they divided all but the optimizer's work"
        told += f" with {ranks} a trial: scaled to this job's, {step_seconds:.3g} s, {how}"
    lines = [f"{told}."]
    if smallest_batch is not None:
        lines.append(
            f"Times are counted as if every trial had the smallest batch, {smallest_batch}, whose steps are the most."
        )
    if measured.trial_overhead_seconds is not None:
        lines.append(f"A trial took {_minutes(measured.trial_overhead_seconds)} beside its steps.")
    if measured.peak_memory_bytes is not None:
        lines.append(
            f"Its ranks needed up to {mebibytes(measured.peak_memory_bytes)}, activations and process included."
        )
    return lines


def _side_lines(estimate: Estimate) -> list[str]:
    """The steps of each side that the bound goes by."""
    known = {side: own for side, own in estimate.side_step_seconds.items() if side not in estimate.unmeasured_sides}
    told = ", ".join(f"of the {_side(side)} {seconds:.3g} s" for side, seconds in known.items())
    lines = [f"The slowest trial's step counts for each side: {told}."] if told else []
    if estimate.unmeasured_sides:
        sides = " and ".join(_side(side) for side in estimate.unmeasured_sides)
        lines.append(f"How long a step of the {sides} takes is not known: it counts as long as the slowest other one.")
    return lines


def _start_up_line(start_up: StartUp) -> str:
    if start_up.job_id is None:
        return f"Start-up, once per job: {_minutes(start_up.seconds)} assumed; no job has been run here."
    return f"Start-up, once per job: {_minutes(start_up.seconds)} in job {start_up.job_id}."


def _memory_lines(memory: MemoryEstimate) -> list[str]:
    if memory.construction_fails:
        return warning_lines(memory)
    if memory.problem is not None:
        return [f"The memory of trials cannot be predicted: {memory.problem}.", *warning_lines(memory)]
    lines = [
        f"Weights, gradients and optimizer of a trial of the {_side(side)} need "
        f"{mebibytes(space.default_bytes)} on each rank with the defaults, up to {mebibytes(space.largest_bytes)} in "
        f"{counted(space.num_points, 'point')} of the space." + _share_told(space) + _activations_told(space)
        for side, space in memory.spaces.items()
    ]
    if memory.step_fails:
        lines.append(
            f"A STEP FAILS: with a few examples the workload's code raised {memory.activations_problem}. Trials are "
            "likely to fail with the same error."
        )
    elif memory.activations_problem is not None:
        lines.append(f"Activations come on top and are not known: {memory.activations_problem}.")
    if memory.kept_weights_bytes:
        lines.append(
            f"The winners' weights take {mebibytes(memory.kept_weights_bytes)} of storage until the job is deleted: "
            "`keep_weights: false` leaves them out."
        )
    if memory.limit_bytes is None:
        lines.append("Memory limit unknown: nothing is kept from being launched (resources.memory_per_worker).")
        return [*lines, *warning_lines(memory)]
    if memory.is_machine_limit and memory.machine_bytes is not None:
        lines.append(
            f"No memory limit is set (resources.memory_per_worker): the machine has {mebibytes(memory.machine_bytes)}, "
            f"and a trial whose ranks together need more than twice that, {mebibytes(memory.limit_bytes)} each, is not "
            "launched unless `resources.beyond_memory` is true."
        )
    else:
        lines.append(f"The limit is {mebibytes(memory.limit_bytes)} for each rank.")
    for side, space in memory.spaces.items():
        if space.fits_nowhere:
            lines.append(f"NOTHING FITS: the {_side(side)} of such a job would train nothing.")
        elif space.default_bytes + (space.activation_bytes or 0) > memory.limit_bytes >= space.default_bytes:
            lines.append(f"With its activations, the default of the {_side(side)} is likely to run out of memory.")
    return [*lines, *warning_lines(memory)]


def warning_lines(memory: MemoryEstimate) -> list[str]:
    """The faults of trials that would be launched all the same: the workload cannot be built, or the service's machine
    cannot hold one of a side's, or all that train at once; and the reason why none can start there."""
    short = [] if memory.shortage is None else [f"NO TRIAL CAN START: {memory.shortage}."]
    if memory.construction_fails:
        return [
            *short,
            f"THE WORKLOAD CANNOT BE BUILT: its code raised {memory.problem}. Trials are likely to fail with the same "
            "error.",
        ]
    machine = memory.machine_bytes
    lines = short + [
        f"TOO LARGE: a rank of the {_side(side)} needs more than the {mebibytes(machine)} of the service's machine, "
        "whose system would end it while it trains."
        for side, space in memory.spaces.items()
        if machine is not None and space.default_bytes > machine and not space.fits_nowhere
    ]
    if machine is None or memory.parallel_trials is None or memory.together_bytes is None:
        return lines
    at_once = counted(memory.parallel_trials, "trial")
    if memory.is_limited_by_memory:
        lines.append(f"{at_once} at once, not as many as its CPUs hold: its memory holds no more.")
    if memory.parallel_trials > 1 and memory.together_bytes > machine:
        fitting = max(1, int(memory.parallel_trials * machine / memory.together_bytes))
        lines.append(
            f"TOO LARGE TOGETHER: {at_once} at once need about {mebibytes(memory.together_bytes)} of the machine's "
            f"{mebibytes(machine)}: `resources.parallel_trials: {fitting}` has fewer at once."
        )
    return lines


def _side(side: Side) -> str:
    return side if side == Phase.SEARCH else f"baseline {optimizer_title(side)}"


def _share_told(space: SpaceMemory) -> str:
    if not space.share_infeasible:
        return ""
    return f" {share(space.share_infeasible)} of them do not fit and would not be launched."


def _activations_told(space: SpaceMemory) -> str:
    if space.activation_bytes is None:
        return ""
    return f" Activations take about {mebibytes(space.activation_bytes)} more, and the process comes on top."


def _minutes(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 0.1:
        return f"{seconds:.2g} s"
    return f"{minutes:.1f} min" if minutes < 100 else f"{minutes:,.0f} min"
