raise RuntimeError("the cluster's library is missing")
