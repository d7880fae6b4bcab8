"""From configuration to a clock that is kept: what runs, what is measured, and what is told about both.

Decisions come from `manage`, programs are run by `supervise`, evidence is judged in `clock`; here they meet.
"""
