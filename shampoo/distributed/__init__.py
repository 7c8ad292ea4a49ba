"""`Shampoo` over ranks: each owns some blocks of the parameters, with their state, and steps them for all.

Never here: the arithmetic of a step or of a preconditioner, which is the same on one rank and on many.

    # HSDP; a mesh of one dimension is FSDP2
    mesh = init_device_mesh("cuda", (num_nodes, 8), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    optimizer = Shampoo(model.parameters())                    # every rank; nothing else changes
    optimizer = Shampoo(model.parameters(), distributed="local")

    model = DistributedDataParallel(model)
    optimizer = Shampoo(model.parameters(), distributed="lossless")

**lossless**, which "auto" means for DTensors. A parameter is cut along its first dimension over one dimension of its
mesh, and replicated over the others: FSDP2, HSDP (`fully_shard`), SimpleFSDP. Tensor-parallel placements are refused.
Plain parameters are shared, as in ZeRO-1, only with distributed="lossless"; otherwise every rank steps them.

- Owners: blocks with a preconditioner are assigned in runs, by work and bytes predicted only from shapes
  (`assignment`), over all ranks including replicas; consecutive blocks go to different ranks. Elements of other
  parameters (tables, the head, vectors) belong to the ranks that hold them; those of plain parameters fill the ranks up
  to equal bytes. `estimate_per_rank` gives each rank's cost before anything is allocated.
- Numbers: refreshes happen in the same steps as in a single process, and the kernels are the same, on the same blocks.
  Weights are equal bit for bit if blocks are whole vector registers, else within 1e-5 of a tensor's largest after 20
  steps; batched products in bfloat16 depend on the number of stacked matrices. A gradient that is not finite in any
  rank's rows stops the whole parameter, on all ranks.
- A step runs in `rounds` of 64 MiB of weights for each rank, or 512 MiB in total that replicas gather. The next round
  is exchanged while one is stepped. In addition to the state a step holds 0.5 GiB, with replicas up to 1.5, and more if
  one parameter is larger than a round.
- Traffic of a rank, with P bytes of parameters, M of them with a preconditioner, on S shards and R replicas: 2M/(S·R)
  to collect, M/(S·R) to hand back, and P/S to replicas if R > 1. FSDP2's own traffic is about 3P. Under DDP it is P,
  after the 2P of the all-reduce.
- A step is collective: all ranks call it, with whatever gradients they have, and a failure to refresh raises on all.

Plain parameters have these options:

- communication_dtype="bfloat16" or "float16": owners send the change of their weights in units of its largest element,
  P/2. All replicas, including the owner, add what was sent, and stay equal bit for bit. DTensors have this option, too.
- num_ranks_per_group: the number of consecutive ranks that share, a divisor of their number; each group does all of the
  work. None: the least number with which no rank has over a tenth more work or state than with all ranks. If that is 1,
  because one block is most of the work, nothing is shared, and a warning says so; `Shampoo.share_of_state` has the
  figure.
- reduce_gradients=True, without DDP or under its `no_sync`: owners get the mean of the ranks' gradients by a
  reduce-scatter, P, instead of the all-reduce, 2P. Before that, gradients are not averaged: do not clip or scale by
  them.

The ranks are those of the default process group, all of which must hold the same model and give its parameters to the
optimizer in the same order. Another order is refused if the shapes show it.

A checkpoint needs every rank's part: `state_dict()` of rank 0 alone lacks what others own. Save and load
`distributed_state_dict()` with `torch.distributed.checkpoint` on all ranks; any number of ranks, or one process, can
load what others have saved.

**local**. Every rank steps its rows of a DTensor as if they were the parameter, and sends nothing. Factors along the
first dimension only see these rows, so the numbers depend on the number of shards. Replicas compute the same. Each
shard handles its own gradients that are not finite, and its own failed refreshes.

shampoo/README.md says what models of up to a trillion parameters need, and what breaks first.
"""

from shampoo.distributed.ownership import estimate_per_rank

__all__ = ["estimate_per_rank"]
