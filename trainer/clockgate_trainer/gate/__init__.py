"""The gate: ask the local daemon, vote with all ranks, act on one decision."""

import os

# grpc reads both when it is first imported. Its fork handlers warn beside forked DataLoader workers, which never use
# the channel; below ERROR it reports every goodbye of a restarted daemon on stderr.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
