"""What several parts of a device check need."""
import hashlib


def require(condition, what):
    """Ends a part as failed. What was measured before is kept."""
    if not condition:
        raise RuntimeError(what)


def adapter_hash(run):
    return hashlib.sha256((run / "adapter/adapter_model.safetensors").read_bytes()).hexdigest()[:16]
