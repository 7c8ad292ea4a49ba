"""Use cases of clients that train trials: they write requests, which the job's run answers, and read the answers. None
answers a request itself: to choose a trial is the scheduler's."""
