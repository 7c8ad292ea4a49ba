"""`Shampoo` on parameters that are spread over ranks as DTensors.

    mesh = init_device_mesh("cuda", (num_nodes, 8))            # HSDP; a mesh of one dimension is FSDP2
    fully_shard(model, mesh=mesh)
    optimizer = Shampoo(model.parameters())                    # every rank; nothing else changes
    optimizer = Shampoo(model.parameters(), distributed="local")

A parameter is cut along its first dimension over one dimension of its mesh, and replicated over the others. That is
what FSDP2 and HSDP (`fully_shard`) and SimpleFSDP make. Tensor-parallel placements are refused. Several meshes may be
mixed, and plain parameters beside them are stepped by every rank as ever.

**lossless** (what "auto" means). Every parameter has one owner among all ranks of its mesh, replicas included. In a
step the owners get whole weights and gradients, step them as one process would, and hand the weights back (`exchange`).

- Numbers: the owner runs the same kernels on the same whole matrices, and refreshes fall into the steps in which a
  single process has them. With equal gradients the weights are equal bit for bit. Exceptions: batched products in
  bfloat16 depend on how many matrices are stacked; a plain parameter's element may round otherwise at the end of a
  vector register. A gradient that is not finite in one rank's rows stops the whole parameter, everywhere.
- State: on the owner alone. Owners are chosen by predicted work and bytes from shapes alone (`assignment`), so a rank
  holds 1/world of the state give or take the largest parameter: a vocabulary's table is one parameter, and it bounds
  how even many ranks can be. `estimate_per_rank` tells before anything is allocated.
- Memory in a step: whole weights and gradients of what the rank owns, and their buffers: 4/world of the parameters.
- Traffic: with P bytes of parameters over S shards and R replicas a rank sends and receives about 2P/(S·R) to collect,
  P/(S·R) to hand back, and P/S to replicas if R > 1. FSDP2's own is about 3P.
- A step is collective: all ranks call it, with whatever gradients they have, and a failure to refresh raises on all.

**local**. Every rank steps its rows as if they were the parameter, and sends nothing. Factors along the first dimension
see these rows alone, so the numbers depend on the number of shards. Replicas compute the same. Gradients that are not
finite, and refreshes that fail, are each shard's own affair.
"""

from shampoo.distributed.assignment import estimate_per_rank

__all__ = ["estimate_per_rank"]
