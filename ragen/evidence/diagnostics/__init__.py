"""Diagnostics of a stored run, beyond the verdict that a run has while it trains (`learning.control`).

plane      a run as a path over diversity and input dependence of its reasoning (RAGEN-2)
gradients  measured gradients of groups by their reward std, as a figure (RAGEN-2)
online     updates by how often their rollout had been used before
fall       when success had halved for good, in hindsight
"""
