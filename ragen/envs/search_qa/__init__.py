"""Question answering by searching documents. library: user files or synthetic; index: BM25; scoring: EM and F1."""
