"""The pins of the load balancer: go.mod and go.sum, no code."""
