"""One model trained by all ranks together: DDP, FSDP2, SimpleFSDP, meshes of the ranks, compression, recomputation,
compilation, and their end. Never the start of ranks, and never the loop."""
