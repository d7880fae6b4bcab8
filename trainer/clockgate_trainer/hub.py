"""The arguments that every from_pretrained call of a run shares."""

from typing import Any

from huggingface_hub.errors import StrictDataclassError

from clockgate_trainer.flags.table import Settings

# What reading a config.json that describes no model ends in.
CONFIG_ERRORS = (OSError, ValueError, KeyError, TypeError, ArithmeticError, StrictDataclassError)


def hub_arguments(settings: Settings) -> dict[str, Any]:
    """Where to look for files and what may be run from them."""
    return {
        "cache_dir": settings.cache_dir,
        "trust_remote_code": settings.trust_remote_code,
        "token": settings.use_auth_token or None,
    }
