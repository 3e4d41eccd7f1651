"""What a pass and a target are, the manager that runs passes, and the one table that names them."""
