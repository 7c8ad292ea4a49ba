"""Rules on the batches: their shares by rank, their order by seed and step, and where they go on."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from time import perf_counter

from trainers.checkpoints import seed_random
from trainers.workload.batches import placed_tensors
from trainers.workload.protocol import GivesBatches, ReadsAhead
from trainers.workload_check.batches import Layout, digest_of, examples_of, layout_of
from trainers.workload_check.outcome import Broken, Doubtful, NotChecked
from trainers.workload_check.subject import (
    OTHER_SEED,
    SEED,
    WORLD_SIZES,
    Subject,
    first_batches,
)

NUM_BATCHES = 4
"""Batches of each stream that are compared."""
LATER_STEPS = (1, 7)
"""Steps at which streams are begun: the second, and one that is no multiple of small numbers."""
MAX_STEPS_TO_SKIP = 500
"""Longest epoch, in steps, over whose end a stream is followed: more would take too long to read."""
EPOCH_BATCH_SIZE = 240
"""Batch size of the walk through an epoch: larger than in training, because only the examples count."""
NUM_EPOCHS_TO_SEEK = 3
"""Steps of so many epochs are asked for by their number, to see whether there are batches."""
SEEK_FACTOR = 10
MAX_SEEK_SECONDS = 5.0
"""Both by judgement: each step is so many times farther than the one before, if that cannot take longer; some streams
read up to it."""
MAX_EXAMPLES = 200_000
MAX_EPOCH_SECONDS = 20.0
"""Both by judgement: an epoch of more examples, or that takes longer, is looked at in part, as nobody would wait for
all of it."""
MAX_REPEATED_SHARE = 0.005
"""Above it, examples that are equal are no mere duplicates in the data."""
_USE_DATA_ORDER = (
    "give batch(indices) and the loop does the rest, or let train_batches take its indices from "
    "trainers.data.order.rank_batches"
)
_FOLLOW_THE_INDICES = (
    "Let what `batch` gives follow from its indices alone: the loop draws them. Augment in `loss`, where "
    "model.training is true; torch's global generator may be used there"
)


def check_batches(subject: Subject) -> str:
    """Each rank's batch holds batch_size / world_size examples, as CPU tensors of one layout; there is always one."""
    layouts, uneven = [], ""
    for world_size in WORLD_SIZES:
        share = subject.batch_size // world_size
        for rank in range(world_size):
            who = f"rank {rank} of {world_size}"
            for batch in _batches(subject.batches(rank=rank, world_size=world_size), 2, f"of {who}"):
                uneven = _check_tensors(batch, share, who, subject.batch_size) or uneven
                layouts.append(layout_of(batch))
    _check_far_steps(subject)
    different = next((layout for layout in layouts if layout != layouts[0]), None)
    if different is not None and _types(different) != _types(layouts[0]):
        raise Broken(
            f"batches differ in their parts: {_types(layouts[0])} and {_types(different)}",
            "Give the same structure in each step and on each rank",
        )
    if uneven:
        raise Doubtful(
            f"{uneven}: such batches, as of graphs of many nodes, cannot be cut into examples, so whether ranks share "
            "them, and an epoch has each once, is not checked"
        )
    if different is not None:
        raise Doubtful(f"examples differ in shape from batch to batch: {_shown(layouts[0])} and {_shown(different)}")
    return f"equal shares on 1, 2 and 3 ranks; an example is {_shown(layouts[0])}"


def check_order(subject: Subject) -> str:
    """The seed and the step determine the batches, and another seed gives others."""
    seed_random(11)
    batches = _batches(subject.batches(), NUM_BATCHES)
    seed_random(12)
    if _digests(first_batches(subject.batches(), NUM_BATCHES)) != _digests(batches):
        raise Broken(
            "the same seed gave other batches the second time",
            _advice(subject, "Shuffle and augment with generators made from `seed` and the step, not with global ones"),
        )
    if _digests(first_batches(subject.batches(seed=OTHER_SEED), NUM_BATCHES)) == _digests(batches):
        raise Broken(f"seeds {SEED} and {OTHER_SEED} give the same batches", _advice(subject, "Shuffle with `seed`"))
    return f"equal in {NUM_BATCHES} steps of one seed, not of another"


def check_sharding(subject: Subject) -> str:
    """Ranks share each global batch without overlap, and any number of ranks sees the same one."""
    whole = [Counter(examples_of(batch)) for batch in _batches(subject.batches(), NUM_BATCHES)]
    for world_size in WORLD_SIZES[1:]:
        ranks = [
            _batches(subject.batches(rank=rank, world_size=world_size), NUM_BATCHES, f"of rank {rank} of {world_size}")
            for rank in range(world_size)
        ]
        for step, (one, *shares) in enumerate(zip(whole, *ranks, strict=True)):
            parts = [Counter(examples_of(share)) for share in shares]
            together = sum(parts, Counter())
            if together == one:
                continue
            twice = sum(1 for example in together - one if sum(example in part for part in parts) > 1)
            if twice:
                raise Broken(
                    f"in step {step}, {twice} examples go to more than one of {world_size} ranks",
                    _advice(subject, "Give each rank its own part of the global batch"),
                )
            raise Broken(
                f"in step {step}, {world_size} ranks together see other examples than one rank",
                _advice(
                    subject,
                    "Cut one global batch into parts by rank, so that it does not depend on the number of ranks",
                ),
            )
    return f"{len(whole)} global batches are the same on 1, 2 and 3 ranks"


def check_start_step(subject: Subject) -> str:
    """Batches that begin at a later step are those that the stream from the beginning has there."""
    steps_per_epoch = -(-subject.workload.num_train_examples // subject.batch_size)
    steps = [*LATER_STEPS]
    if steps_per_epoch < MAX_STEPS_TO_SKIP:
        steps.append(steps_per_epoch)
    for start in steps:
        stream = iter(subject.batches(rank=1, world_size=2))
        num_skipped = sum(1 for _ in islice(stream, start))
        expected = _digests(_batches(stream, 2, "of rank 1 of 2", num_before=num_skipped))
        if _digests(first_batches(subject.batches(rank=1, world_size=2, start_step=start), 2)) != expected:
            raise Broken(
                f"the batches from start_step={start} are not those of a stream that has come to step {start}",
                _advice(subject, "Compute a batch from its step alone: a resumed trial sees other data otherwise"),
            )
    return f"from steps {', '.join(map(str, steps))} on as from the beginning"


def check_epoch(subject: Subject) -> str:
    """Each example comes once per epoch."""
    subject.check_has_examples()
    num_examples = subject.workload.num_train_examples
    batch_size = min(EPOCH_BATCH_SIZE, max(1, num_examples))
    stream = _examples(subject, batch_size)
    started = perf_counter()
    first: list[bytes] = []
    while len(first) < num_examples:
        first += next(stream)
        seconds_left = (perf_counter() - started) / len(first) * (2 * num_examples - len(first))
        is_too_large = num_examples > MAX_EXAMPLES or seconds_left > MAX_EPOCH_SECONDS
        has_seen_enough = len(first) >= 10 * batch_size or perf_counter() - started > MAX_EPOCH_SECONDS
        if is_too_large and has_seen_enough:
            return _check_part_of_epoch(first, num_examples)
    second = first[num_examples:]
    while len(second) < num_examples:
        second += next(stream)
    epochs = Counter(first[:num_examples]), Counter(second[:num_examples])
    if epochs[0] == epochs[1]:
        return f"two epochs of {num_examples:,} examples have the same ones"
    shared = sum((epochs[0] & epochs[1]).values())
    if shared <= MAX_REPEATED_SHARE * num_examples:
        # Augmented anew in each epoch; within one, the same example twice would differ as well.
        return "examples are altered each time they come, so that they cannot be counted"
    raise Broken(
        f"{num_examples - shared:,} of the first {num_examples:,} examples (num_train_examples) are not among the next "
        f"{num_examples:,}: an epoch repeats some and leaves others out, or some are altered each time they come",
        _advice(subject, "Draw without replacement, drop no remainder and let num_train_examples be exact"),
    )


def _advice(subject: Subject, of_stream: str) -> str:
    """The remedy of an order that is not kept: `of_stream` for a workload that follows the order by itself."""
    if isinstance(subject.workload, GivesBatches) and not isinstance(subject.workload, ReadsAhead):
        return _FOLLOW_THE_INDICES
    return f"{of_stream}; {_USE_DATA_ORDER}"


def _check_part_of_epoch(examples: list[bytes], num_examples: int) -> str:
    repeated = len(examples) - len(set(examples))
    if repeated > MAX_REPEATED_SHARE * len(examples):
        raise Doubtful(
            f"{repeated:,} of the first {len(examples):,} examples (of {num_examples:,}) are repetitions: the data may "
            "have duplicates, or the order draws with replacement"
        )
    return f"no repetitions to speak of in the first {len(examples):,} of {num_examples:,} examples"


def _examples(subject: Subject, batch_size: int) -> Iterator[list[bytes]]:
    """The examples of one rank's batches."""
    num_steps = 0
    for batch in subject.batches(batch_size=batch_size):
        num_steps += 1
        found = examples_of(batch)
        if len(found) != batch_size:
            raise NotChecked("a batch does not hold batch_size examples")
        yield found
    raise _ended(num_steps, f"of {batch_size} examples")


def _batches(stream: Iterator[object], count: int, which: str = "", *, num_before: int = 0) -> list[object]:
    """The next `count` batches of a stream that has given `num_before`. Raises: Broken: it ends before."""
    found = first_batches(stream, count)
    if len(found) < count:
        raise _ended(num_before + len(found), which)
    return found


def _ended(num_steps: int, which: str) -> Broken:
    steps = "1 step" if num_steps == 1 else f"{num_steps:,} steps"
    return Broken(
        f"the batches{which and f' {which}'} end after {steps}",
        f"They must be endless, with the next epoch after each; {_USE_DATA_ORDER}",
    )


def _check_far_steps(subject: Subject) -> None:
    """Checks that batches begin in the next epochs, too, of data of any size: they are asked for, not come to.

    Raises:
        Broken: from some step on there are none.
    """
    num_examples = subject.workload.num_train_examples
    batch_size = min(EPOCH_BATCH_SIZE, max(1, num_examples))

    def is_over(step: int) -> bool:
        return not first_batches(subject.batches(batch_size=batch_size, start_step=step), 1)

    farthest = NUM_EPOCHS_TO_SEEK * -(-num_examples // batch_size)
    reached, step, seconds_at_first = 0, 1, None
    while reached < farthest:
        started = perf_counter()
        if is_over(step):
            first_without = reached + bisect_left(range(reached, step), x=True, key=is_over)
            raise _ended(first_without, f"of {batch_size} examples")
        seconds = perf_counter() - started
        seconds_at_first = seconds if seconds_at_first is None else seconds_at_first
        if SEEK_FACTOR * (seconds - seconds_at_first) > MAX_SEEK_SECONDS:
            return
        reached, step = step, min(SEEK_FACTOR * step, farthest)


def _check_tensors(batch: object, share: int, who: str, batch_size: int) -> str:
    """Checks the tensors of a batch; says which of them has other rows than the examples, if some have these."""
    tensors = list(placed_tensors(batch))
    if not tensors:
        raise Broken(
            f"a batch of {who} is a {type(batch).__name__} without tensors",
            "Give a tensor, or tuples, lists and dicts of tensors",
        )
    for path, tensor in tensors:
        if tensor.device.type != "cpu":
            raise Broken(f"{path} of {who} is on {tensor.device}", "Leave batches on the CPU: the loop moves them")
    num_rows = {path: len(tensor) if tensor.ndim else None for path, tensor in tensors}
    other = next((path for path, rows in num_rows.items() if rows != share), None)
    if other is None:
        return ""
    rows = "no" if num_rows[other] is None else num_rows[other]
    told = f"{other} of {who} has {rows} rows instead of {share} (batch_size {batch_size} / world_size)"
    if share in num_rows.values():
        return told
    raise Broken(told, f"The first dimension is the rank's share of the batch; {_USE_DATA_ORDER}")


def _types(layout: Layout) -> dict[str, str]:
    return {path: kind for path, (kind, _) in layout.items()}


def _shown(layout: Layout) -> str:
    return ", ".join(f"{kind.removeprefix('torch.')} {list(shape)}" for kind, shape in layout.values())


def _digests(batches: list[object]) -> list[bytes]:
    return [digest_of(batch) for batch in batches]
