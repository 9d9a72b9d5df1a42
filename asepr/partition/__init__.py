"""Methods that decide edge to part and node to owner, and what follows from that."""
