"""Use cases of clients that train trials: they write requests, which the job's run answers, and read the answers. They
never answer a request themselves, because the scheduler chooses trials."""
