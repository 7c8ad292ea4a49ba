"""`Shampoo` over ranks: each owns some blocks of the parameters, with their state, and steps them for all.

Never here: the arithmetic of a step or of a preconditioner, which is the same on one rank and on many.

    # HSDP; a mesh of one dimension is FSDP2
    mesh = init_device_mesh("cuda", (num_nodes, 8), mesh_dim_names=("replicate", "shard"))
    fully_shard(model, mesh=mesh)
    optimizer = Shampoo(model.parameters())                    # every rank; nothing else changes
    optimizer = Shampoo(model.parameters(), distributed="local")

    model = DistributedDataParallel(model)
    optimizer = Shampoo(model.parameters(), distributed="lossless")

**lossless**, of DTensors what "auto" means. A parameter is cut along its first dimension over one dimension of its
mesh, and replicated over the others: FSDP2, HSDP (`fully_shard`), SimpleFSDP. Tensor-parallel placements are refused.
Plain parameters are shared where distributed="lossless" asks for it, as ZeRO-1 does; else every rank steps them.

- Owners: of blocks with a preconditioner, in runs, by predicted work and bytes from shapes alone (`assignment`),
  replicas included; consecutive blocks on different ranks. Elements of other parameters (tables, the head, vectors)
  belong to the ranks that hold them, and of plain parameters fill the ranks up to equal bytes. `estimate_per_rank`
  tells what each would have before anything is allocated.
- Numbers: refreshes fall into the steps in which a single process has them, and kernels are the same, on the same
  blocks. Weights are equal bit for bit where blocks are whole vector registers, else within 1e-5 of a tensor's largest
  after 20 steps; batched products in bfloat16 depend on how many matrices are stacked. A gradient that is not finite in
  any rank's rows stops the whole parameter, everywhere.
- A step goes in `rounds` of 64 MiB of weights for each rank, or 512 MiB in all that replicas gather, the next of which
  is on its way while one is stepped: beside the state it holds 0.5 GiB, with replicas up to 1.5, and more if one
  parameter is more than a round.
- Traffic of a rank, with P bytes of parameters, M of them with a preconditioner, on S shards and R replicas: 2M/(S·R)
  to collect, M/(S·R) to hand back, and P/S to replicas if R > 1. FSDP2's own is about 3P. Under DDP it is P,
  after 2P of the all-reduce.
- A step is collective: all ranks call it, with whatever gradients they have, and a failure to refresh raises on all.

Plain parameters have these options:

- communication_dtype="bfloat16" or "float16": owners send the change of their weights in units of its largest element,
  P/2. All replicas, the owner too, add what was sent, and stay equal bit for bit. DTensors have it too.
- num_ranks_per_group: consecutive ranks that share, a divisor of their number; each group does all of the work. None:
  the least number with which no rank has more than a tenth more to do or to hold than with all ranks. If that is 1,
  because one block is most of it, nothing is shared, and a warning says so; `Shampoo.share_of_state` has the figure.
- reduce_gradients=True, without DDP or under its `no_sync`: owners get the mean of the ranks' gradients by a
  reduce-scatter, P, in place of the all-reduce, 2P. Until then they are nobody's mean: don't clip or scale by them.

The ranks are those of the default process group, all of which must hold the same model and give its parameters to the
optimizer in the same order, which is refused where their shapes tell.

A checkpoint needs every rank's part: `state_dict()` of rank 0 alone lacks what others own. Save and load
`distributed_state_dict()` with `torch.distributed.checkpoint` on all ranks; any number of ranks, or one process, can
load what others have saved.

**local**. Every rank steps its rows of a DTensor as if they were the parameter, and sends nothing. Factors along the
first dimension see these rows alone, so the numbers depend on the number of shards. Replicas compute the same.
Gradients that are not finite, and refreshes that fail, are each shard's own affair.

What models of up to a trillion parameters need, and what breaks first, stands in shampoo/README.md.
"""

from shampoo.distributed.ownership import estimate_per_rank

__all__ = ["estimate_per_rank"]
