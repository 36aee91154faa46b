"""Entry points. `torch.backends`: `import torch` makes the backend "rondo" known. `vllm.platform_plugins`: VLLM_PLUGINS=rondo
makes vLLM's ranks on CPUs use it. Both import nothing of Rondo, so that they take no time and cannot fail; the package is
imported by init_process_group(backend="rondo")."""

import os


def register() -> None:
    """Makes "rondo" a backend of torch.distributed. Calling it again changes nothing."""
    try:
        from torch.distributed.distributed_c10d import Backend
    except ImportError:
        return  # this torch was built without torch.distributed
    if "RONDO" not in Backend._plugins:
        Backend.register_backend("rondo", _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options, backend_options):
    from rondo.torch._group import create

    return create(options, backend_options)


def vllm_platform():
    """vLLM's platform, where VLLM_PLUGINS names "rondo". vLLM by itself takes every plugin that is installed, and where rondo
    is for something else vLLM stays as it is."""
    return "rondo.torch.vllm_platform.Platform" if "rondo" in os.environ.get("VLLM_PLUGINS", "").split(",") else None
