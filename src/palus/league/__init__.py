"""Who plays against whom while training: snapshots on disk, opponents, ratings."""
