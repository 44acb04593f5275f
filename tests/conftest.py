"""What every test finds: huggingface_hub told where no Hub is, before any test can import it, and
Ctrl-C answered as on a terminal."""

import os
import signal
import tempfile

# Kept for the whole session, removed when the interpreter ends.
_hub_home = tempfile.TemporaryDirectory(prefix="subtext-tests-hf-home-")

os.environ["HF_HOME"] = _hub_home.name
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["HF_HUB_DISABLE_XET"] = "1"
# No test may reach the real Hub by accident: this port answers nobody. Tests set their own.
os.environ["HF_ENDPOINT"] = "http://127.0.0.1:9"

# Processes that a shell starts in the background inherit that SIGINT is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
