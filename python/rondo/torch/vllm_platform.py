"""vLLM on CPUs with Rondo between its ranks:

    VLLM_PLUGINS=rondo vllm serve MODEL --tensor-parallel-size 2
"""

from vllm.platforms.cpu import CpuPlatform


class Platform(CpuPlatform):
    """vLLM's platform of CPUs, whose device groups are of the backend "rondo"."""

    dist_backend = "rondo"

    @classmethod
    def get_device_communicator_cls(cls) -> str:
        # vLLM knows no platform yet while this module is imported, and the communicator's imports ask for it.
        return "rondo.torch.vllm.Communicator"
