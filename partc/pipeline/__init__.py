"""The contracts of passes and targets, the manager that runs passes, and the one table that names them."""
