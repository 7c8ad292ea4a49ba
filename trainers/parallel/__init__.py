"""One model trained by all ranks together: DDP, FSDP2, SimpleFSDP, compression, recomputation, compilation, and their
end. Never the start of ranks, and never the loop."""
