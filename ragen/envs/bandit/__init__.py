"""Two named arms, one pull."""
