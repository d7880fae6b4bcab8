"""Planning time daemons: facts about the host and settings become files and commands, as data.

Everything here but `probe` and `stamping` is pure and changes nothing: a plan is printed, compared or carried out
elsewhere.
"""
