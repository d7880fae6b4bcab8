"""The machine around the clock: what is seen of it, and what of that somebody should know.

Looking and judging are apart: `look_*` and `nvml` read, `judge_*` decide over frozen values. Nothing here changes
anything.
"""
