"""The entry point `torch.backends`: `import torch` makes the backend "rondo" known. It imports nothing of Rondo, so that
it takes no time and cannot fail; the package is imported by init_process_group(backend="rondo")."""


def register() -> None:
    """Makes "rondo" a backend of torch.distributed. Calling it again changes nothing."""
    try:
        from torch.distributed.distributed_c10d import Backend
    except ImportError:
        return  # this torch was built without torch.distributed
    if "RONDO" not in Backend._plugins:
        Backend.register_backend("rondo", _create, extended_api=True, devices=["cpu"])


def _create(options, backend_options):
    from rondo.torch._group import create

    return create(options, backend_options)
