"""Questions that are answered by searching documents. library: a user's or made up; index: BM25; scoring: EM and F1."""
