"""Claims jobs and runs them as Ray Tune experiments.

What a large cluster needs
--------------------------
Worked out by `python -m tests.benchmarks.cluster_needs` from measurements on two cores; nothing here ran on a cluster.
The driver of a job is one thread. It spends 24 ms of CPU on starting and ending a trial, 6 ms on a measurement, 28 ms
on a decision of `auto` once 300 trials are in its model, and keeps 43 kB of memory per trial; the last of 10,000 trials
cost no more than the first (`scheduler_scale`). In SQL a trial takes 2.3 kB and a measurement 0.35 kB. A whole training
takes an hour, and trials of `auto` 35% of that on average:

    GPUs    ranks/trial     trials  measured every  running  hours  measured/s  drivers' CPU s/s  jobs  GB in SQL
    8                 1      1,000            60 s        8     44         0.1              0.00     1        0.0
    1,000             8     10,000            60 s      125     28         2.1              0.02     1        0.1
    1,000             1    100,000            60 s    1,000     35        16.7              0.16    10        1.0
    10,000            8  1,000,000            60 s    1,250    280        20.8              0.19   100        9.8
    10,000            1  1,000,000            60 s   10,000     35       166.7              1.55   100        9.8
    10,000            8  1,000,000             5 s    1,250    280       250.0              1.60   100         91

What breaks, in this order:

1. *One job.* It may have 10,000 trials, whose driver then holds 0.4 GB; a million would take 43 GB of one process, and
   its history would be read anew by every run. So a million trials are a hundred jobs, of a hundred models or spaces,
   each with a driver of its own. A driver keeps up with about 80 measurements a second before ranks wait for it; while
   one is dealt with they train the next interval, so what counts is the mean over an interval.
2. *Ray.* Its published scalability envelope ends at 1,000 placement groups at once; every trial in training holds one.
   10,000 trials of one rank would need several Ray clusters, each with its own workers on the same database; 1,250
   trials of eight ranks are at the edge.
3. *SQL.* SQLite stored 266 measurements a second here, and PostgreSQL 179 with eight runs writing, in transactions of
   one measurement each. Those of all jobs follow one another, because events are numbered in the order in which they
   become visible. So 10,000 GPUs that measure every 60 s are at the edge of one server, and every 5 s are beyond: then
   a run would have to store several measurements in one transaction.
4. *Disk.* Not computed here, because it is the model's: one or two checkpoints per unfinished trial.
"""
