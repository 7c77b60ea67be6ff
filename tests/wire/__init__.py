"""ClusterD's side: controllers in any order, recorded dialogues, real gRPC."""
