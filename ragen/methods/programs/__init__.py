"""Episodes played by somebody else's program, through an endpoint that records what it hears."""
