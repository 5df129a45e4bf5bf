"""Manifests for the engines that start training on a cluster, to be read and committed."""
