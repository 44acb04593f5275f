"""Keep the libraries' chatter off the screen, where what is printed is meant for the user."""

from __future__ import annotations

import logging
import os
import warnings


def hush_libraries() -> None:
    """Silence bars of loading and tokenizing, and warnings about the libraries' own future.

    Errors, and warnings about what was asked of them, still come through.
    """
    # bitsandbytes looks for a CPU kernel that no package on the registry carries, and says so when
    # transformers imports it.
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    import transformers

    # By variable, since judging needs no datasets library, and training imports it later.
    os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    transformers.utils.logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
