"""The graph IR: nodes, values, weights by reference, states; text form; verifier; networkx view."""
