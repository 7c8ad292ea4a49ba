"""How ranks train one model together: DDP, FSDP2, SimpleFSDP, compression, recomputation, compilation. Never how
ranks start, and never the loop."""
