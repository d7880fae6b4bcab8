"""Random bytes and messages that fit the schema, or nearly, for every method of a real daemon on all of its doors.

`python -m support.fuzz_api --seconds 60 --seed N`; a case that fails is printed with what makes it again.
"""
