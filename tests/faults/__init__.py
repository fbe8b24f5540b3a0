"""A server that does to a client what broken networks, load balancers and control planes do, over real TLS.

`FaultServer` accepts connections and runs one script for each; `certificates` makes the good and the bad
certificates; `answers` builds what an apiserver says; `client` drives the real executor against it all.
"""
