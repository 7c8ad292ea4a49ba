"""`Shampoo` over ranks: each owns some blocks of the parameters, with their state, and steps them for all.

    mesh = init_device_mesh("cuda", (num_nodes, 8))            # HSDP; a mesh of one dimension is FSDP2
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
- A step goes in rounds (`sharding_plan`) of 64 MiB of weights for each rank, or 512 MiB in all that replicas gather,
  the next of which is on its way while one is stepped: beside the state it holds 0.5 GiB, with replicas up to 1.5, and
  more if one parameter is more than a round.
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

The ranks are those of the default process group, all of which must hold the same model.

A checkpoint needs every rank's part: `state_dict()` of rank 0 alone lacks what others own. Save and load
`distributed_state_dict()` with `torch.distributed.checkpoint` on all ranks; any number of ranks, or one process, can
load what others have saved.

**local**. Every rank steps its rows of a DTensor as if they were the parameter, and sends nothing. Factors along the
first dimension see these rows alone, so the numbers depend on the number of shards. Replicas compute the same.
Gradients that are not finite, and refreshes that fail, are each shard's own affair.

What large models need
----------------------
From shapes, by `python -m tests.benchmarks.distributed_step`: matrices stepped by "shampoo", tables, head and vectors
by AdamW, float32; ranks as replicas x shards, 8x1 under DDP; GB are 1e9 bytes.

    parameters, ranks           state of a rank in GB     beside  steps  of the model's   sent: GB, of
                            AdamW   mean   most    int4   it, GB         FLOPs: mean      FSDP2's or DDP's
    Llama 1B        8x1     1.24   3.20   3.24    1.49    2.45    13%       0.188%       4.47    52%
                    1x8     1.24   3.20   3.20    1.49    0.79    13%       0.188%       1.28    9.8%
                    8x8     0.15   0.40   0.40    0.19    0.93   110%       0.188%       0.70    5.0%
    Llama 70B       1x64    8.62   25.7   25.7    10.8    0.50   1.3%       0.060%       12.6    1.5%
                    8x64    1.08   3.22   3.23    1.36    1.61   8.3%       0.060%       6.93    0.8%
    1T, dense       6x512   2.63   7.87   7.88    3.31    1.32   5.5%       0.040%       12.8    0.4%

"int4" is the mean with state_dtype="int4"; "beside it" what a step holds beside the state; "steps" is by how much the
steps of a refresh period exceed the mean rank's work, if in each the rank with most sets the pace. Batches are of 1M,
4M and 6.3M tokens; the model's operations are 6 for each active weight and token. Refreshes run slower than products,
so their time is more than this share.

**What breaks first is one block on one rank.** Most work of a rank over the mean, and so in state, stays at 1 until the
ranks are almost as many as the largest blocks (of up to 1,024x1,024 here), then grows with the ranks:

    ranks            4      16     64    512   4,096
    ResNet-50     1.01    1.03   3.32   26.6     213
    GPT-2         1.00    1.02   1.26   5.03    40.3
    Llama 7B      1.00           1.00   1.00    1.14
    Llama 70B     1.00           1.00   1.00    1.00
    recommender   1.98    7.92   31.7    253   2,027

No assignment of whole blocks is better, by a bound on their sizes; of Llama 7B on 4,096 ranks the bound is 1.07. A
recommender's work is one block of 1,024x1,024 and little else; its state, the tables, is within 1.02 up to 512 ranks
under DDP. What the design does about it:

- Under DDP more ranks than that only have to be sent to, and groups are as small as makes no share a tenth larger: of
  512 ranks 32 share a ResNet-50, 128 a GPT-2.
- A smaller max_preconditioner_dim makes more and smaller blocks.

Next are single steps. Refreshes of a step are those of consecutive blocks, as in one process: once they are fewer than
the ranks, some rank refreshes in every step and all wait for it. So GPT-2 on 8 ranks takes 2.2 times the mean, Llama 1B
on 64 2.1, and both 1.0 with stagger_refresh=False, where all ranks refresh at the same steps.

State is next: with float32 factors of blocks of 1,024 three times AdamW's; state_dtype="int4" leaves 0.42 of Llama
70B's. Operations are below 0.2% of the model's in the mean, traffic is below 10% of FSDP2's and about half of DDP's.

**What is missing.** A gather over replicas is as long for each as for the one with most in that round and shard: Llama
70B on 8x64 sends 6.9 GB, of which the formula above knows 5.4. Nothing overlaps with the backward pass.

**Measured** with gloo ranks of one thread, on two cores that had other work, which is to say roughly: a GPT of 3.3
million parameters in blocks of 256, refreshes every 10 steps, against every rank stepping all of it (ideal: 1/world).

                  most state over 1/world     step over the replicated one    bytes of FSDP2 sent, of
    ranks         FSDP2     DDP   local        FSDP2     DDP   local          the formula   FSDP2's
    shampoo   2    1.00    1.02    1.08         0.84    0.74    0.53             1.00         0.48
              4    1.00    1.02    1.31         0.54    0.42    0.33             0.58         0.14
    soap      2    1.00    1.02    1.08         0.80    0.66    0.53             1.00         0.48
    spectral  2    1.00    1.00    1.00         0.66    0.56    0.37             1.00         0.48

On 4 ranks many blocks happen to belong to the rank that holds their rows.
"""

from shampoo.distributed.ownership import estimate_per_rank

__all__ = ["estimate_per_rank"]
