"""The node: it plays the kubelet with processes instead of containers. It is no part of the product.

It registers a Node and keeps its Lease (`registration`), watches the pods bound to it (`podwatch`), runs the first
container of each as a process group (`worker`, `container`), or plays the agent itself without a process (`virtual`,
for the quick profile), and reports phases and exit codes until the API takes them (`status`). It never starts a pod uid
twice, remembering uids on disk before it starts them (`memory`), as a kubelet would, and goes on through an outage.

What it does not do, and a kubelet does: images, volumes, networks, probes, resource limits, more than one container,
init containers, restarts (it takes every pod for restartPolicy Never), logs and exec through the API.
It is also a witness: the real end of each process group goes to the ledger, and what the agents say on stderr to the
history.
"""
