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

What large models need
----------------------
From shapes, by `python -m tests.benchmarks.distributed_step`: matrices stepped by "shampoo", tables, head and vectors
by AdamW with distributed="local"; float32 but for the factors; ranks as replicas x shards; GB are 1e9 bytes.

    parameters, ranks               state of a rank in GB      one     of the model's    sent, of
                                AdamW   mean   most    int4    step    FLOPs: mean, most FSDP2's
    Llama 1B            1x8      1.24   3.20   3.30    1.53    2.01    0.188%  0.195%     9.8%
    Llama 70B           1x64     8.62   25.7   26.4    11.1    17.6    0.060%  0.061%     1.5%
    Llama 70B           8x64     1.08   3.27   5.70    2.43    3.76    0.060%  0.105%     1.0%
    1T, dense           6x512    2.63   7.89   62.9    26.4    41.9    0.040%  0.319%     0.4%
    1T, experts         8x512    2.00   6.04   6.38    2.70    4.23    0.121%  0.128%     0.1%
    1T, experts stacked 8x512    2.00   2.09   45.4    45.2    90.2    0.079%  1.765%     0.5%

"int4" is what the rank with most has with state_dtype="int4", "one step" what it holds in a step beside the state.
Batches are of 1M, 4M, 6.3M and 67M tokens; the model's operations are 6 for each active weight and token. Refreshes run
slower than products, so their time is more than this share.

**What breaks first is one parameter on one rank.** Work and memory are even until the largest parameter is more than a
rank's share, and then its owner sets the pace. Most over mean stays within 1.1 up to so many ranks:

    ResNet-50 8, GPT-2 16, Llama 7B 64, Llama 70B 128, 1T of separate experts 4,096, a recommender's layers 2

and doubles with the ranks beyond (Llama 70B on 512: 1.76; on 4,096: 14). State is next: with float32 factors of blocks
of 1,024 three times AdamW's. Operations and traffic are below 0.2% of the model's and 10% of FSDP2's in the mean. What
the design does about it:

- Tables, the head and vectors need no owner. `{"preconditioner": "none", "distributed": "local"}` steps them where they
  lie, equal up to rounding. With owners GPT-2 is within 1.1 on 2 ranks instead of 16, and one of 4,096 ranks has 1,227
  times the mean of a recommender's state, a table of 10 million rows.
- Experts that are parameters of their own are even on 4,096 ranks; each stack of them has one owner.
- state_dtype="int4" leaves 0.42 of Llama 70B's state; distributed="local" has no owners at all.

**What is missing.** No rank owns part of a parameter: by their largest blocks, Llama 7B and 70B could be even on 4,096
ranks, GPT-2 on 64, ResNet-50 on 16. Plain parameters, as under DDP, are stepped by every rank: there is no ZeRO-1. The
gather over replicas is as long for each as for the one that owns most, and owners are chosen without regard to that:
dense 1T on 6x512 sends 43 GB, of which the formula above knows 12. Nothing overlaps with the backward pass.

**Measured**, "shampoo": a GPT of 3.3 million parameters, refreshes every 10 steps, gloo ranks of one thread on a busy
machine of two cores, which is to say roughly:

    ranks   most state over its 1/world    step over the replicated one     bytes sent, of
            lossless     local             lossless  ideal    local         the formula   FSDP2's
    2       1.01         1.08              0.58      0.50     0.48          1.00          0.51
    4       1.04         1.31              0.43      0.25     0.34          1.00          0.25
"""

from shampoo.distributed.assignment import estimate_per_rank

__all__ = ["estimate_per_rank"]
